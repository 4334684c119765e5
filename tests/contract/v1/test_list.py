"""`GET /v1/streams` and `/health` (seed 000, 2.5, 4.2)."""

from __future__ import annotations

from collections.abc import Callable

from tests.harness.clock import ServerClock
from tests.harness.streams import JSON, TEXT, Streams


def test_a_descriptor_tells_what_a_stream_is(streams: Streams, name: str) -> None:
    """Seed 000, 4.2: an array of descriptors with the profile."""
    tail = streams.json(name, b"[1,22]")
    (found,) = streams.request("GET", "/v1/streams", params={"prefix": name}).json()
    assert found.pop("created_at").endswith("Z")
    assert found.pop("epoch") >= 1
    assert found == {
        "name": name,
        "content_type": JSON,
        "profile": "generic",
        "expires_at": None,
        "next_offset": tail,
        "entries": 2,
        "total_size_bytes": "3",
        "closed": False,
        "forked_from": None,
    }


def test_pages_go_by_name(streams: Streams, name: str) -> None:
    """`limit` and `after`; the header names the next page, the last one has none."""
    names = [f"{name}/{number:02d}" for number in range(5)]
    for each in reversed(names):
        streams.create(each)
    seen: list[str] = []
    query = {"prefix": name, "limit": "2"}
    while True:
        answer = streams.request("GET", "/v1/streams", params=query)
        seen += [stream["name"] for stream in answer.json()]
        if "stream-list-after" not in answer.headers:
            break
        query["after"] = answer.headers["stream-list-after"]
    assert seen == names


def test_ended_streams_are_not_listed(streams: Streams, clock: ServerClock, name: str) -> None:
    """Deleted, kept for forks, or expired: not there."""
    streams.create(f"{name}-deleted")
    streams.delete(f"{name}-deleted")
    streams.create(f"{name}-expired", stream_ttl="5")
    streams.create(f"{name}-source")
    streams.fork(f"{name}-fork", f"{name}-source")
    streams.delete(f"{name}-source")
    clock.advance(6000)
    listed = streams.request("GET", "/v1/streams", params={"prefix": name}).json()
    assert [stream["name"] for stream in listed] == [f"{name}-fork"]
    assert listed[0]["forked_from"] == f"{name}-source" and listed[0]["content_type"] == TEXT


def test_a_key_lists_what_it_may_touch(streams_as: Callable[[str], Streams], name: str) -> None:
    """Decision 2.18: prefixes of a key hold for listings."""
    full = streams_as("full")
    for each in (f"tenant42:{name}", f"other-{name}"):
        assert full.put(each).status_code == 201
    listed = streams_as("tenant").request("GET", "/v1/streams", params={"limit": "1000"}).json()
    assert f"tenant42:{name}" in [stream["name"] for stream in listed]
    assert all(stream["name"].startswith(("tenant42:", "shared.")) for stream in listed)


def test_health_answers(streams: Streams) -> None:
    """The probe of servers of streams."""
    assert streams.request("GET", "/health").json()["status"] == "ok"

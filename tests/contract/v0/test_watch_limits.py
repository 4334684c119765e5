"""Caps on sessions and streams (API 11): counted over all workers, freed by every exit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness.answers import Answer, good, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.server import Server
from tests.harness.sse import EventStream, Watching
from tests.harness.waiting import until

KEYS = "alice-key,bob-key"


def throttled(answer: Answer | None, limit: str, maximum: int) -> None:
    """A 429 in the shape of API 11."""
    assert answer is not None, "the stream opened"
    error = refused(answer, 429, "throttled")
    assert error["detail"] == {"limit": limit, "max": maximum}
    assert int(answer.headers["retry-after"]) >= 1


@pytest.fixture(scope="module")
def small(launch_once: Callable[..., Server]) -> Server:
    """A server for four streams, three for each key."""
    return launch_once(
        TOPICS_API_KEYS=KEYS,
        TOPICS_MAX_SSE_CONNECTIONS="4",
        TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="3",
        TOPICS_MAX_INFLIGHT_PER_KEY="2",
    )


@pytest.fixture
def owners(small: Server) -> Iterator[Callable[[str], Watching]]:
    """Sessions by key; afterwards no stream is left."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(Watching(small, f"{name}-key"))
    probe = Api(small, "alice-key")
    until(lambda: probe.metrics()["sse_connections"] == 0, why="all streams to be freed")
    probe.close()


def open_on_every_worker(owner: Watching, wids: list[str]) -> list[EventStream]:
    """Streams that alternate between the workers."""
    streams: list[EventStream] = []
    for wid in wids:
        if streams:
            elsewhere = owner.server.connect_elsewhere(streams[-1].connection.socket)
            streams.append(owner.open(wid, connection=elsewhere))
        else:
            streams.append(owner.open(wid))
    return streams


def reopened(owner: Watching, wid: str) -> EventStream:
    """The stream, as soon as there is room for it."""

    def attempt() -> EventStream | None:
        stream = owner.attempt(wid)
        return stream if stream.status == 200 else None

    return until(attempt, why="room for a stream")


def test_streams_of_a_key_are_bounded(owners: Callable[[str], Watching], topic: str) -> None:
    """API 11: per key, attributed to the session's key, over all workers."""
    alice, bob = owners("alice"), owners("bob")
    good(alice.api.put(topic), 201)
    wids = [alice.create([topic]) for _ in range(4)]
    streams = open_on_every_worker(alice, wids[:3])
    for _ in range(3):
        throttled(alice.attempt(wids[3]).answer, "max_sse_connections_per_key", 3)
    bob.watch([topic])
    streams[1].close()
    reopened(alice, wids[3])


def test_streams_of_an_instance_are_bounded(owners: Callable[[str], Watching], topic: str) -> None:
    """API 11: max_sse_connections counts all keys; a closed stream frees its slot."""
    alice, bob = owners("alice"), owners("bob")
    good(alice.api.put(topic), 201)
    streams = open_on_every_worker(alice, [alice.create([topic]) for _ in range(2)])
    open_on_every_worker(bob, [bob.create([topic]) for _ in range(2)])
    wid = bob.create([topic])
    for _ in range(3):
        throttled(bob.attempt(wid).answer, "max_sse_connections", 4)
    assert alice.api.metrics()["sse_connections"] == 4
    streams[0].close()
    reopened(bob, wid)


def test_streams_are_no_requests_in_flight(owners: Callable[[str], Watching], topic: str) -> None:
    """API 11: an open stream does not block ordinary requests of its key."""
    alice = owners("alice")
    good(alice.api.put(topic), 201)
    streams = [alice.watch([topic]) for _ in range(3)]
    for number in range(5):
        good(alice.api.append(topic, number))
    assert [stream.payloads(topic, 5) for stream in streams] == [list(range(5))] * 3


def test_a_takeover_frees_the_older_slot(owners: Callable[[str], Watching], topic: str) -> None:
    """API 11: one session never holds two slots for long."""
    alice = owners("alice")
    good(alice.api.put(topic), 201)
    wid = alice.create([topic])
    for _ in range(6):
        reopened(alice, wid)
    until(lambda: alice.api.metrics()["sse_connections"] == 1, why="one stream to be left")


def test_a_refused_stream_takes_no_slot(owners: Callable[[str], Watching], topic: str) -> None:
    """API 11: refusals leave nothing behind."""
    alice, bob = owners("alice"), owners("bob")
    good(alice.api.put(topic), 201)
    wid = alice.create([topic])
    for _ in range(5):
        assert bob.attempt(wid).status == 401
        assert alice.attempt("wid_" + "A" * 22).status == 404
        assert alice.attempt(wid, headers={"Accept": "text/html"}).status == 406
    assert alice.api.metrics()["sse_connections"] == 0
    assert [alice.watch([topic]).status for _ in range(3)] == [200] * 3


def test_a_lost_worker_frees_its_slots(
    small: Server, owners: Callable[[str], Watching], topic: str
) -> None:
    """Architecture 3: a dead worker's counters are zeroed."""
    alice = owners("alice")
    good(alice.api.put(topic), 201)
    streams = open_on_every_worker(alice, [alice.create([topic]) for _ in range(3)])
    wid = alice.create([topic])
    throttled(alice.attempt(wid).answer, "max_sse_connections_per_key", 3)
    small.lose_worker_of(streams[0].connection.socket)
    reopened(alice, wid)


def test_sessions_are_bounded(launch: Callable[..., Server], tmp_path) -> None:
    """API 11: max_watch_sessions on POST, also after a restart; idle ones make room."""
    clock = ServerClock(tmp_path / "clock")
    server = launch(
        TOPICS_MAX_WATCH_SESSIONS="3",
        TOPICS_WATCH_SESSION_TTL_MS="60000",
        TOPICS_TEST_CLOCK_FILE=str(clock.path),
    )
    with Watching(server) as watching:
        api = watching.api
        good(api.put("a"), 201)
        wids = [watching.create(["a"]) for _ in range(3)]
        for _ in range(4):
            throttled(api.watch({"a": {}}), "max_watch_sessions", 3)
        assert api.metrics()["watch_sessions"] == 3
        server.restart()
        throttled(api.watch({"a": {}}), "max_watch_sessions", 3)
        stream = watching.open(wids[0])
        stream.until("caught-up")
        clock.advance(60_001)
        body = good(api.watch({"a": {}}))
        assert body["session_ttl_ms"] == 60_000
        watching.create(["a"])
        throttled(api.watch({"a": {}}), "max_watch_sessions", 3)
        good(api.append("a", "still open"))
        assert stream.payloads("a", 1) == ["still open"]


def test_zero_is_no_limit(launch: Callable[..., Server]) -> None:
    """API 11: 0 disables a cap."""
    server = launch(
        TOPICS_API_KEYS=KEYS,
        TOPICS_MAX_WATCH_SESSIONS="0",
        TOPICS_MAX_SSE_CONNECTIONS="0",
        TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="0",
    )
    with Watching(server, "alice-key") as alice:
        good(alice.api.append("a", 1), 201)
        assert [alice.watch(["a"]).payloads("a", 1) for _ in range(5)] == [[1]] * 5

"""Ours beyond the protocol: retention, optimistic appends (documented as extensions)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.clock import ServerClock
from tests.harness.server import Server
from tests.harness.streams import JSON, TEXT, Streams, decode_offset, failed


def test_entries_beyond_the_size_are_dropped(streams: Streams, name: str) -> None:
    """`Stream-Retention-Bytes`: below the floor 410 with the earliest offset; -1 what remains."""
    first = streams.json(name, b'"aaaaaaaa"', stream_retention_bytes="25")
    for _ in range(4):
        streams.post(name, b'"bbbbbbbb"', content_type=JSON)
    assert streams.get(name, offset="-1").json() == ["bbbbbbbb"] * 2
    refused = streams.get(name, offset=first)
    failed(refused, 410, "offset_gone")
    earliest = refused.headers["stream-earliest-offset"]
    assert decode_offset(earliest)[1] == 3
    assert streams.get(name, offset=earliest).json() == ["bbbbbbbb"] * 2


def test_entries_beyond_the_age_are_dropped(
    streams: Streams, clock: ServerClock, name: str
) -> None:
    """`Stream-Retention-Age`: a duration; old entries are gone, the stream stays."""
    first = streams.json(name, b"1", b"2", stream_retention_age="10s")
    clock.advance(11_000)
    streams.post(name, b"3", content_type=JSON)
    assert streams.get(name).json() == [3]
    assert streams.get(name, offset=first).json() == [3]


def test_if_match_appends_at_the_tail_only(streams: Streams, name: str) -> None:
    """`If-Match` with the tail appends; with another offset it is 412 and nothing happens."""
    tail = streams.json(name, b"1")
    assert streams.post(name, b"2", content_type=JSON, if_match=tail).status_code == 204
    refused = streams.post(name, b"3", content_type=JSON, if_match=tail)
    failed(refused, 412, "precondition_failed")
    moved = refused.headers["stream-next-offset"]
    assert streams.post(name, b"4", content_type=JSON, if_match=f'"{moved}"').status_code == 204
    assert streams.read(name) == b"[1,2,4]"
    failed(streams.post(name, b"5", content_type=JSON, if_match="x"), 400)


def test_one_of_many_if_match_appends_wins(streams: Streams, name: str) -> None:
    """Writers that believe in the same tail: exactly one is right."""
    tail = streams.json(name)
    calls = [
        lambda body=b"%d" % number: streams.post(name, body, content_type=JSON, if_match=tail)
        for number in range(12)
    ]
    statuses = sorted(answer.status_code for answer in streams.together(calls))
    assert statuses == [204] + [412] * 11
    assert len(streams.get(name).json()) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_has_a_size(launch: Callable[..., Server], name: str, chunked: bool) -> None:
    """`TOPICS_STREAM_MAX_BODY_BYTES`: 413 in the envelope; topics keep to their own limit."""
    server = launch(TOPICS_STREAM_MAX_BODY_BYTES="200000", TOPICS_MAX_BODY_BYTES="100000")
    streams = Streams(server)
    streams.create(name)
    large, larger = b"x" * 150_000, b"x" * 250_000
    assert streams.post(name, iter([large]) if chunked else large, content_type=TEXT).is_success
    refused = streams.post(name, iter([larger]) if chunked else larger, content_type=TEXT)
    assert failed(refused, 413, "payload_too_large")["detail"] == {"max_bytes": 200_000}
    assert streams.read(name) == large
    streams.close()

"""GET: catch-up (spec 1.8, decisions 2.8, 2.9)."""

from __future__ import annotations

import json

import pytest

from tests.harness.streams import (
    BYTES,
    JSON,
    Streams,
    failed,
    is_closed,
    is_up_to_date,
    offset_of,
)


@pytest.mark.parametrize("query", [{}, {"offset": "-1"}, {"live": "false"}, {"x": "1"}])
def test_a_read_without_offset_is_everything(
    streams: Streams, name: str, query: dict[str, str]
) -> None:
    """Spec 1.8, decision 2.9: a bare GET reads from the start; unknown parameters are ignored."""
    tail = streams.create(name, b"a", b"b")
    answer = streams.get(name, **query)
    assert (answer.status_code, answer.content, offset_of(answer)) == (200, b"ab", tail)
    assert is_up_to_date(answer) and not is_closed(answer)
    assert answer.headers["etag"]


def test_a_read_continues_where_it_stopped(streams: Streams, name: str) -> None:
    """Spec 1.2: Stream-Next-Offset is the position after the last returned byte."""
    streams.create(name, b"a", b"b")
    middle = offset_of(streams.get(name))
    streams.post(name, b"c")
    answer = streams.get(name, offset=middle)
    assert answer.content == b"c"
    assert streams.get(name, offset=offset_of(answer)).content == b""


@pytest.mark.parametrize("kind, empty", [("text/plain", b""), (BYTES, b""), (JSON, b"[]")])
def test_a_read_at_the_tail_is_empty(streams: Streams, name: str, kind: str, empty: bytes) -> None:
    """Spec 1.2: 200, empty body or [], up to date, the same offset."""
    tail = streams.create(name, b"1", content_type=kind)
    answer = streams.get(name, offset=tail)
    assert (answer.status_code, answer.content, offset_of(answer)) == (200, empty, tail)
    assert is_up_to_date(answer)


@pytest.mark.parametrize("kind, empty", [("text/plain", b""), (JSON, b"[]")])
def test_now_is_the_tail(streams: Streams, name: str, kind: str, empty: bytes) -> None:
    """Spec 1.8: nothing but the tail, not to be stored, without ETag."""
    tail = streams.create(name, b"1", content_type=kind)
    answer = streams.get(name, offset="now")
    assert (answer.status_code, answer.content, offset_of(answer)) == (200, empty, tail)
    assert is_up_to_date(answer) and not is_closed(answer)
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    streams.post(name, stream_closed="true")
    assert is_closed(streams.get(name, offset="now"))


@pytest.mark.parametrize("query", [{}, {"offset": "-1"}, {"offset": "now"}])
@pytest.mark.parametrize("live", [None, "long-poll", "sse", "true"])
def test_a_missing_stream_is_404(
    streams: Streams, name: str, query: dict[str, str], live: str | None
) -> None:
    """Spec 1.8: in every mode, and for now."""
    if live:
        query = {"offset": "-1", **query, "live": live}
    failed(streams.get(name, **query), 404)


def test_closed_is_said_at_the_tail_only(streams: Streams, name: str) -> None:
    """Spec 1.8: a partial read of a closed stream must not carry the flag."""
    body = b"x" * 300_000
    streams.create(name, *[body] * 40, content_type=BYTES)
    streams.post(name, stream_closed="true")
    offset, pages, size = "-1", 0, 0
    while True:
        answer = streams.get(name, offset=offset)
        pages, size, offset = pages + 1, size + len(answer.content), offset_of(answer)
        assert is_closed(answer) == is_up_to_date(answer) == (size == 40 * len(body))
        if is_closed(answer):
            break
    assert pages > 1


def test_pages_of_a_json_stream_are_whole_arrays(streams: Streams, name: str) -> None:
    """Spec 1.8, 1.14: bounded pages, each one an array; together they are the stream."""
    streams.json(name)
    for start in range(0, 40_000, 4000):
        batch = [{"n": n, "pad": "x" * 300} for n in range(start, start + 4000)]
        streams.post(name, json.dumps(batch).encode(), content_type=JSON)
    offset, seen, pages = "-1", [], 0
    while True:
        answer = streams.get(name, offset=offset)
        pages, offset = pages + 1, offset_of(answer)
        seen += [entry["n"] for entry in answer.json()]
        if is_up_to_date(answer):
            break
    assert seen == list(range(40_000)) and pages > 1


FORMATS = [
    (JSON, "json", 200, b"[1,2]"),
    (JSON, "raw", 200, b"12"),
    ("text/plain", "raw", 200, b"[1,2]"),
    ("text/plain", "json", 400, b""),
    (BYTES, "json", 400, b""),
    (JSON, "xml", 400, b""),
]


@pytest.mark.parametrize("kind, fmt, status, body", FORMATS)
def test_formats(
    streams: Streams, name: str, kind: str, fmt: str, status: int, body: bytes
) -> None:
    """Decision 2.8: json on bytes is 400, raw on JSON is the elements' bytes."""
    streams.create(name, b"[1,2]", content_type=kind)
    answer = streams.get(name, format=fmt)
    if status == 400:
        failed(answer, 400)
    else:
        assert (answer.status_code, answer.content) == (200, body)


def test_the_end_is_told_with_every_read(streams: Streams, name: str) -> None:
    """Seed 000 3.4: Stream-End-Offset is the current end of the stream."""
    tail = streams.create(name, b"a", b"b")
    assert streams.get(name).headers["stream-end-offset"] == tail
    assert streams.get(name, offset=tail).headers["stream-end-offset"] == tail

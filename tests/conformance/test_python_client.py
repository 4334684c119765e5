"""The client from PyPI, `durable-streams`, lives the whole life of a stream here.

Its version 0.1.0 has no producer class and no call that closes a stream: both are headers, and
headers are what a handle of it can be given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from durable_streams import DurableStream, SeqConflictError, StreamExistsError, StreamNotFoundError

from tests.harness.server import Server

WAIT_S = 20.0
NAMES = itertools.count()


@pytest.fixture
def url(server: Server) -> str:
    return f"{server.url}/v1/stream/python-{next(NAMES)}"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as started:
        yield started


class Producer:
    """An idempotent producer: a handle that numbers its requests."""

    def __init__(self, url: str, content_type: str, seq: int = 0) -> None:
        self.seq = seq
        headers = {
            "Producer-Id": "writer",
            "Producer-Epoch": "0",
            "Producer-Seq": lambda: str(self.seq),
            "Stream-Closed": lambda: "true" if self.closes else "false",
        }
        self.closes = False
        self.handle = DurableStream(url, headers=headers, content_type=content_type, batching=False)

    def append(self, data: Any, *, closes: bool = False) -> str:
        """Append, and count on once it was acknowledged; returns the offset after it."""
        self.closes = closes
        written = self.handle.append(data)
        self.seq += 1
        return written.next_offset


def read_json(handle: DurableStream, offset: str | None = None) -> list[Any]:
    with handle.stream(offset=offset, live=False) as response:
        return response.read_json()


def test_a_created_stream_is_found_empty(url: str) -> None:
    """HEAD knows its type; creating it again differently is refused."""
    with DurableStream.create(url, content_type="application/json") as handle:
        head = handle.head()
        assert (head.exists, head.content_type) == (True, "application/json")
        assert head.cache_control == "no-store"
        assert read_json(handle) == []
        assert read_json(handle, head.offset) == []
    with pytest.raises(StreamExistsError):
        DurableStream.create(url, content_type="text/plain")


def test_a_repeated_request_of_a_producer_writes_once(url: str) -> None:
    """The retry is acknowledged at the same tail, and a gap in the numbers is refused."""
    with DurableStream.create(url, content_type="application/json") as handle:
        producer = Producer(url, "application/json")
        first = producer.append({"n": 1})
        second = producer.append([2, "two"])
        assert first < second
        assert Producer(url, "application/json").append({"n": 1}) == second
        with pytest.raises(SeqConflictError):
            Producer(url, "application/json", seq=7).append("a gap")
        assert read_json(handle) == [{"n": 1}, [2, "two"]]
        assert read_json(handle, first) == [[2, "two"]]
        assert handle.head().offset == second


def test_bytes_come_back_exactly(url: str) -> None:
    """Every byte there is, in two appends, as one body."""
    with DurableStream.create(url, content_type="application/octet-stream") as handle:
        producer = Producer(url, "application/octet-stream")
        middle = producer.append(bytes(range(256)))
        producer.append(b"\r\n\x00")
        with handle.stream(live=False) as response:
            assert response.read_bytes() == bytes(range(256)) + b"\r\n\x00"
        with handle.stream(offset=middle, live=False) as response:
            assert response.read_bytes() == b"\r\n\x00"


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_reader_at_the_tail_gets_what_is_appended(
    url: str, live: Any, pool: ThreadPoolExecutor
) -> None:
    """Each append reaches the waiting reader, with the offset that the writer was told."""
    with DurableStream.create(url, content_type="application/json") as handle:
        producer = Producer(url, "application/json")
        tail = producer.append("before")
        with handle.stream(offset=tail, live=live) as response:
            events = response.iter_events(mode="json")
            for data in ({"n": 1}, "zwei\n\ndata: 2", [3]):
                waiting = pool.submit(next, events)
                offset = producer.append(data)
                event = waiting.result(WAIT_S)
                assert (event.data, event.next_offset) == ([data], offset)
                assert event.cursor is not None and event.cursor.isdigit()


def test_text_is_tailed_line_for_line(url: str, pool: ThreadPoolExecutor) -> None:
    """What could end a line or an event of SSE arrives as the text that it is."""
    text = "a\n\nevent: control\ndata:{}\n\n ü"
    with (
        DurableStream.create(url, content_type="text/plain") as handle,
        handle.stream(offset="-1", live="sse") as response,
    ):
        waiting = pool.submit(next, response.iter_text())
        Producer(url, "text/plain").append(text)
        assert waiting.result(WAIT_S) == text


def test_closing_ends_the_event_stream(url: str, pool: ThreadPoolExecutor) -> None:
    """The last message comes before the end, its retry is acknowledged, and no other is taken."""
    with DurableStream.create(url, content_type="application/json") as handle:
        producer = Producer(url, "application/json")
        producer.append("first")
        with handle.stream(offset="-1", live="sse") as response:
            waiting = pool.submit(list, response.iter_json())
            final = producer.append("last", closes=True)
            assert waiting.result(WAIT_S) == ["first", "last"]
            assert response.offset == final
        retry = Producer(url, "application/json", seq=1)
        assert retry.append("last", closes=True) == final
        with pytest.raises(SeqConflictError):
            handle.append("after the end")
        assert read_json(handle) == ["first", "last"]


def test_closing_without_a_message_keeps_the_tail(url: str) -> None:
    """An empty append that closes changes nothing but the state."""
    with DurableStream.create(url, content_type="text/plain", body="all") as handle:
        tail = handle.head().offset
        assert Producer(url, "text/plain").append(b"", closes=True) == tail
        with handle.stream(live=False) as response:
            assert response.read_text() == "all"
            assert response.headers["stream-closed"] == "true"
        with handle.stream(offset=tail, live="long-poll") as response:
            assert (response.status, response.headers["stream-closed"]) == (204, "true")


def test_a_deleted_stream_is_gone(url: str) -> None:
    """Neither HEAD, nor a read, nor a second deletion finds it; the name is free again."""
    with DurableStream.create(url, content_type="application/json") as handle:
        Producer(url, "application/json").append("old")
        handle.delete()
        for attempt in (handle.head, handle.delete, lambda: read_json(handle)):
            with pytest.raises(StreamNotFoundError):
                attempt()
    with DurableStream.create(url, content_type="application/json") as handle:
        assert read_json(handle) == []

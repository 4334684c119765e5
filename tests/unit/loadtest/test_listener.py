"""The audience counts every record once, and no stream that lost or doubled one."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from loadtest.bench.broadcast import frame
from loadtest.bench.client import Cycle
from loadtest.bench.listener import Audience, BadStream, Plan, Round, Stream, open_stream
from loadtest.bench.payload import payload
from topicsd.reader import DiffPage
from topicsd.rules.resume import encode_id
from topicsd.web.live.pages import SharedPage
from topicsd.web.live.sse import render_records

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
OPENED = b"retry: 2000\n\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def take(stream: Stream, *parts: bytes) -> list[int]:
    return [stream.take(bytearray(part), len(part)) for part in parts]


@pytest.fixture
def stream() -> Iterator[Stream]:
    with socket.socket() as connection:
        yield Stream(connection)


def test_frames_are_counted_in_bulk(stream: Stream) -> None:
    """Two frames in one read, a heartbeat, then one more."""
    heartbeat = chunk(b": hb 1748467205000\n\n")
    parts = chunk(frame(1)) + chunk(frame(2)), heartbeat, chunk(frame(3))
    assert take(stream, *parts) == [2, 0, 1]
    assert stream.seq == 3


@pytest.mark.parametrize("cut", range(1, len(chunk(frame(1)) + chunk(frame(2)))))
def test_a_frame_may_arrive_in_two_reads(stream: Stream, cut: int) -> None:
    """Wherever the cut is, both records are counted, and each once."""
    both = chunk(frame(1)) + chunk(frame(2))
    assert sum(take(stream, both[:cut], both[cut:])) == 2
    assert stream.seq == 2


@pytest.mark.parametrize("numbers", [(2,), (1, 1), (1, 3), (1, 2, 1)])
def test_a_lost_or_doubled_record_ends_the_run(stream: Stream, numbers: tuple[int, ...]) -> None:
    """A gap, a repetition or a step back never counts as delivery."""
    with pytest.raises(BadStream):
        take(stream, *(chunk(frame(number)) for number in numbers))


class Speaker:
    """A server that answers a write with one more frame to every stream."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._streams: list[socket.socket] = []
        self._number = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        while request := connection.recv(1000):
            if request.startswith(b"GET"):
                connection.sendall(HEAD + chunk(OPENED))
                self._streams.append(connection)
            else:
                self._number += 1
                connection.sendall(OK)
                for each in self._streams:
                    each.sendall(chunk(frame(self._number)))


def plan(port: int) -> Plan:
    return Plan(port, 3, OPENED, stream_path="/stream", writes=Cycle([b"POST"]))


def test_everybody_hears_everything() -> None:
    """In step and at a rate, deliveries are writes times streams."""
    audience = Audience(plan(Speaker().port), io.BytesIO())
    for order in (Round(0.05), Round(0.05, rate=200.0)):
        result = audience.run(order)
        assert result.deliveries == 3 * result.writes > 0
        assert 0 < result.p50_us <= result.p99_us
        assert result.elapsed_s >= 0.04


def test_a_paced_round_writes_on_schedule() -> None:
    """A tenth of a second at a hundred a second is ten writes."""
    assert Audience(plan(Speaker().port), io.BytesIO()).run(Round(0.1, rate=100.0)).writes == 10


def test_orders_come_line_by_line_until_the_end() -> None:
    """One round a line; the end of the input is the end of the work."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as orders:
        audience = Audience(plan(Speaker().port), orders)
        os.write(writing, msgspec.json.encode(Round(1.5)) + b"\n")
        assert audience.next_round() == Round(1.5)
        os.close(writing)
        assert audience.next_round() is None


def test_a_refused_stream_is_reported() -> None:
    """What the server said is in the error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(
            target=lambda: listener.accept()[0].sendall(b"HTTP/1.1 429 Too Many\r\n\r\n"),
            daemon=True,
        ).start()
        with pytest.raises(BadStream, match="429"):
            open_stream(plan(listener.getsockname()[1]))


def test_the_baseline_sends_frames_of_our_size() -> None:
    """What a broadcast sends for a record is as long as what a watch sends for it."""
    record = b'{"$seq":12345,"$ts":1748467200111,"data":%b}' % payload(9)
    page = SimpleNamespace(records=record, next_from_seq=12345, head_seq=12345)
    body = render_records(b'"topic":"fanout"', SharedPage(cast(DiffPage, page)), 12344)
    ours = b"id: %b\nevent: record\ndata: %b\n\n" % (encode_id({"fanout": 12345}), body)
    assert frame(12345) == ours

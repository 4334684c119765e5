"""The audience of a fan-out measurement: one process, many event streams, one writer.

It shares the cores with the server it measures, so it does as little as possible: one epoll
loop, one buffer; of what arrives it counts the records and reads the last `to_seq`. Both must
agree on every read, so a record that is lost, doubled or out of order ends the run.

The written topic is new and nobody else writes to it, so the n-th write has seq n, and the
time from sending a write to each of its arrivals is known without looking inside a record.

Run as `python -m loadtest.bench.listener`: a `Plan` as a line of JSON on stdin; once all
streams are open, a line on stdout; then a `Result` for every `Round`, until stdin ends.
"""

from __future__ import annotations

import gc
import select
import socket
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns, process_time
from typing import BinaryIO

import msgspec

from loadtest.bench.client import (
    BadResponse,
    Cycle,
    Numbered,
    ResponseReader,
    content_length,
)

READ_BYTES = 256 * 1024
OPENING_TIMEOUT_S = 120.0
OPENING_THREADS = 32
# Nothing that is measured keeps a stream waiting for so long.
SILENCE_S = 60.0

FRAME_END = b"\n\n\r\n"
_HEAD_END = b"\r\n\r\n"
_TO_SEQ = b'"to_seq":'
_SEQ = b'"$seq":'
_URL = b'"stream_url":"'


class Plan(msgspec.Struct, frozen=True):
    """Which streams to open, and what a write is.

    With `watch`, each stream is that of a session which this request creates; without, it is
    `stream_path`. A stream is open when `opened` has arrived `opened_times`.
    """

    port: int
    subscribers: int
    opened: bytes
    opened_times: int = 1
    watch: bytes | None = None
    stream_path: str = ""
    writes: Cycle | Numbered = Cycle([])
    host: str = "127.0.0.1"


class Round(msgspec.Struct, frozen=True):
    """Write for a while, then wait until every stream has everything.

    Without a `rate`, in step: the next record is written when everybody has the last one.
    """

    seconds: float
    rate: float | None = None


class Result(msgspec.Struct, frozen=True):
    """What arrived, over all streams, from the first write to the last arrival."""

    elapsed_s: float
    cpu_s: float
    writes: int
    deliveries: int
    p50_us: int
    p99_us: int

    @property
    def rate(self) -> float:
        """Deliveries a second."""
        return self.deliveries / self.elapsed_s


class BadStream(Exception):
    """A stream that ended, or did not bring each record once and in order."""


class Stream:
    """One open stream: how far it is, and a frame of which the end is missing."""

    __slots__ = ("connection", "pending", "seq")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.seq = 0
        self.pending = b""

    def take(self, buffer: bytearray, size: int) -> int:
        """Look at what arrived; returns how many records that was."""
        if self.pending or not buffer.endswith(FRAME_END, 0, size):
            whole = self.pending + buffer[:size]
            end = whole.rfind(FRAME_END) + len(FRAME_END)
            if end < len(FRAME_END):
                self.pending = whole
                return 0
            self.pending = whole[end:]
            return self._count(whole[:end], end)
        return self._count(buffer, size)

    def _count(self, frames: bytes | bytearray, size: int) -> int:
        at = frames.rfind(_TO_SEQ, 0, size)
        if at < 0:
            return 0
        at += len(_TO_SEQ)
        to_seq = int(frames[at : frames.index(b",", at)])
        count = frames.count(_SEQ, 0, size)
        if to_seq != self.seq + count:
            raise BadStream(f"{count} records after {self.seq} led to {to_seq}")
        self.seq = to_seq
        return count


def open_stream(plan: Plan) -> Stream:
    """Create a session if the plan says so, open its stream, and wait for its first words."""
    connection = socket.create_connection((plan.host, plan.port), OPENING_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    path = plan.stream_path if plan.watch is None else _create_session(connection, plan.watch)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {plan.host}\r\n\r\n".encode())
    text = b""
    while text.count(plan.opened) < plan.opened_times or not text.endswith(FRAME_END):
        text += _receive(connection, text)
        if not text.startswith(b"HTTP/1.1 200"[: len(text)]):
            raise BadStream(f"no stream: {text[:500]!r}")
    connection.setblocking(False)
    return Stream(connection)


def _create_session(connection: socket.socket, watch: bytes) -> str:
    connection.sendall(watch)
    text = b""
    while (end := text.find(_HEAD_END)) < 0 or len(text) < end + 4 + content_length(text[:end]):
        text += _receive(connection, text)
    if not text.startswith(b"HTTP/1.1 200"):
        raise BadStream(f"no session: {text[:500]!r}")
    start = text.index(_URL) + len(_URL)
    return text[start : text.index(b'"', start)].decode()


def _receive(connection: socket.socket, before: bytes) -> bytes:
    data = connection.recv(READ_BYTES)
    if not data:
        raise BadStream(f"hung up after {before[-500:]!r}")
    return data


class Writer:
    """The connection that writes: one request in flight, and when each was sent."""

    def __init__(self, plan: Plan) -> None:
        self.connection = socket.create_connection((plan.host, plan.port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = plan.writes.stream()
        self._reader = ResponseReader()
        self.answered = True
        # By seq; nothing has seq 0.
        self.sent_ns = array("Q", [0])

    def send(self, due_ns: int) -> None:
        self.answered = False
        self.sent_ns.append(due_ns)
        self.connection.sendall(next(self._requests))

    def take(self, buffer: bytearray, size: int) -> None:
        self.answered = self._reader.feed(memoryview(buffer)[:size])


class Audience:
    """All streams and the writer, in one loop."""

    def __init__(self, plan: Plan, orders: BinaryIO) -> None:
        with ThreadPoolExecutor(OPENING_THREADS) as pool:
            streams = list(pool.map(open_stream, [plan] * plan.subscribers))
        self._orders = orders
        self._writer = Writer(plan)
        self._buffer = bytearray(READ_BYTES)
        self._streams = {stream.connection.fileno(): stream for stream in streams}
        self._delivered = 0
        self._latencies_us = array("I")
        self._epoll = select.epoll()
        for fd in (*self._streams, self._writer.connection.fileno()):
            self._epoll.register(fd, select.EPOLLIN)

    @property
    def complete(self) -> bool:
        """Whether every stream has everything that was written."""
        sent = len(self._writer.sent_ns) - 1
        return self._writer.answered and self._delivered == sent * len(self._streams)

    def next_round(self) -> Round | None:
        """Read the next order; heartbeats are heard meanwhile."""
        self._epoll.register(self._orders.fileno(), select.EPOLLIN)
        while not self._poll(SILENCE_S, wanted=self._orders.fileno()):
            pass
        self._epoll.unregister(self._orders.fileno())
        line = self._orders.readline()
        return msgspec.json.decode(line, type=Round) if line else None

    def run(self, order: Round) -> Result:
        written, delivered = len(self._writer.sent_ns), self._delivered
        self._latencies_us = array("I")
        begun_ns, begun_cpu_s = perf_counter_ns(), process_time()
        self._write(order, begun_ns)
        while not self.complete:
            self._poll(SILENCE_S)
        elapsed_s = (perf_counter_ns() - begun_ns) / 1e9
        ordered = sorted(self._latencies_us)
        return Result(
            elapsed_s,
            process_time() - begun_cpu_s,
            len(self._writer.sent_ns) - written,
            self._delivered - delivered,
            ordered[len(ordered) // 2],
            ordered[len(ordered) * 99 // 100],
        )

    def _write(self, order: Round, begun_ns: int) -> None:
        """Write in the rhythm of the round until its time is over."""
        end_ns = begun_ns + int(order.seconds * 1e9)
        if order.rate is not None:
            self._write_paced(range(begun_ns, end_ns, int(1e9 / order.rate)))
            return
        while (now_ns := perf_counter_ns()) < end_ns:
            self._writer.send(now_ns)
            while not self.complete:
                self._poll(SILENCE_S)

    def _write_paced(self, due_times_ns: range) -> None:
        """A late write counts from when it was due: waiting is part of the latency."""
        for due_ns in due_times_ns:
            while (left_ns := due_ns - perf_counter_ns()) > 0 or not self._writer.answered:
                self._poll(SILENCE_S if left_ns <= 0 else left_ns / 1e9, idle=left_ns > 0)
            self._writer.send(due_ns)

    def _poll(self, timeout_s: float, *, wanted: int = -1, idle: bool = False) -> bool:
        """Hear everybody who has something to say; whether `wanted` has."""
        events = self._epoll.poll(timeout_s, 1024)
        if not events and not idle and wanted < 0:
            raise BadStream(f"nothing arrived for {timeout_s:.0f} s")
        found = False
        for fd, _ in events:
            if fd in self._streams:
                self._hear(self._streams[fd])
            elif fd == wanted:
                found = True
            else:
                self._writer.take(self._buffer, self._read(self._writer.connection))
        return found

    def _read(self, connection: socket.socket) -> int:
        size = connection.recv_into(self._buffer)
        if not size:
            raise BadStream("a connection was closed")
        return size

    def _hear(self, stream: Stream) -> None:
        count = stream.take(self._buffer, self._read(stream.connection))
        if not count:
            return
        self._delivered += count
        now_ns, sent_ns, seq = perf_counter_ns(), self._writer.sent_ns, stream.seq
        for each in range(seq - count + 1, seq + 1):
            self._latencies_us.append((now_ns - sent_ns[each]) // 1000)


def main() -> int:
    gc.disable()
    # Unbuffered: what is not read yet must be seen by epoll.
    with open(sys.stdin.fileno(), "rb", buffering=0) as orders:
        try:
            _serve(orders)
        except (BadStream, BadResponse, OSError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return 0


def _serve(orders: BinaryIO) -> None:
    audience = Audience(msgspec.json.decode(orders.readline(), type=Plan), orders)
    print("open", flush=True)
    while (order := audience.next_round()) is not None:
        print(msgspec.json.encode(audience.run(order)).decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())

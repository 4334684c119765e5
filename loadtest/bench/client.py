"""The load generator: one process, keep-alive connections, a closed loop on each.

It shares the cores with the server it measures, so it does as little as possible: requests
are prepared bytes, a response is read into one shared buffer and only its status and
length are looked at. Each connection has exactly one request in flight. Any answer that is
not 2xx ends the run with its body: a fast refusal must never count as throughput.

Run as `python -m loadtest.bench.client`, a msgpack `Plan` on stdin, a `Result` on stdout.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from array import array
from collections.abc import Iterator
from itertools import count, cycle, islice
from time import perf_counter_ns
from typing import cast

import msgspec
import uvloop

READ_BYTES = 256 * 1024
HEAD_BYTES_MAX = 4096
FAILURE_BODY_BYTES_MAX = 4096

_LENGTH = b"content-length:"
_HEAD_END = b"\r\n\r\n"


class Cycle(msgspec.Struct, tag=True, frozen=True):
    """Send these requests in turn, again and again or `times` in all."""

    requests: list[bytes]
    times: int | None = None

    def stream(self) -> Iterator[bytes]:
        return islice(cycle(self.requests), self.times)


class Numbered(msgspec.Struct, tag=True, frozen=True):
    """Send `before + number + after`, visiting 0..count-1 in steps of `stride`."""

    before: bytes
    after: bytes
    count: int
    stride: int = 1
    times: int | None = None

    def stream(self) -> Iterator[bytes]:
        before, after, end = self.before, self.after, self.count
        numbers = (turn * self.stride % end for turn in islice(count(), self.times))
        return (b"%b%d%b" % (before, number, after) for number in numbers)


class Plan(msgspec.Struct, frozen=True):
    """What to send, where to, over how many connections and for how long.

    A source that says how many `times` is measured from its first request to its last.
    """

    port: int
    connections: int
    warmup_s: float
    measure_s: float
    source: Cycle | Numbered
    host: str = "127.0.0.1"


class Result(msgspec.Struct, frozen=True):
    """Answers counted between the end of the warm-up and the end of the run."""

    elapsed_s: float
    body_bytes: int
    # One u32 per answer, microseconds, in order of arrival.
    latencies_us: bytes

    @property
    def requests(self) -> int:
        return len(self.latencies_us) // 4

    @property
    def rate(self) -> float:
        return self.requests / self.elapsed_s

    def latency_us(self, percent: float) -> int:
        """The latency that `percent` of the requests did not exceed (nearest rank)."""
        ordered = sorted(array("I", self.latencies_us))
        if not ordered:
            return 0
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class BadResponse(Exception):
    """The server answered something else than one complete 2xx response."""


class ResponseReader:
    """Recognises the end of one response at a time in a stream of chunks."""

    def __init__(self) -> None:
        self.body_bytes = 0
        self._head = b""
        self._missing = 0
        self._status = b""
        self._failure: bytes | None = None

    def feed(self, chunk: memoryview) -> bool:
        """Take the next bytes; true when they complete the response."""
        if self._missing:
            return self._take_body(chunk)
        text = self._head + bytes(chunk[:HEAD_BYTES_MAX])
        end = text.find(_HEAD_END)
        if end < 0:
            if len(text) >= HEAD_BYTES_MAX:
                raise BadResponse(f"no end of headers in {len(text)} bytes: {text[:200]!r}")
            self._head = text
            return False
        body_start = end + len(_HEAD_END) - len(self._head)
        self._head = b""
        self._begin(text[:end])
        return self._take_body(chunk[body_start:])

    def _begin(self, head: bytes) -> None:
        self._status = head[9:12]
        self.body_bytes = self._missing = content_length(head)
        self._failure = None if self._status[:1] == b"2" else b""

    def _take_body(self, chunk: memoryview) -> bool:
        if self._failure is not None:
            self._failure += bytes(chunk[:FAILURE_BODY_BYTES_MAX])
        self._missing -= len(chunk)
        if self._missing > 0:
            return False
        if self._missing < 0:
            raise BadResponse(f"{-self._missing} bytes after the end of a response")
        if self._failure is not None:
            raise BadResponse(f"{self._status.decode()}: {self._failure.decode(errors='replace')}")
        return True


def content_length(head: bytes) -> int:
    """The announced body length; a response without one cannot be measured."""
    lowered = head.lower()
    start = lowered.find(_LENGTH)
    if start < 0:
        raise BadResponse(f"no content-length in {head[:300]!r}")
    end = lowered.find(b"\r\n", start)
    return int(lowered[start + len(_LENGTH) : end if end >= 0 else len(lowered)])


class Load:
    """One run: the connections, the clock marks and what was counted between them."""

    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop) -> None:
        self.plan = plan
        self.requests = plan.source.stream()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.latencies_us = array("I")
        self.body_bytes = 0
        self.stopping = False
        self.done: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._started_ns = self._stopped_ns = 0
        self._open = 0

    async def run(self) -> Result:
        connections = [await self._connect() for _ in range(self.plan.connections)]
        self._started_ns = perf_counter_ns()
        for connection in connections:
            connection.send()
        if self.plan.source.times is None:
            self._loop.call_later(self.plan.warmup_s, self._begin)
        await self.done
        for connection in connections:
            connection.transport.abort()
        elapsed_s = (self._stopped_ns - self._started_ns) / 1e9
        return Result(elapsed_s, self.body_bytes, self.latencies_us.tobytes())

    async def _connect(self) -> Connection:
        _, connection = await self._loop.create_connection(
            lambda: Connection(self), self.plan.host, self.plan.port
        )
        self._open += 1
        return connection

    def _begin(self) -> None:
        self.latencies_us = array("I")
        self.body_bytes = 0
        self._started_ns = perf_counter_ns()
        self._loop.call_later(self.plan.measure_s, self.stop)

    def exhausted(self) -> None:
        """One connection has nothing left to send; the last one ends the run."""
        self._open -= 1
        if self._open == 0:
            self.stop()

    def stop(self) -> None:
        self._stopped_ns = perf_counter_ns()
        self.stopping = True
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: BadResponse) -> None:
        self.stopping = True
        if not self.done.done():
            self.done.set_exception(error)


class Connection(asyncio.BufferedProtocol):
    """Sends the next request as soon as the previous one is answered."""

    transport: asyncio.Transport

    def __init__(self, load: Load) -> None:
        self._load = load
        self._reader = ResponseReader()
        self._sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._load.stopping:
            self._load.fail(BadResponse(f"the server closed a connection: {exc}"))

    def send(self) -> None:
        request = next(self._load.requests, None)
        if request is None:
            self._load.exhausted()
            return
        self._sent_ns = perf_counter_ns()
        self.transport.write(request)

    def get_buffer(self, sizehint: int) -> memoryview:
        # One buffer for all connections: uvloop fills and hands over in one step.
        return self._load.buffer

    def buffer_updated(self, nbytes: int) -> None:
        load = self._load
        try:
            complete = self._reader.feed(load.buffer[:nbytes])
        except BadResponse as error:
            load.fail(error)
            return
        if complete and not load.stopping:
            load.latencies_us.append((perf_counter_ns() - self._sent_ns) // 1000)
            load.body_bytes += self._reader.body_bytes
            self.send()


async def run_load(plan: Plan) -> Result:
    """Run `plan` in this process."""
    return await Load(plan, asyncio.get_running_loop()).run()


def main() -> int:
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Plan)
    gc.disable()
    try:
        result = uvloop.run(run_load(plan))
    except (BadResponse, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.msgpack.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The port to an engine in another process, over its Unix socket.

Commands submitted during one loop iteration leave in one write; replies and wakeups of one
engine batch arrive in one message. The port connects by itself and keeps trying: the engine
listens only when it is ready, so being connected means being served. When the connection
is lost every command in flight fails with `not_ready` (whether it was applied is unknown,
as after any lost connection) and every waiter is woken, so that nobody waits for a wakeup
that the old engine would have sent.

Bounded: while the engine does not read, commands stay here; above `IN_FLIGHT_MAX` they are
refused with `throttled`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast

from topicsd.bridge import codec
from topicsd.bridge.codec import BadFrame, Framer, Outcome, Request
from topicsd.bridge.port import WORKER_BITS, settle
from topicsd.bridge.wakeups import Wakeups
from topicsd.model import errors
from topicsd.model.commands import Append, Command, Join, Reply

IN_FLIGHT_MAX = 65_536
# A frame is closed at this many payload bytes, so that one flush of large writes neither
# builds one huge buffer nor keeps the engine from starting on the first of them.
FRAME_PAYLOAD_BYTES = 128 * 2**10
UNSENT_BYTES_HIGH = 8 * 2**20
RETRY_S_MIN, RETRY_S_MAX = 0.01, 0.25

# The number of a command whose reply nobody waits for.
_UNASKED = 0

_log = logging.getLogger(__name__)


class SocketPort:
    """Submits to the engine listening at `path`; reconnects whenever it was lost."""

    def __init__(self, path: Path, progress: Callable[[], float]) -> None:
        self.wakeups = Wakeups()
        self.worker = 0
        self._path = path
        # Replay progress of an engine that is not ready, for the refusals meanwhile.
        self._progress = progress
        # Called for every command refused because too many are in flight.
        self.refused: Callable[[], None] = _ignore
        self._ids = count(1)
        self._in_flight: dict[int, asyncio.Future[Reply]] = {}
        self._unsent: list[Request] = []
        self._link: _Link | None = None
        self._flush_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._link is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect, and stay connected until `close`."""
        self._loop = loop
        self._connecting = loop.create_task(self._keep_connected(loop))

    async def close(self) -> None:
        """Hang up; the engine sees this worker as gone when this returns."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        link = self._link
        if link is not None:
            link.hang_up()
            await link.lost

    def submit(self, command: Command) -> asyncio.Future[Reply]:
        loop = self._loop or asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        if self._link is None:
            future.set_exception(errors.not_ready(self._progress()))
            return future
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            self.refused()
            future.set_exception(errors.throttled("commands in flight", IN_FLIGHT_MAX))
            return future
        number = next(self._ids)
        self._in_flight[number] = future
        self._unsent.append((number, command))
        if not self._flush_due:
            self._flush_due = True
            loop.call_soon(self.flush)
        return future

    def flush(self) -> None:
        """Send what is unsent, until the engine stops reading."""
        self._flush_due = False
        link = self._link
        while link is not None and self._unsent and not link.paused:
            size = _frame_length(self._unsent)
            requests, self._unsent = self._unsent[:size], self._unsent[size:]
            link.send(codec.build_frame(requests))

    def take(self, outcome: Outcome) -> None:
        """Hand out the replies of a batch, then the wakeups it caused."""
        in_flight = self._in_flight
        for number, reply in outcome.replies:
            future = in_flight.pop(number, None)
            if future is not None:
                settle(future, reply)
        if outcome.everything:
            self.wakeups.wake_all()
        elif outcome.moved:
            self.wakeups.moved(codec.unpack_rows(outcome.moved))

    def gained(self, link: _Link) -> None:
        """Say who this is, before anything else is sent."""
        self._link = link
        self.worker = secrets.randbits(WORKER_BITS)
        link.send(codec.build_frame([(_UNASKED, Join(self.worker))]))
        self.wakeups.wake_all()

    def lost(self) -> None:
        """Fail everything in flight: its replies will never come."""
        self._link = None
        self._unsent.clear()
        in_flight, self._in_flight = self._in_flight, {}
        for future in in_flight.values():
            if not future.done():
                future.set_exception(errors.not_ready(self._progress()))
        self.wakeups.wake_all()

    async def _keep_connected(self, loop: asyncio.AbstractEventLoop) -> None:
        delay_s = RETRY_S_MIN
        while True:
            try:
                _, link = await loop.create_unix_connection(lambda: _Link(self), str(self._path))
            except OSError:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, RETRY_S_MAX)
                continue
            delay_s = RETRY_S_MIN
            # Shielded, because `close` cancels this task and then waits for the same future.
            await asyncio.shield(link.lost)


def _ignore() -> None:
    """Nobody counts refusals."""


def _frame_length(unsent: list[Request]) -> int:
    """How many of the first requests go into one frame."""
    payload = 0
    for index, (_, command) in enumerate(unsent):
        if type(command) is Append:
            payload += len(command.forms)
            if payload >= FRAME_PAYLOAD_BYTES:
                return index + 1
    return len(unsent)


class _Link(asyncio.Protocol):
    """One connection of a port; dies with it."""

    def __init__(self, port: SocketPort) -> None:
        self.paused = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._port = port
        self._framer = Framer()
        self._transport: asyncio.Transport | None = None

    def send(self, frame: bytearray) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        self._port.gained(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                self._port.take(codec.read_outcome(frame))
        except BadFrame:
            _log.exception("the engine sent a frame that is no message")
            self.hang_up()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._port.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._port.lost()
        if not self.lost.done():
            self.lost.set_result(None)

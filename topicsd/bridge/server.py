"""The engine's side of the bridge: one Unix socket, one connection a worker.

What arrives from all workers during one loop iteration becomes one `apply`; each worker
then gets one message with its replies and the rows that moved.

Bounded: a worker that does not read its replies is not read from either, and the rows it
should hear of are kept as a set; beyond `MOVED_ROWS_MAX` the set collapses into "everything
moved". A worker that sends nonsense is disconnected; the others do not notice.

A worker says who it is with its first command. When its connection is lost the engine is
told, because it may hold what only this worker could have given back.

Draining: the engine serves on until every worker has hung up (they finish their requests
first) or the drain timeout passed, then closes cleanly.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from topicsd.bridge import codec
from topicsd.bridge.codec import BadFrame, Framer, Outcome
from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.driver import Drivable, Driver, Replies
from topicsd.model.commands import Join, Leave, Reply

UNREAD_BYTES_HIGH = 8 * 2**20
MOVED_ROWS_MAX = 65_536

_log = logging.getLogger(__name__)


class EngineHost:
    """Serves a recovered engine to workers until it is drained."""

    def __init__(
        self,
        engine: Drivable,
        doorbell: Doorbell,
        fault: Callable[[], None],
        drain_timeout_ms: int,
    ) -> None:
        self._driver = Driver(engine, doorbell, self._deliver, fault)
        self._drain_timeout_s = drain_timeout_ms / 1000
        self._peers: set[_Peer] = set()
        self._draining = False
        self._done = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Serve on `listener` until drained, then close the engine."""
        loop = asyncio.get_running_loop()
        self._driver.start(loop)
        server = await loop.create_unix_server(lambda: _Peer(self), sock=listener)
        try:
            await self._done.wait()
        finally:
            server.close()
        self._driver.close()
        for peer in tuple(self._peers):
            peer.hang_up()

    def drain(self) -> None:
        """Finish when the workers are gone, at the latest after the drain timeout."""
        if self._draining:
            return
        self._draining = True
        asyncio.get_running_loop().call_later(self._drain_timeout_s, self._done.set)
        self._finish_if_alone()

    def join(self, peer: _Peer) -> None:
        self._peers.add(peer)

    def leave(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        if peer.worker is not None:
            # Applied after all that the worker has sent, and before a drained engine closes.
            self._driver.submit([((peer, 0), Leave(peer.worker))])
        self._finish_if_alone()

    def receive(self, peer: _Peer, frames: list[memoryview]) -> None:
        for frame in frames:
            requests = codec.read_requests(frame)
            if peer.worker is None:
                peer.worker = _find_worker(requests)
            self._driver.submit([((peer, number), command) for number, command in requests])

    def _finish_if_alone(self) -> None:
        if self._draining and not self._peers:
            self._done.set()

    def _deliver(self, replies: Replies, moved: list[int]) -> None:
        for (peer, number), reply in replies:
            peer.replies.append((number, reply))
        for peer in self._peers:
            peer.send(moved)


def _find_worker(requests: list[codec.Request]) -> int | None:
    joins = [command.worker for _, command in requests if isinstance(command, Join)]
    return joins[0] if joins else None


class _Peer(asyncio.Protocol):
    """One worker's connection."""

    def __init__(self, host: EngineHost) -> None:
        self.replies: list[tuple[int, Reply]] = []
        # Unknown until it has joined.
        self.worker: int | None = None
        self._host = host
        self._framer = Framer()
        self._paused = False
        # What a paused worker will be told when it reads again.
        self._moved: set[int] = set()
        self._everything = False
        self._transport: asyncio.Transport | None = None

    def send(self, moved: list[int]) -> None:
        """Send the collected replies and the rows that moved; a paused peer gets it later."""
        transport = self._transport
        if transport is None:
            return
        if self._paused:
            self._remember(moved)
        elif self.replies or moved:
            replies, self.replies = self.replies, []
            transport.write(codec.build_frame(Outcome(replies, codec.pack_rows(moved))))

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES_HIGH)
        self._host.join(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._host.receive(self, self._framer.feed(data))
        except BadFrame:
            _log.exception("a worker sent a frame that is no message; hanging up")
            self.hang_up()

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        transport = self._transport
        if transport is None:
            return
        moved, self._moved = self._moved, set()
        everything, self._everything = self._everything, False
        replies, self.replies = self.replies, []
        if replies or moved or everything:
            transport.write(codec.build_frame(Outcome(replies, codec.pack_rows(moved), everything)))
        # That write may have filled the buffer again, which paused this side anew.
        if not self._paused:
            transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.replies.clear()
        self._host.leave(self)

    def _remember(self, moved: list[int]) -> None:
        if not self._everything:
            self._moved.update(moved)
        if len(self._moved) > MOVED_ROWS_MAX:
            self._moved.clear()
            self._everything = True

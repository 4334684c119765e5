"""A connection handed over by HTTP: raw bytes in and out until one side hangs up.

The protocol that owns the socket forwards what it is told (`receive`, `pause`, `resume`,
`lost`); the handler's task just waits for `closed`. Writing never waits: who writes looks at
`paused` first, which says that the client does not keep up with what it was sent.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

# A client that does not take its last bytes is cut off after this time.
LINGER_S = 5.0


class Tunnel:
    """The bytes of one connection; subclasses say what they mean."""

    def __init__(self, head: bytes, buffer_bytes: int) -> None:
        self._head = head
        self._buffer_bytes = buffer_bytes
        self._transport: asyncio.Transport | None = None
        self.paused = False
        self.closing = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection over; the response's head goes out first."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._buffer_bytes)
        self._transport.write(self._head)
        self.opened()

    def write(self, data: bytes) -> None:
        """Send bytes; after the connection is gone they go nowhere."""
        if self._transport is not None:
            self._transport.write(data)

    def finish(self, last: bytes = b"") -> None:
        """Say the last words and hang up once they are sent."""
        if self.closing:
            return
        self.closing = True
        transport = self._transport
        if transport is None:
            return
        if last:
            transport.write(last)
        transport.close()
        asyncio.get_running_loop().call_later(LINGER_S, self._abort)

    def opened(self) -> None:
        """The head is on its way."""

    def receive(self, data: bytes) -> None:
        """What the client says; a stream of events listens to nothing."""

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def lost(self) -> None:
        """The connection is gone, whoever ended it; called once."""
        self._transport = None
        self.closing = True
        if not self.closed.done():
            self.closed.set_result(None)

    def shut_down(self) -> None:
        """The server stops."""
        self.finish()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Opening(NamedTuple):
    """A reply that turns its connection into a tunnel."""

    tunnel: Tunnel
    status: int = 200

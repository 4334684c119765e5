"""A WebSocket: the handshake, what the client sends, liveness and the end (RFC 6455).

The `websockets` package parses and judges what comes in, without I/O; what goes out is framed
by `frames`, because many connections share it. Messages are text; they wait in an inbox until
`hear` takes them. While any wait, nothing more is read from the client.

Invariants:
- After the server's Close frame nothing is sent.
- A client that says Close is answered after everything it said before was served.
- A client that is silent is pinged, and hung up on when it does not answer that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from topicsd.model import errors
from topicsd.web.live import frames
from topicsd.web.live.consumer import SLOW, Consumer

if TYPE_CHECKING:
    from topicsd.web.context import Context
    from topicsd.web.request import Request

# A client that was silent for this long is pinged, and has as long to answer.
PING_S = 20.0
# How long the client may take to answer a Close frame.
CLOSE_WAIT_S = 2.0
SHUTTING_DOWN = "server_shutting_down"

_HANDSHAKE_HEADERS = (
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
)
# The package logs what every connection says; only its failures are of interest.
_log = logging.getLogger("topicsd.socket")
_log.setLevel(logging.WARNING)


def shake_hands(request: Request, max_bytes: int) -> tuple[ServerProtocol, bytes]:
    """Accept an upgrade: its protocol and the response's head; or raise `invalid_request`."""
    protocol = ServerProtocol(state=OPEN, max_size=max_bytes, logger=_log)
    headers = Headers()
    for name in _HANDSHAKE_HEADERS:
        value = request.header(name)
        if value is not None:
            headers[name] = value
    response = protocol.accept(Handshake(request.path, headers))
    if protocol.handshake_exc is not None or request.method != "GET":
        problem = protocol.handshake_exc or "the method is not GET"
        raise errors.invalid_request(f"this is a WebSocket: {problem}")
    return protocol, response.serialize()


class Socket(Consumer):
    """One open `GET /v0/ws`; a subclass serves its messages."""

    def __init__(self, context: Context, protocol: ServerProtocol, head: bytes) -> None:
        super().__init__(context, head, frames.WsEncoder())
        self._protocol = protocol
        self._parts = bytearray()
        self._kind = Opcode.TEXT
        self._inbox: deque[bytes | None] = deque()
        # The client said Close; it is answered when everything before it is served.
        self._leaving = False
        # The client sent what is no text: nothing behind it counts.
        self._broken = False
        # The server stops, and so does this when everything is answered.
        self._stopping = False
        # Our Close frame is sent, or there is nobody to send it to.
        self._over = False
        self._heard_at = self._loop.time()
        self._pinged = False
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, text: bytes | None) -> None:
        """Serve one message: UTF-8 text, or None for one that is not text."""
        raise NotImplementedError

    @property
    def is_free(self) -> bool:
        """Whether the next message may be served now."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether everything that was heard is answered."""
        raise NotImplementedError

    def opened(self) -> None:
        super().opened()
        self._timer = self._loop.call_later(PING_S, self._check_life)
        if self._context.gate.draining:
            self.shut_down()

    def say(self, message: bytes) -> None:
        """Send a frame, unless it is too late."""
        if not self._over:
            self.write(message)

    def receive(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._pinged = False
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        self.serve()

    def serve(self) -> None:
        """Serve what waits, as far as possible, and read on when nothing waits any more."""
        while self._inbox and self.is_free and not (self.paused or self._over):
            self.hear(self._inbox.popleft())
        if self._stopping and (self.paused or self._is_done):
            self.close(CloseCode.GOING_AWAY, SHUTTING_DOWN)
        self._flush()
        self._read_on()

    @property
    def _is_done(self) -> bool:
        return not self._inbox and self.is_idle

    def resume(self) -> None:
        super().resume()
        self.serve()

    def _take(self, event: Frame) -> None:
        """Put frames together to messages."""
        if event.opcode is Opcode.CLOSE:
            self._leaving = True
        if self._broken or event.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if event.opcode is not Opcode.CONT:
            self._kind = event.opcode
        if event.fin and not self._parts:
            self._complete(bytes(event.data))
            return
        self._parts += event.data
        if event.fin:
            text = bytes(self._parts)
            self._parts.clear()
            self._complete(text)

    def _complete(self, content: bytes) -> None:
        if self._kind is not Opcode.TEXT:
            self._inbox.append(None)
        elif content.isascii() or _is_utf8(content):
            self._inbox.append(content)
        else:
            self._broken = True
            self._protocol.fail(CloseCode.INVALID_DATA, "the message is not valid UTF-8")

    def _flush(self) -> None:
        """Send what the protocol has to say: pongs, and Close frames."""
        if self._leaving and not (self._over or self._is_done):
            return
        for data in self._protocol.data_to_send():
            if data:
                self.write(data)
            else:
                self._end()

    def _read_on(self) -> None:
        """Read from the client exactly while nothing of it waits."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = not self._inbox or self._over
        if wanted != transport.is_reading():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self, code: int, reason: str) -> None:
        """Say Close and wait a little for the client's answer."""
        if self._over:
            return
        if self._protocol.state is OPEN:
            self._protocol.send_close(code, reason)
        for data in self._protocol.data_to_send():
            if data:
                self.write(data)
        self._end_later()

    def give_up(self) -> None:
        self.say(frames.error(errors.request_timeout(SLOW)))
        self.close(CloseCode.TRY_AGAIN_LATER, SLOW)

    def fail(self, problem: str) -> None:
        self.close(CloseCode.INTERNAL_ERROR, problem)

    def shut_down(self) -> None:
        self._stopping = True
        self.serve()

    def _end(self) -> None:
        """The protocol is over: both sides have said Close, or the client broke the rules."""
        if self._leaving:
            self.stop()
            self.finish()
            return
        transport = self._transport
        if transport is not None and not (self._over or transport.is_closing()):
            # Closing on a client that still sends would reset the connection under our Close.
            transport.write_eof()
        self._end_later()

    def _end_later(self) -> None:
        if not self._over:
            self.stop()
            self._inbox.clear()
            self._timer = self._loop.call_later(CLOSE_WAIT_S, self.finish)
            self._read_on()

    def stop(self) -> None:
        self._over = True
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def _check_life(self) -> None:
        now = self._loop.time()
        if self._inbox or self.paused:
            # We do not listen, or the client does not: that has other limits.
            self._heard_at = now
        if now - self._heard_at >= 2 * PING_S:
            self.close(CloseCode.INTERNAL_ERROR, "keepalive ping timeout")
            return
        if now - self._heard_at >= PING_S and not self._pinged:
            self._pinged = True
            self._protocol.send_ping(b"")
            self._flush()
        due = self._heard_at + (2 * PING_S if self._pinged else PING_S)
        self._timer = self._loop.call_at(due, self._check_life)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True

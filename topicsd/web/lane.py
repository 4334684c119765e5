"""The fast lane: plain POSTs to topics and streams, without Sanic's request machinery.

Sanic's own path costs most of a small request. `LaneProtocol` looks at the bytes of an idle
connection first: when they start a plain request (HTTP/1.1, one Content-Length, nothing that
changes framing or encoding) it calls `dispatch.answer` itself and writes the response in one
piece. Anything else goes to Sanic untouched, and until Sanic is idle again it owns the
connection. Both doors answer the same bytes.

Invariants:
- One request of a connection is served at a time, in order; bytes that arrive meanwhile wait
  in `_pending`, and reading pauses when there are too many of them.
- A handler runs without a task: `Drive` resumes it when the future it waits for is done. So
  what handlers await must be plain futures; nothing on the way may need a current task.
- A connection that is lost cancels its handler.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from time import monotonic
from typing import Any, NamedTuple, cast

from sanic.http import Http, Stage
from sanic.server.protocols.http_protocol import HttpProtocol

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.web.app import get_context
from topicsd.web.dispatch import admit, answer
from topicsd.web.drive import Drive
from topicsd.web.errors import refusal
from topicsd.web.live.tunnel import Tunnel
from topicsd.web.reply import Reply, build_response
from topicsd.web.request import Request

STARTS = (b"POST /v0/topics/", b"POST /v1/stream/")
PENDING_BYTES_MAX = 65_536

_HEAD_END = b"\r\n\r\n"
# Only characters that no URL parser treats specially.
_REQUEST_LINE = re.compile(
    r"POST (?P<path>/(?:v0/topics|v1/stream)/[A-Za-z0-9._:%/-]*)"
    r"(?:\?(?P<query>[A-Za-z0-9._:%=&-]*))? HTTP/1\.1"
)
_UNUSUAL = frozenset({"transfer-encoding", "expect", "upgrade", "content-encoding"})
_KEEP_ALIVE = {"keep-alive": True, "close": False}
_LENGTH_DIGITS_MAX = 12


class Head(NamedTuple):
    """The head of a plain request: where its body starts and ends, and what it says."""

    path: str
    query_string: str
    headers: dict[str, str]
    keep_alive: bool
    start: int
    end: int


def parse_head(data: bytes | bytearray) -> Head | None:
    """Read the head of a plain request; None when it is anything else, or incomplete."""
    size = data.find(_HEAD_END)
    if size < 0 or size >= Http.HEADER_MAX_SIZE:
        return None
    try:
        first, *lines = data[:size].decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        return None
    if not "".join(lines).isprintable():
        return None
    line = _REQUEST_LINE.fullmatch(first)
    headers = _parse_headers(lines)
    if line is None or headers is None:
        return None
    length = headers.get("content-length", "")
    keep_alive = _KEEP_ALIVE.get(headers.get("connection", "keep-alive").lower())
    if keep_alive is None or not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
        return None
    start = size + len(_HEAD_END)
    return Head(line["path"], line["query"] or "", headers, keep_alive, start, start + int(length))


def _parse_headers(lines: list[str]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or " " in name or name in headers or name in _UNUSUAL:
            return None
        headers[name] = value.lstrip()
    return headers


class LaneProtocol(HttpProtocol):
    """A connection that serves plain requests itself and leaves the others to Sanic."""

    __slots__ = ("_context", "_drive", "_head", "_limit", "_paused", "_pending", "_tunnel")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._http = None
        self._context = get_context(self.app)
        settings = self._context.settings
        self._limit = min(settings.max_body_bytes, settings.stream_max_body_bytes)
        self._pending: bytes | bytearray = b""
        self._head: Head | None = None
        self._drive: Drive[Reply] | None = None
        self._paused = False
        self._tunnel: Tunnel | None = None

    def dig(self, tunnel: Tunnel) -> None:
        """Hand the connection over; what the client sent too early is heard first."""
        if self.transport is None:
            tunnel.lost()
            return
        self._tunnel = tunnel
        tunnel.open(self.transport)
        early, self.recv_buffer = bytes(self.recv_buffer), bytearray()
        if early:
            tunnel.receive(early)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._context.gate.column.count_connection(1)

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.receive(data)
        elif self._drive is not None or self._pending:
            self._queue(data)
        elif data.startswith(STARTS) and self._is_idle():
            self._time = monotonic()
            self._pending = data
            self._pump()
        else:
            super().data_received(data)

    def _is_idle(self) -> bool:
        """Whether Sanic is between two requests of this connection."""
        if self.recv_buffer or not self.app.ctx.lane:
            return False
        http = self._http
        if http is None:
            # Either the connection's task has not begun, or it is over.
            return self._task is not None
        # A body that was refused may still be arriving while the stage is idle again.
        return http.stage is Stage.IDLE and http.keep_alive and not http.request_body

    def _queue(self, data: bytes) -> None:
        self._time = monotonic()
        if isinstance(self._pending, bytes):
            self._pending = bytearray(self._pending)
        self._pending += data
        if self._drive is None and self._can_write.is_set():
            self._pump()
        elif len(self._pending) > PENDING_BYTES_MAX and not self._paused and self.transport:
            self._paused = True
            self.transport.pause_reading()

    def _pump(self) -> None:
        """Serve what is pending, in order, until something must be waited for."""
        while self._pending and self._drive is None and self._can_write.is_set():
            head = self._head or parse_head(self._pending)
            if head is None or head.end - head.start > self._limit:
                self._hand_over()
            elif len(self._pending) >= head.end:
                self._take(head)
            elif self._head is not None or self._is_welcome(head):
                self._head = head
                break
            else:
                self._hand_over()
        waits_for_bytes = self._drive is None and self._can_write.is_set()
        if self._paused and waits_for_bytes and self.transport:
            self._paused = False
            self.transport.resume_reading()

    def _is_welcome(self, head: Head) -> bool:
        """Whether a request may send its body; Sanic says no early, and says it better."""
        try:
            admit(self._request(head), self._context)
        except TopicsError:
            return False
        return True

    def _hand_over(self) -> None:
        data, self._pending = bytes(self._pending), b""
        super().data_received(data)

    def _request(self, head: Head) -> Request:
        started_us = self._context.clock.monotonic_us()
        return Request("POST", head.path, head.query_string, head.headers, started_us)

    def _take(self, head: Head) -> None:
        request = self._request(head)
        request.body = self._cut(head)
        self.state["requests_count"] += 1
        # No POST opens a tunnel.
        coroutine = cast(Coroutine[Any, Any, Reply], answer(request, self._context))
        try:
            future = coroutine.send(None)
        except StopIteration as stop:
            self._send(stop.value, head.keep_alive)
        else:
            self._drive = Drive(coroutine, future, lambda reply: self._end(reply, head.keep_alive))

    def _cut(self, head: Head) -> bytes:
        """Take a request's bytes off the front of what is pending; returns its body."""
        body = bytes(self._pending[head.start : head.end])
        self._head = None
        if len(self._pending) == head.end:
            self._pending = b""
        else:
            # Cutting the front off a bytearray does not copy the rest.
            if isinstance(self._pending, bytes):
                self._pending = bytearray(self._pending)
            del self._pending[: head.end]
        return body

    def _end(self, reply: Reply | None, keep_alive: bool) -> None:
        self._drive = None
        if reply is not None:
            self._send(reply, keep_alive)
        self._pump()

    def _send(self, reply: Reply, keep_alive: bool) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            self._pending = b""
            return
        keep_alive = keep_alive and not self._context.gate.draining
        transport.write(build_response(reply, keep_alive=keep_alive))
        self._time = monotonic()
        if not keep_alive:
            self._pending = b""
            self.close()

    def close_if_idle(self) -> bool:
        if self._drive is not None or self._head is not None or self._tunnel is not None:
            return False
        closed: bool = super().close_if_idle()
        return closed

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._tunnel is not None:
            self._tunnel.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._tunnel is not None:
            self._tunnel.resume()
        if self._drive is None and self._pending:
            self._pump()

    def connection_lost(self, error: Exception | None) -> None:
        self._pending = b""
        self._head = None
        self._context.gate.column.count_connection(-1)
        tunnel, self._tunnel = self._tunnel, None
        if tunnel is not None:
            tunnel.lost()
        super().connection_lost(error)
        if self._drive is not None:
            self._drive.cancel()

    def check_timeouts(self) -> None:
        """Sanic's timeouts, for the requests it does not see; a tunnel has its own."""
        if self._tunnel is not None:
            return
        if self._drive is None and self._head is None:
            super().check_timeouts()
            return
        silent_s = monotonic() - self._time
        if self._head is not None and silent_s > self.request_timeout:
            self._give_up(errors.request_timeout("the body did not arrive in time"))
        elif self._drive is not None and silent_s > self.response_timeout:
            late = TopicsError("not_ready", "the request was not answered in time", None, 1000)
            self._give_up(late)
        else:
            delay_s = min(self.keep_alive_timeout, self.request_timeout, self.response_timeout) / 2
            self._callback_check_timeouts = self.loop.call_later(
                max(0.1, delay_s), self.check_timeouts
            )

    def _give_up(self, error: TopicsError) -> None:
        self._send(refusal(error, int((monotonic() - self._time) * 1_000_000)), keep_alive=False)
        if self._drive is not None:
            self._drive.cancel()

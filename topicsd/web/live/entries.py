"""The event stream of one durable stream: data and control events in pairs (streams spec 1.10).

A wakeup makes every reader at the same position read the same page. Within one turn of the
event loop it is read and rendered once and shared, so that what is left for each connection
is a write. Nothing is read for a client that does not keep up.
"""

from __future__ import annotations

import asyncio
import base64
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from topicsd.model.errors import TopicsError
from topicsd.model.match import Match
from topicsd.model.offset import build_offset
from topicsd.model.stream import base_type
from topicsd.reader import StreamPage, StreamView
from topicsd.rules.lifetime import expires_at
from topicsd.web.live.sse import LAST_CHUNK, chunk
from topicsd.web.live.tunnel import Tunnel
from topicsd.web.reply import SHARED_HEADERS

if TYPE_CHECKING:
    from topicsd.web.context import Context

# A client reconnects after this time; caches and balancers get to see new requests.
RECYCLE_S: Final = 60.0
# A silence is broken after this time.
BEAT_S: Final = 15.0
EVENT_BYTES_MAX: Final = 256 * 1024
EVENT_ENTRIES_MAX: Final = 10_000

_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_encode = msgspec.json.encode


class Start(NamedTuple):
    """Where an event stream begins, and how it speaks."""

    from_seq: int
    match: Match | None
    cursor: str
    spelling: str


class Shared:
    """Frames of one turn of the loop, by what they depend on; one a worker."""

    def __init__(self) -> None:
        self.frames: dict[Any, tuple[StreamPage, bytes]] = {}

    def keep(self, key: Any, made: tuple[StreamPage, bytes]) -> None:
        if not self.frames:
            asyncio.get_running_loop().call_soon(self.frames.clear)
        self.frames[key] = made


def build_head(view: StreamView) -> bytes:
    lines = [
        b"HTTP/1.1 200 OK",
        b"content-type: text/event-stream",
        b"cache-control: no-cache, no-store",
        b"connection: keep-alive",
        b"x-accel-buffering: no",
        b"transfer-encoding: chunked",
        *(f"{name}: {value}".encode() for name, value in SHARED_HEADERS),
    ]
    if not is_text(view.config.content_type):
        lines.append(b"stream-sse-data-encoding: base64")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def is_text(content_type: str) -> bool:
    """Whether entries are sent as they are; others in base64."""
    found = base_type(content_type)
    return found.startswith("text/") or found == "application/json"


def render_data(view: StreamView, parts: list[bytes]) -> bytes:
    """One data event with all entries of a page."""
    if view.config.is_json:
        return b"event: data\ndata:[%b]\n\n" % b",".join(parts)
    content = b"".join(parts)
    if not is_text(view.config.content_type):
        return b"event: data\ndata:%b\n\n" % base64.b64encode(content)
    lines = b"".join(map(_line, _LINE_BREAK.split(content)))
    return b"event: data\n%b\n" % lines


def _line(text: bytes) -> bytes:
    """A line of data; a client takes one blank after the colon for ours."""
    return b"data:%b%b\n" % (b" " if text[:1] == b" " else b"", text)


def render_control(view: StreamView, page: StreamPage, start: Start) -> bytes:
    """Where the client is now; its `id` lets a plain EventSource resume there."""
    offset = build_offset(view.position(page.next_seq), start.spelling)
    content: dict[str, Any] = {"streamNextOffset": offset}
    if page.closed:
        content["streamClosed"] = True
    else:
        content["streamCursor"] = start.cursor
    if page.up_to_date:
        content["upToDate"] = True
    return b"event: control\ndata:%b\nid:%b\n\n" % (_encode(content), offset.encode())


class EntryStream(Tunnel):
    """One open `GET ?live=sse`."""

    def __init__(self, context: Context, view: StreamView, start: Start) -> None:
        super().__init__(build_head(view), context.settings.stream_buffer_bytes)
        self._context = context
        self._view = view
        self._start = start
        self._at = start.from_seq
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._scheduled = False
        self._stopped = False
        self._spoken = False

    def opened(self) -> None:
        self._context.streams.add(self)
        self._context.port.wakeups.listen(self._view.topic.row, self)
        self._timers["recycle"] = self._loop.call_later(RECYCLE_S, self._end)
        self._arm_beat()
        self._pump()

    def wake(self) -> None:
        """The stream moved: read once for all wakeups of a turn."""
        if not (self._scheduled or self._stopped or self.paused):
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def pause(self) -> None:
        super().pause()
        delay_s = self._context.settings.slow_consumer_timeout_ms / 1000
        self._timers["slow"] = self._loop.call_later(delay_s, self._end)

    def resume(self) -> None:
        super().resume()
        self._cancel("slow")
        self.wake()

    def shut_down(self) -> None:
        self._end()

    def lost(self) -> None:
        self._stop()
        super().lost()

    def _pump(self) -> None:
        """Send what there is, page by page, for as long as the client takes it."""
        self._scheduled = False
        if self._stopped:
            return
        try:
            while not (self.paused or self._stopped):
                if not self._send_page():
                    return
        except TopicsError as error:
            gone = error.code in ("stream_not_found", "stream_gone")
            self._end(b"event: deleted\ndata:{}\n\n" if gone else _error(error))

    def _send_page(self) -> bool:
        """Send the next page; False when there is nothing more for now."""
        page, frame = self._read()
        if page.status.gone:
            self._end(b"event: deleted\ndata:{}\n\n")
            return False
        moved = page.next_seq != self._at
        self._at = page.next_seq
        if page.closed:
            self._end(frame)
            return False
        if page.parts or not self._spoken or moved:
            self._spoken = True
            self._arm_beat()
            self.write(chunk(frame))
        return not page.up_to_date

    def _read(self) -> tuple[StreamPage, bytes]:
        shared = self._context.entries
        start = self._start
        key = (self._view.topic.log_id, self._at, start.match, start.cursor, start.spelling)
        found = shared.frames.get(key)
        if found is None:
            page = self._view.read(self._at, EVENT_BYTES_MAX, EVENT_ENTRIES_MAX, start.match)
            control = render_control(self._view, page, start)
            data = render_data(self._view, page.parts) if page.parts else b""
            # Whoever is connected uses the stream: it does not end under them.
            self._context.reader.touch(self._view.topic)
            found = (page, data + control)
            shared.keep(key, found)
        return found

    def _arm_beat(self) -> None:
        """Speak again after a while, in time to keep a short-lived stream alive."""
        self._cancel("beat")
        stream = self._view.config
        delay_s = BEAT_S if stream.ttl_ms is None else min(BEAT_S, stream.ttl_ms / 2000)
        if stream.expires_ms is not None:
            left_ms = stream.expires_ms - self._context.clock.now_ms()
            delay_s = min(delay_s, max(left_ms / 1000, 0) + 0.01)
        self._timers["beat"] = self._loop.call_later(delay_s, self._beat)

    def _beat(self) -> None:
        """Break a silence; end with a stream whose time is over."""
        if self._stopped:
            return
        self._arm_beat()
        end_ms = expires_at(self._view.config, 0) if self._view.config.ttl_ms is None else None
        if end_ms is not None and self._context.clock.now_ms() >= end_ms:
            self._end(b"event: deleted\ndata:{}\n\n")
            return
        self._context.reader.touch(self._view.topic)
        if not self.paused:
            self._spoken = False
            self._pump()

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _end(self, last: bytes = b"") -> None:
        """Say the last words, if any, and hang up."""
        self._stop()
        self.finish((chunk(last) if last else b"") + LAST_CHUNK)

    def _stop(self) -> None:
        self._stopped = True
        self._context.streams.discard(self)
        self._context.port.wakeups.forget(self, (self._view.topic.row,))
        for name in list(self._timers):
            self._cancel(name)


def _error(error: TopicsError) -> bytes:
    content = {"code": error.code, "message": error.message}
    return b"event: error\ndata:%b\n\n" % _encode(content)

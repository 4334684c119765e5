"""A client of event streams over a raw socket: strict about framing, and free to misbehave.

Bytes go through two parsers without I/O: `Chunks` undoes the chunked transfer coding and
refuses what RFC 9112 does not allow, `Blocks` cuts the text at blank lines as the HTML standard
says (lines end in LF, CR or CRLF). A `Frame` is one block, whatever stands in it, so that tests
see comments and `retry` too. A stream that is not read stalls; closing it hangs up.
"""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any, NamedTuple

from tests.harness.answers import good
from tests.harness.client import Client
from tests.harness.raw import RawConnection, RawResponse, build_request

FRAME_S = 5.0
# Long enough that a frame which must not come would have come.
QUIET_S = 0.15

_CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]+)\r\n")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class StreamTimeout(AssertionError):
    """No frame came in time."""


class StreamEnded(AssertionError):
    """The server ended the stream while a frame was waited for."""


class Frame(NamedTuple):
    """One block: fields that are absent are None, several `data` lines are joined by LF."""

    event: str | None = None
    id: str | None = None
    data: bytes | None = None
    retry: str | None = None
    comment: str | None = None
    raw: bytes = b""

    @property
    def body(self) -> Any:
        """The JSON in `data`."""
        assert self.data is not None, self
        return json.loads(self.data)

    @property
    def cursor(self) -> dict[str, int]:
        """The cursor map in `id`, for sessions of so few topics that it is one (API 7.4)."""
        assert self.id is not None, self
        return decode_id(self.id)

    @property
    def is_heartbeat(self) -> bool:
        return self.comment is not None and self.event is None


def decode_id(text: str) -> dict[str, int]:
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text), text
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def encode_id(cursors: dict[str, int]) -> str:
    text = json.dumps(cursors, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


class Chunks:
    """Undoes the chunked transfer coding; `ended` after the last chunk."""

    def __init__(self) -> None:
        self._buffer = b""
        self.sizes: list[int] = []
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """The content of every chunk that is complete now."""
        assert not (self.ended and data), f"bytes after the last chunk: {data[:100]!r}"
        self._buffer += data
        content = b""
        while not self.ended:
            match = _CHUNK_HEAD.match(self._buffer)
            if match is None:
                assert len(self._buffer) < 20, f"no chunk begins with {self._buffer[:100]!r}"
                break
            size = int(match.group(1), 16)
            end = match.end() + size
            if len(self._buffer) < end + 2:
                break
            assert self._buffer[end : end + 2] == b"\r\n", "a chunk is longer than it says"
            content += self._buffer[match.end() : end]
            self._buffer = self._buffer[end + 2 :]
            self.sizes.append(size)
            self.ended = size == 0
        assert not (self.ended and self._buffer), f"after the end: {self._buffer[:100]!r}"
        return content


class Blocks:
    """Cuts the text of a stream into frames."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._raw = b""

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        self._rest += data
        position = 0
        for match in _LINE_END.finditer(self._rest):
            if match.end() == len(self._rest) and match.group() == b"\r":
                # It may be the first half of a CRLF.
                break
            line = self._rest[position : match.start()]
            self._raw += self._rest[position : match.end()]
            position = match.end()
            if line:
                self._lines.append(line)
                continue
            if self._lines:
                frames.append(parse_block(self._lines, self._raw))
            self._lines, self._raw = [], b""
        self._rest = self._rest[position:]
        return frames

    @property
    def is_between_frames(self) -> bool:
        return not (self._rest or self._lines)


def parse_block(lines: list[bytes], raw: bytes) -> Frame:
    """A frame from its lines; a field name that the standard does not know is refused."""
    fields: dict[str, str] = {}
    data: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
            continue
        key = name.decode() or "comment"
        assert key in ("event", "id", "retry", "comment"), f"unknown field in {line!r}"
        assert key not in fields, f"{key} twice in {raw!r}"
        fields[key] = value.decode()
    return Frame(**fields, data=b"\n".join(data) if data else None, raw=raw)


class EventStream:
    """One open stream. `frames` are all frames so far, `raw` the bytes they came in."""

    def __init__(self, connection: RawConnection, target: str, headers: dict[str, str]) -> None:
        self.connection = connection
        connection.send(build_request("GET", target, None, headers))
        self.status, self.headers = connection.receive_head()
        self.answer: RawResponse | None = None
        if self.status != 200:
            body = connection.receive_body(self.headers)
            self.answer = RawResponse(self.status, self.headers, body)
        self.raw = bytearray()
        self.frames: list[Frame] = []
        self.ended = False
        self._unread: list[Frame] = []
        self._chunks = Chunks()
        self._blocks = Blocks()

    def close(self) -> None:
        self.connection.close()

    @property
    def chunk_sizes(self) -> list[int]:
        return self._chunks.sizes

    @property
    def last_id(self) -> str:
        """What a browser would send as Last-Event-ID."""
        return next(frame.id for frame in reversed(self.frames) if frame.id is not None)

    @property
    def was_cut(self) -> bool:
        """The connection ended without the last chunk."""
        return self.ended and not self._chunks.ended

    def find_next(self, timeout: float) -> Frame | None:
        """The next frame of any kind, None when there is none in time or the stream is over."""
        deadline = time.monotonic() + timeout
        while not self._unread and not self.ended:
            left = deadline - time.monotonic()
            if left <= 0 or not self._fill(left):
                break
        if not self._unread:
            return None
        frame = self._unread.pop(0)
        self.frames.append(frame)
        return frame

    def _fill(self, seconds: float) -> bool:
        try:
            data = self.connection.receive_some(seconds)
        except TimeoutError:
            return False
        self._unread += self._blocks.feed(self._chunks.feed(data))
        self.raw += data
        if not data or self._chunks.ended:
            self.ended = True
            assert self.was_cut or self._blocks.is_between_frames, "ended inside a frame"
        return True

    def next(self, timeout: float = FRAME_S) -> Frame:
        """The next frame that is no heartbeat."""
        deadline = time.monotonic() + timeout
        while True:
            frame = self.find_next(max(deadline - time.monotonic(), 0))
            if frame is None:
                kind = StreamEnded if self.ended else StreamTimeout
                raise kind(f"no frame in {timeout} s after {self.frames[-3:]}")
            if not frame.is_heartbeat:
                return frame

    def until(self, event: str, topic: str = "", timeout: float = FRAME_S) -> Frame:
        """The next frame of that event (and topic), reading over all others."""
        deadline = time.monotonic() + timeout
        while True:
            frame = self.next(max(deadline - time.monotonic(), 0))
            if frame.event == event and (not topic or frame.body["topic"] == topic):
                return frame

    def records(self, topic: str, count: int, timeout: float = FRAME_S) -> list[dict[str, Any]]:
        """The next `count` records of a topic; more than that in their frames is a failure."""
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout
        while len(found) < count:
            frame = self.until("record", topic, max(deadline - time.monotonic(), 0))
            found += frame.body["records"]
        assert len(found) == count, found
        return found

    def payloads(self, topic: str, count: int, timeout: float = FRAME_S) -> list[Any]:
        return [record["data"] for record in self.records(topic, count, timeout)]

    def is_quiet(self, seconds: float = QUIET_S) -> bool:
        """True when nothing but heartbeats comes for `seconds` and the stream stays open."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            frame = self.find_next(left)
            if self.ended or (frame is not None and not frame.is_heartbeat):
                return False
        return True

    def rest(self, timeout: float = FRAME_S) -> list[Frame]:
        """Every frame until the server ends the stream, heartbeats left out."""
        deadline = time.monotonic() + timeout
        frames: list[Frame] = []
        while (frame := self.find_next(max(deadline - time.monotonic(), 0))) is not None:
            if not frame.is_heartbeat:
                frames.append(frame)
        if not self.ended:
            raise StreamTimeout(f"still open after {timeout} s and {frames[-3:]}")
        return frames


def delivered(frames: list[Frame], topic: str) -> list[Any]:
    """The payloads of a topic in these frames, in order."""
    return [
        record["data"]
        for frame in frames
        if frame.event == "record" and frame.body["topic"] == topic
        for record in frame.body["records"]
    ]


class Watching(Client):
    """Makes watch sessions on a server and opens their streams."""

    def create(self, topics: Any, **fields: Any) -> str:
        """A new session's wid; `topics` may be names, which start at the beginning."""
        if not isinstance(topics, dict):
            topics = {topic: {} for topic in topics}
        return str(good(self.api.watch(topics, **fields))["wid"])

    def open(self, wid: str, last_event_id: str | None = None, **options: Any) -> EventStream:
        """The stream of a session, which must open; `options` as in `attempt`."""
        stream = self.attempt(wid, last_event_id, **options)
        assert stream.status == 200, stream.answer
        assert stream.next().retry == "2000"
        return stream

    def attempt(
        self,
        wid: str,
        last_event_id: str | None = None,
        *,
        connection: RawConnection | None = None,
        query: str = "",
        receive_bytes: int = 0,
        headers: dict[str, str] | None = None,
    ) -> EventStream:
        """The answer to a GET of a session, stream or refusal."""
        sent = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        connection = connection or RawConnection(self.server.address, receive_bytes=receive_bytes)
        return self._stream(connection, f"/v0/watch/{wid}{query}", sent | (headers or {}))

    def work(self, topic: str, query: str = "node=w1", **headers: str) -> EventStream:
        """The answer to a GET of a queue's jobs, stream or refusal."""
        connection = RawConnection(self.server.address)
        return self._stream(connection, f"/v0/topics/{topic}/work?{query}", headers)

    def _stream(
        self, connection: RawConnection, target: str, headers: dict[str, str]
    ) -> EventStream:
        sent = {"Accept": "text/event-stream", **self.credentials}
        self.stack.callback(connection.close)
        return EventStream(connection, target, sent | headers)

    def watch(self, topics: Any, **fields: Any) -> EventStream:
        """A new session and its stream."""
        return self.open(self.create(topics, **fields))

    def live(self, topics: Any, **fields: Any) -> EventStream:
        """A new session's stream after every topic of it has said that it is caught up."""
        stream = self.watch(topics, **fields)
        for _ in topics:
            stream.until("caught-up")
        return stream

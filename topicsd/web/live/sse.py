"""Server-sent events: the frames of a watch (API 7.4, 7.5), each one HTTP chunk.

Every frame about a topic carries an `id` with the cursors of the whole session after it.
Stored records have no raw line breaks, so a record cannot break a frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from topicsd.model.errors import TopicsError
from topicsd.rules import resume
from topicsd.rules.floors import Tombstone
from topicsd.rules.resume import TOPICS_INLINE, Cursors

if TYPE_CHECKING:
    from topicsd.web.live.feed import Subscription
    from topicsd.web.live.pages import SharedPage
    from topicsd.web.live.session import Session

HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-store\r\n"
    b"connection: keep-alive\r\n"
    b"x-accel-buffering: no\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
EVENT_STREAM = "text/event-stream"
CONTENT_TYPE = f"{EVENT_STREAM}; charset=utf-8"
# What HEAD tells of a stream beyond its type.
HEADERS = (("cache-control", "no-store"), ("x-accel-buffering", "no"))
LAST_CHUNK = b"0\r\n\r\n"

_encode = msgspec.json.encode


def check_accept(accept: str | None) -> None:
    """API 7.8: the client must take an event stream; no header means that it does."""
    if accept is None:
        return
    offers = {offer.partition(";")[0].strip().lower() for offer in accept.split(",")}
    if not offers & {EVENT_STREAM, "text/*", "*/*"}:
        raise TopicsError(
            "not_acceptable", f"this is a stream: accept {EVENT_STREAM}", {"accept": EVENT_STREAM}
        )


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def retry(delay_ms: int) -> bytes:
    return chunk(b"retry: %d\n\n" % delay_ms)


def heartbeat(now_ms: int) -> bytes:
    return chunk(b": hb %d\n\n" % now_ms)


def error(code: int, message: str, **detail: Any) -> bytes:
    body = _encode({"code": code, "error": message, **detail})
    return chunk(b"event: error\ndata: %b\n\n" % body)


class SseEncoder:
    """Frames for one stream; keeps the cursors its ids are made of."""

    def __init__(self, cursors: Cursors, epochs: dict[str, int], session: Session) -> None:
        self._epochs = epochs
        self._session = session
        self._inline = len(cursors) <= TOPICS_INLINE
        # How each topic stands in ids, and how far it is.
        self._keys = {
            name: resume.id_key(name, epoch, epochs) for name, (epoch, _) in cursors.items()
        }
        self._seqs = {self._keys[name]: seq for name, (_, seq) in cursors.items()}
        self._opening = dict(self._seqs)
        # What differs from the opening map.
        self._moved: dict[str, int] = {}

    def forget(self, name: str) -> None:
        """Leave a topic out of all further ids."""
        key = self._keys.pop(name, name)
        self._seqs.pop(key, None)
        self._moved.pop(key, None)

    def record(self, sub: Subscription, shared: SharedPage, from_seq: int) -> bytes:
        key = self._move(sub.name, sub.topic.epoch, sub.cursor)
        if not (self._inline and len(self._seqs) == 1):
            return self._record(sub, shared, from_seq)
        # Streams of this topic alone have the same ids: they share the whole frame.
        alone = ("alone", key, from_seq)
        frame = shared.rendered.get(alone)
        if frame is None:
            frame = shared.rendered[alone] = self._record(sub, shared, from_seq)
        return frame

    def _record(self, sub: Subscription, shared: SharedPage, from_seq: int) -> bytes:
        def frame() -> bytes:
            return b"event: record\ndata: %b\n\n" % render_records(
                b'"topic":"%b"' % sub.name.encode(), shared, from_seq
            )

        body = shared.render(("sse", from_seq), frame)
        return chunk(b"id: %b\n%b" % (self._build_id(), body))

    def tombstone(self, sub: Subscription, tombstone: Tombstone, reason: str) -> bytes:
        content = {"topic": sub.name, **describe(tombstone, reason)}
        return self._frame(self._id_of(sub), b"tombstone", content)

    def caught_up(self, sub: Subscription, head_seq: int) -> bytes:
        content = {"topic": sub.name, "head_seq": head_seq}
        return self._frame(self._id_of(sub), b"caught-up", content)

    def deleted(self, sub: Subscription, head_seq: int) -> bytes:
        return self._deleted(sub.name, self._id_of(sub), head_seq)

    def missing(self, name: str, epoch: int, seq: int) -> bytes:
        """A topic that was deleted while nobody looked: its last known seq is the cursor."""
        return self._deleted(name, self._id(name, epoch, seq), seq)

    def _deleted(self, name: str, number: bytes, head_seq: int) -> bytes:
        content = {"topic": name, "head_seq": head_seq, "reason": "deleted"}
        frame = self._frame(number, b"topic-deleted", content)
        self.forget(name)
        return frame

    def throttled(self, topics: list[str], retry_after_ms: int) -> bytes:
        return error(
            429, "watch throttled under CPU pressure", retry_after_ms=retry_after_ms, topics=topics
        )

    def full(self, name: str, limit: int) -> bytes:
        return error(429, f"the limit max_watch_topics ({limit}) is reached", topics=[name])

    def _frame(self, number: bytes, event: bytes, content: dict[str, Any]) -> bytes:
        return chunk(b"id: %b\nevent: %b\ndata: %b\n\n" % (number, event, _encode(content)))

    def _id_of(self, sub: Subscription) -> bytes:
        return self._id(sub.name, sub.topic.epoch, sub.cursor)

    def _id(self, name: str, epoch: int, cursor: int) -> bytes:
        """Note how far a topic is; the id that says so, and how far the others are."""
        self._move(name, epoch, cursor)
        return self._build_id()

    def _move(self, name: str, epoch: int, cursor: int) -> str:
        """Note how far a topic is; returns how it stands in ids."""
        key = resume.id_key(name, epoch, self._epochs)
        if self._keys.get(name, key) != key:
            # The topic was made anew.
            self.forget(name)
        self._keys[name] = key
        self._seqs[key] = cursor
        if self._opening.get(key) != cursor:
            self._moved[key] = cursor
        return key

    def _build_id(self) -> bytes:
        if self._inline and len(self._seqs) <= TOPICS_INLINE:
            return resume.encode_id(self._seqs)
        return resume.encode_partial_id(self._session.generation, self._moved)


def describe(tombstone: Tombstone, reason: str) -> dict[str, Any]:
    """The members that a tombstone has in every frame."""
    return {
        "reason": reason,
        "gap_from": tombstone.gap_from,
        "gap_to": tombstone.gap_to,
        "earliest_seq": tombstone.earliest_seq,
        "head_seq": tombstone.head_seq,
    }


def render_records(start: bytes, shared: SharedPage, from_seq: int) -> bytes:
    """A batch as one JSON object around the stored bytes of its records."""
    page = shared.page
    return b'{%b,"records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
        start,
        bytes(page.records),
        from_seq,
        page.next_from_seq,
        page.head_seq,
    )

"""WebSocket frames that the server sends: one JSON text message each (API 7, `/v0/ws`).

What a server sends is not masked, so a message that many connections get is framed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.rules.floors import Tombstone
from topicsd.web.live.sse import describe, render_records

if TYPE_CHECKING:
    from topicsd.web.live.feed import Subscription
    from topicsd.web.live.pages import SharedPage

# FIN and the opcode of a text message (RFC 6455, 5.2).
_TEXT = 0x81
_LENGTH_IN_2 = 126
_LENGTH_IN_8 = 127
_SHORT_MAX = 125
_IN_2_MAX = 0xFFFF

_encode = msgspec.json.encode


def frame(payload: bytes) -> bytes:
    """One unmasked text message."""
    size = len(payload)
    if size <= _SHORT_MAX:
        return bytes((_TEXT, size)) + payload
    if size <= _IN_2_MAX:
        return bytes((_TEXT, _LENGTH_IN_2)) + size.to_bytes(2, "big") + payload
    return bytes((_TEXT, _LENGTH_IN_8)) + size.to_bytes(8, "big") + payload


def message(op: str, request_id: bytes, **content: Any) -> bytes:
    """A server message; `request_id` is JSON text, empty when the client gave none."""
    return answer(op, request_id, _encode(content)[1:-1])


def answer(op: str, request_id: bytes, members: bytes) -> bytes:
    """A server message around members that are JSON text already."""
    echo = b',"request_id":%b' % request_id if request_id else b""
    rest = b",%b" % members if members else b""
    return frame(b'{"op":"%b"%b%b}' % (op.encode(), echo, rest))


def error(refused: TopicsError, request_id: bytes = b"") -> bytes:
    """A refusal; the socket stays open."""
    content: dict[str, Any] = {"code": refused.code, "message": refused.message}
    if refused.detail is not None:
        content["detail"] = refused.detail
    if refused.retry_after_ms is not None:
        content["retry_after_ms"] = refused.retry_after_ms
    return message("error", request_id, **content)


class WsEncoder:
    """Frames about topics; connections at the same position share them."""

    def record(self, sub: Subscription, shared: SharedPage, from_seq: int) -> bytes:
        def build() -> bytes:
            start = b'"op":"record","topic":"%b"' % sub.name.encode()
            return frame(render_records(start, shared, from_seq))

        return shared.render(("ws", from_seq), build)

    def tombstone(self, sub: Subscription, tombstone: Tombstone, reason: str) -> bytes:
        return message("tombstone", b"", topic=sub.name, **describe(tombstone, reason))

    def caught_up(self, sub: Subscription, head_seq: int) -> bytes:
        return message("caught_up", b"", topic=sub.name, head_seq=head_seq)

    def deleted(self, sub: Subscription, head_seq: int) -> bytes:
        return message("topic_deleted", b"", topic=sub.name, head_seq=head_seq, reason="deleted")

    def throttled(self, topics: list[str], retry_after_ms: int) -> bytes:
        return error(
            TopicsError(
                "throttled",
                "delivery is slowed down under CPU pressure",
                {"topics": topics, "retry_after_ms": retry_after_ms},
                retry_after_ms,
            )
        )

    def full(self, name: str, limit: int) -> bytes:
        refused = errors.throttled("max_watch_topics", limit)
        refused.detail = {**(refused.detail or {}), "topic": name}
        return error(refused)

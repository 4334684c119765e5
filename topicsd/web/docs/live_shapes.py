"""Replies of the connections that stay open, as types for the document."""

from __future__ import annotations

import msgspec

from topicsd.web.docs.shapes import Performance


class WatchedTopic(msgspec.Struct):
    """Where a topic of a watch starts, and what it holds."""

    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchReply(msgspec.Struct):
    """A new session."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]
    performance: Performance

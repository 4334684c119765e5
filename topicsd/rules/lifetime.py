"""When a stream's life is over (streams spec 1.13): a pure decision, evaluated on access."""

from __future__ import annotations

from topicsd.model.stream import StreamConfig


def expires_at(stream: StreamConfig, accessed_ms: int) -> int | None:
    """When a stream last used at `accessed_ms` ends if nobody uses it again; None for never."""
    if stream.expires_ms is not None:
        return stream.expires_ms
    if stream.ttl_ms is not None:
        return accessed_ms + stream.ttl_ms
    return None


def is_expired(stream: StreamConfig, accessed_ms: int, now_ms: int) -> bool:
    end_ms = expires_at(stream, accessed_ms)
    return end_ms is not None and now_ms >= end_ms

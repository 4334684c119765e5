"""`GET /v1/streams`: streams by name, page by page (seed 000, 4.2)."""

from __future__ import annotations

from typing import Any, Final

from topicsd.model.offset import BASE32, build_offset
from topicsd.reader import StreamStatus, StreamView, TopicView
from topicsd.rules.lifetime import expires_at, is_expired
from topicsd.web.context import Context
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.v1.texts import build_time

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
PROFILE: Final = "generic"


async def list_streams(request: Request, context: Context) -> Reply:
    """One page of descriptors; `after` is the last name of the page before."""
    context.check_readable()
    limit = request.query_size("limit", LIMIT_DEFAULT, LIMIT_MAX)
    allow = () if request.key is None else request.key.prefixes
    prefix, after = request.query.get("prefix", ""), request.query.get("after", "")
    found = context.reader.list_streams(prefix, after, limit, allow)
    now_ms = context.clock.now_ms()
    page = [
        _describe(context, topic, status)
        for topic, status in found
        if not (status.gone or is_expired(_stream(topic), status.accessed_ms, now_ms))
    ]
    headers: tuple[tuple[str, str], ...] = (("cache-control", "no-store"),)
    if len(found) == limit:
        headers += (("stream-list-after", found[-1][0].name),)
    return Reply(200, encode(page), headers)


def _stream(topic: TopicView) -> Any:
    return topic.config.stream


def _describe(context: Context, topic: TopicView, status: StreamStatus) -> dict[str, Any]:
    view = StreamView(context.reader, topic)
    end_ms = expires_at(view.config, status.accessed_ms)
    spelling = context.settings.stream_offsets
    spelling = BASE32 if spelling == "auto" else spelling
    return {
        "name": topic.name,
        "content_type": view.config.content_type,
        "profile": PROFILE,
        "created_at": build_time(topic.created_ts),
        "expires_at": None if end_ms is None else build_time(end_ms),
        "epoch": topic.epoch,
        "next_offset": build_offset(view.position(status.head_seq), spelling),
        "entries": status.records,
        "total_size_bytes": str(status.payload_bytes),
        "closed": status.closed,
        "forked_from": None if view.config.fork is None else view.config.fork.source,
    }

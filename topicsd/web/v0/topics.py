"""Topics as a resource: configure, look at, list, delete (API 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from topicsd.model import errors, names
from topicsd.model.commands import DeleteTopic, PutTopic, TopicDeleted, TopicPut
from topicsd.model.jobs import QueueCounts, QueueState
from topicsd.model.topic import TopicConfig, parse
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.find import get_topic_view
from topicsd.web.paging import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, decode_cursor, encode_cursor
from topicsd.web.reply import Reply, json_reply
from topicsd.web.request import Request

if TYPE_CHECKING:
    from topicsd.reader import TopicState, TopicView

_VALUE: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


async def put_topic(request: Request, context: Context) -> Reply:
    """Create the topic, or replace its configuration (spec 2.1)."""
    config, type_given = parse_config(request.body or b"{}", request, request.name)
    context.check_writable()
    reply = await context.port.submit(PutTopic(request.name, config, type_given))
    assert isinstance(reply, TopicPut)
    content = {
        "topic": request.name,
        "created": reply.created,
        "config": msgspec.to_builtins(reply.config),
    }
    return json_reply(201 if reply.created else 200, content, context.elapsed_us(request))


def parse_config(
    content: bytes | msgspec.Raw, request: Request, topic: str
) -> tuple[TopicConfig, bool]:
    """Read a configuration object for `topic`; also tell whether it names the type.

    Members we do not know are never decoded.
    """
    fields = body.decode_fields(content)
    known = {
        name: _decode_value(fields[name], name)
        for name in TopicConfig.__struct_fields__
        if name in fields
    }
    config = parse(known, topic)
    auth.require_name(request.key, config.dead_letter)
    return config, "type" in known


def _decode_value(raw: msgspec.Raw, field: str) -> Any:
    try:
        return _VALUE.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        # Well-formed, but no value of any field: a number out of range, say.
        raise errors.invalid_request(f"{field} has an unusable value", field=field) from None


async def get_topic(request: Request, context: Context) -> Reply:
    """Watermarks, size and configuration of one topic (API 1.2)."""
    touch = request.query_bool("touch", True)
    topic = await get_topic_view(context, request.name)
    if touch:
        context.reader.touch(topic)
    state = context.reader.state(topic)
    if state is None:
        raise errors.topic_not_found(request.name)
    content = _describe(topic, state)
    if topic.config.type == "queue":
        content["queue"] = await _count_jobs(context, request.name)
    return json_reply(200, content, context.elapsed_us(request))


async def _count_jobs(context: Context, name: str) -> dict[str, int]:
    """The counters of a queue (API 10.7): only the engine knows what is leased."""
    counts = await context.port.submit(QueueState(name))
    assert isinstance(counts, QueueCounts)
    return {
        "ready": counts.ready,
        "in_flight": counts.in_flight,
        "dead_lettered": counts.dead_lettered,
    }


def _describe(topic: TopicView, state: TopicState) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "next_seq": state.next_seq,
        "count": state.count,
        "bytes": state.bytes,
        "config": msgspec.to_builtins(topic.config),
        "effective_priority": state.effective_priority,
        "last_write_ts": state.last_write_ts,
        "last_read_ts": state.last_read_ts,
    }


async def delete_topic(request: Request, context: Context) -> Reply:
    """Remove the topic and everything that belongs to it; absent is fine (API 1.4)."""
    if_empty = request.query_bool("if_empty", False)
    context.check_writable()
    reply = await context.port.submit(DeleteTopic(request.name, if_empty))
    assert isinstance(reply, TopicDeleted)
    content = {
        "topic": request.name,
        "deleted": reply.deleted,
        "routers_removed": reply.routers_removed,
    }
    return json_reply(200, content, context.elapsed_us(request))


async def list_topics(request: Request, context: Context) -> Reply:
    """One page of topics in byte order, only those the key may see (API 1.3)."""
    size = request.query_size("page_size", PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    after = decode_cursor(request.query.get("cursor"), names.is_topic_name)
    touch = request.query_bool("touch", False)
    prefix = request.query.get("prefix", "")
    context.check_readable()
    allow = request.key.prefixes if request.key is not None else ()
    # One more than asked for tells whether there is a next page.
    found = context.reader.list_topics(prefix, after, size + 1, allow)
    page = found[:size]
    if touch:
        _touch_all(context, [summary.topic for summary in page])
    content: dict[str, Any] = {
        "topics": [
            {
                "topic": summary.topic,
                "head_seq": summary.head_seq,
                "earliest_seq": summary.earliest_seq,
                "count": summary.count,
                "bytes": summary.bytes,
                "durable": summary.durable,
                "effective_priority": summary.effective_priority,
            }
            for summary in page
        ]
    }
    if len(found) > size:
        content["next_cursor"] = encode_cursor(page[-1].topic)
    return json_reply(200, content, context.elapsed_us(request))


def _touch_all(context: Context, topics: list[str]) -> None:
    for name in topics:
        topic = context.reader.find_topic(name)
        if topic is not None:
            context.reader.touch(topic)

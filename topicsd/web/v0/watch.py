"""`POST /v0/watch` and `GET /v0/watch/:wid`: many topics over one event stream (API 7).

Beyond the contract: `prefixes` follows existing and future topics, `match` in a topic's
options delivers only records whose tag matches.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import TYPE_CHECKING

import msgspec

from topicsd.model import errors
from topicsd.model.commands import AttachWatch, CreateWatch, DetachWatch, Reply, WatchAttached
from topicsd.model.errors import TopicsError
from topicsd.model.watch import (
    HEARTBEAT_MS_MIN,
    Spec,
    TopicOptions,
    WatchBody,
    build_spec,
    check_options,
)
from topicsd.rules.resume import BadId, Cursors, EventId, decode_id, resolve
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.find import get_topic_view
from topicsd.web.live import sse
from topicsd.web.live.prefixes import list_names
from topicsd.web.live.session import Session
from topicsd.web.live.stream import SseStream, decode_spec, encode_spec
from topicsd.web.live.tunnel import Opening
from topicsd.web.reply import Reply as HttpReply
from topicsd.web.reply import json_reply
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle

if TYPE_CHECKING:
    from topicsd.reader import TopicView

WID_BYTES = 16
_WID = re.compile(r"wid_[A-Za-z0-9_-]{22}\Z")
_DECODER = msgspec.json.Decoder(WatchBody)


async def post_watch(request: Request, context: Context) -> HttpReply:
    """Create a session; nothing is streamed yet, so every mistake can still be answered."""
    lenient = request.query_bool("lenient", False)
    body.check_utf8(request.body)
    asked = body.decode_json(_DECODER, request.body or b"{}")
    spec = check_watch(asked, request, context)
    if context.throttle.pressed:
        await pass_throttle(request, context, list(asked.topics))
    found = await find_starts(asked, spec, context, lenient=lenient)
    cursors = {name: (topic.epoch, told["from_seq"]) for name, (topic, told) in found.items()}
    epochs = {name: topic.epoch for name, (topic, _) in found.items()}
    spec = msgspec.structs.replace(spec, epochs=epochs)
    wid = f"wid_{secrets.token_urlsafe(WID_BYTES)}"
    key = "" if request.key is None else request.key.id
    context.check_writable()
    await context.port.submit(CreateWatch(wid, key, encode_spec(spec), cursors))
    content = {
        "wid": wid,
        "stream_url": f"/v0/watch/{wid}",
        "session_ttl_ms": context.settings.watch_session_ttl_ms,
        "topics": {name: told for name, (_, told) in found.items()},
    }
    return json_reply(200, content, context.elapsed_us(request))


def check_watch(asked: WatchBody, request: Request, context: Context) -> Spec:
    """Everything that can be said of a subscription without looking at topics."""
    settings = context.settings
    if not asked.topics and not asked.prefixes:
        raise errors.invalid_request("topics must name at least one topic", field="topics")
    if len(asked.topics) > settings.max_watch_topics:
        raise errors.invalid_request(
            f"a watch takes at most {settings.max_watch_topics} topics, not {len(asked.topics)}",
            field="topics",
            max=settings.max_watch_topics,
        )
    for name, options in asked.topics.items():
        check_options(name, options)
    spec = build_spec(
        asked,
        limit_max=settings.max_limit,
        heartbeat_ms_min=settings.test_min_heartbeat_ms or HEARTBEAT_MS_MIN,
    )
    for name in (*asked.topics, *spec.prefixes):
        auth.require_name(request.key, name)
    return spec


async def find_starts(
    asked: WatchBody, spec: Spec, context: Context, *, lenient: bool
) -> dict[str, tuple[TopicView, dict[str, int]]]:
    """Every topic to begin with, where it starts, and its floor and head (API 7.2)."""
    wanted = dict(asked.topics)
    limit = context.settings.max_watch_topics
    for prefix, start in spec.prefixes.items():
        context.check_readable()
        for name in list_names(context, (prefix,), limit + 1):
            wanted.setdefault(name, TopicOptions(start.from_seq, start.tail))
    if len(wanted) > limit:
        raise errors.invalid_request(
            f"the prefixes match more than {limit} topics", field="prefixes", max=limit
        )
    found = {}
    for name, options in wanted.items():
        try:
            topic = await get_topic_view(context, name)
        except TopicsError as error:
            if error.code != "topic_not_found" or not (lenient or name not in asked.topics):
                raise
            continue
        told = start_of(context, topic, options)
        if told is not None:
            found[name] = (topic, told)
        elif not lenient:
            raise errors.topic_not_found(name)
    return found


def start_of(context: Context, topic: TopicView, options: TopicOptions) -> dict[str, int] | None:
    """A topic's line in the answer; None when it was deleted meanwhile."""
    state = context.reader.state(topic)
    if state is None:
        return None
    return {
        "from_seq": state.head_seq if options.tail else options.from_seq,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
    }


async def get_watch(request: Request, context: Context) -> HttpReply | Opening:
    """Open the stream of a session; whoever had it open before loses it."""
    wid = request.params["wid"]
    if _WID.match(wid) is None:
        raise errors.invalid_request("this is not the wid of a watch", field="wid")
    sse.check_accept(request.header("accept"))
    claimed = _claimed(request.header("last-event-id"))
    if request.method == "HEAD":
        return HttpReply(200, b"", sse.HEADERS, sse.CONTENT_TYPE)
    context.check_readable()
    context.gate.open_stream(request.key)
    try:
        stream = await _attach(wid, request, context, claimed)
    except BaseException:
        context.gate.close_stream(request.key)
        raise
    stream.closed.add_done_callback(lambda done: context.gate.close_stream(request.key))
    return Opening(stream)


async def _attach(
    wid: str, request: Request, context: Context, claimed: EventId | None
) -> SseStream:
    key = "" if request.key is None else request.key.id
    port = context.port
    asked = port.submit(AttachWatch(wid, key, port.worker, None))
    try:
        # Shielded: an answer that comes after the client has gone must still be undone.
        attached = await asyncio.shield(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(lambda done: _let_go(context, wid, done))
        raise
    except TopicsError as error:
        if error.code == "not_found":
            raise errors.not_found(request.path[:300]) from None
        raise
    assert isinstance(attached, WatchAttached)
    spec = decode_spec(attached.spec)
    cursors = resolve(
        attached.cursors,
        attached.openings,
        claimed,
        clean=attached.clean,
        epochs=spec.epochs,
        is_followed=spec.follows,
    )
    session = Session(context.sessions, wid, key, attached.generation)
    return SseStream(context, session, spec, cursors, request.key)


def _let_go(context: Context, wid: str, done: asyncio.Future[Reply]) -> None:
    """Give a session back that was attached for a client who has left."""
    if done.cancelled() or done.exception() is not None:
        return
    attached = done.result()
    assert isinstance(attached, WatchAttached)
    cursors: Cursors = attached.cursors
    detach = DetachWatch(wid, attached.generation, cursors)
    context.port.submit(detach).add_done_callback(lambda late: late.exception())


def _claimed(text: str | None) -> EventId | None:
    if not text:
        return None
    try:
        return decode_id(text)
    except BadId as problem:
        raise errors.invalid_request(
            f"Last-Event-ID is not an id of a stream: {problem}", field="last-event-id"
        ) from None

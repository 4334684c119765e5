"""PUT of a stream: create it, fork it, or find that it is there (streams spec 1.3, 1.15)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.offset import Position, build_offset, parse_offset
from topicsd.model.record import pack_record
from topicsd.model.stream import DEFAULT_TYPE, ForkRequest, PutStream, StreamPut, StreamWrite
from topicsd.reader import StreamStatus, StreamView
from topicsd.web.context import Context
from topicsd.web.find import find_view
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.v1.door import CLOSED, V1_MOUNT, check_alive, public_url, refusing, spelling_of
from topicsd.web.v1.entries import build_write
from topicsd.web.v1.texts import parse_count, parse_duration_ms, parse_time_ms, parse_ttl_ms
from topicsd.web.v1.writes import APPEND_TIMEOUT_S, key_of, stamp_of, submit_within, wants_closed

CONTENT_TYPE_BYTES_MAX: Final = 255
_CONTENT_TYPE = re.compile(r"[\w.+!#$&^-]+/[\w.+!#$&^*-]+(\s*;[\x20-\x7e]*)?", re.ASCII)
_READ_ENTRIES: Final = 4096


@refusing
async def put_stream(request: Request, context: Context) -> Reply:
    """201 for a new stream, 200 for the same one, 409 for another one of that name."""
    ttl_ms, expires_ms = _parse_lifetime(request)
    age, kept = request.header("stream-retention-age"), request.header("stream-retention-bytes")
    content_type = _parse_type(request.header("content-type"))
    fork, fork_type = await _parse_fork(request, context)
    body_type = content_type or fork_type or DEFAULT_TYPE
    write = build_write(
        request.body, body_type, key_of(request, context), stamp_of(request), creating=True
    )
    command = PutStream(
        topic=request.name,
        content_type=content_type,
        ttl_ms=ttl_ms,
        expires_ms=expires_ms,
        closed=wants_closed(request),
        retention_ms=0 if age is None else parse_duration_ms(age, "Stream-Retention-Age"),
        retention_bytes=0 if kept is None else parse_count(kept, "Stream-Retention-Bytes"),
        fork=fork,
        write=write,
    )
    reply = await submit_within(context, command, APPEND_TIMEOUT_S)
    assert isinstance(reply, StreamPut)
    offset = _build_tail(request, context, reply)
    headers = [("stream-next-offset", offset)]
    if reply.closed:
        headers.append(CLOSED)
    if reply.created:
        headers.append(("location", public_url(request, context) + request.path))
    return Reply(201 if reply.created else 200, b"", tuple(headers), reply.content_type)


def _build_tail(request: Request, context: Context, reply: StreamPut) -> str:
    """Where the stream ends; right after a fork that is a position of its source."""
    topic = context.reader.find_log(request.name)
    position = Position(reply.epoch, reply.entries)
    if topic is not None and topic.epoch == reply.epoch:
        position = StreamView(context.reader, topic).position(reply.entries)
    return build_offset(position, spelling_of(request, context))


def _parse_lifetime(request: Request) -> tuple[int | None, int | None]:
    ttl, expires = request.header("stream-ttl"), request.header("stream-expires-at")
    if ttl is not None and expires is not None:
        raise errors.invalid_request("Stream-TTL and Stream-Expires-At exclude each other")
    ttl_ms = None if ttl is None else parse_ttl_ms(ttl)
    return ttl_ms, None if expires is None else parse_time_ms(expires, "Stream-Expires-At")


def _parse_type(header: str | None) -> str | None:
    """The content type as it was given; one that is no content type is the default."""
    if not header:
        return None
    if len(header) > CONTENT_TYPE_BYTES_MAX or _CONTENT_TYPE.fullmatch(header) is None:
        return DEFAULT_TYPE
    return header


async def _parse_fork(request: Request, context: Context) -> tuple[ForkRequest | None, str | None]:
    """What to fork and where, and the source's content type."""
    path, sub_text = request.header("stream-forked-from"), request.header("stream-fork-sub-offset")
    offset = request.header("stream-fork-offset")
    if path is None:
        if sub_text is not None or offset is not None:
            raise errors.invalid_request("Stream-Forked-From is missing")
        return None, None
    sub = 0 if sub_text is None else parse_count(sub_text, "Stream-Fork-Sub-Offset")
    if sub and offset is None:
        raise errors.invalid_request("Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
    name = parse_source(path)
    if request.key is not None and not request.key.allows(name):
        raise errors.forbidden(f'this key may not touch "{name[:300]}"', name=name[:300])
    topic = await find_view(context, name)
    status = None if topic is None else context.reader.stream_status(topic)
    if topic is None or status is None or topic.config.type == "queue":
        raise errors.stream_not_found(name)
    view = StreamView(context.reader, topic)
    if not status.gone:
        check_alive(view, status, context)
    anchor = status.head_seq if offset is None else _resolve(view, offset, status)
    seq, part = _step(view, anchor, sub, status)
    asked = ForkRequest(name, topic.log_id, seq, None if offset is None else anchor, sub, part)
    return asked, view.config.content_type


def parse_source(path: str) -> str:
    """The name of the stream at a path of either mount."""
    found = urlsplit(path).path
    found = found.removeprefix(V1_MOUNT) if found.startswith(V1_MOUNT) else found.lstrip("/")
    return "/".join(unquote(segment) for segment in found.split("/"))


def _resolve(view: StreamView, offset: str, status: StreamStatus) -> int:
    """The anchor of a fork; whatever is wrong with it is the request's fault."""
    try:
        return view.resolve(parse_offset(offset, "Stream-Fork-Offset"), status.head_seq)
    except TopicsError as error:
        raise errors.invalid_request(error.message, field="Stream-Fork-Offset") from None


def _step(
    view: StreamView, anchor: int, sub: int, status: StreamStatus
) -> tuple[int, StreamWrite | None]:
    """Go `sub` messages or bytes beyond the anchor; a piece of an entry is copied."""
    if view.config.is_json or not sub:
        if anchor + sub > status.head_seq:
            raise _overshoot()
        return anchor + sub, None
    seq = anchor
    while True:
        page = view.read(seq, sub, _READ_ENTRIES)
        if not page.parts:
            raise _overshoot()
        for part in page.parts:
            if sub < len(part):
                form, row = pack_record(part[:sub], None, None, None)
                return seq, StreamWrite(1, form, row, sub)
            seq, sub = seq + 1, sub - len(part)
            if not sub:
                return seq, None


def _overshoot() -> TopicsError:
    return errors.invalid_request(
        "Stream-Fork-Sub-Offset is past what follows the offset", field="Stream-Fork-Sub-Offset"
    )

"""POST and DELETE of a stream: append, close, remove (streams spec 1.4 to 1.7)."""

from __future__ import annotations

import asyncio
from typing import Final

from topicsd.model import errors
from topicsd.model.commands import Command
from topicsd.model.commands import Reply as EngineReply
from topicsd.model.offset import NOW, START, Position, build_offset, parse_offset
from topicsd.model.stream import (
    AppendStream,
    DeleteStream,
    Producer,
    StreamAppended,
)
from topicsd.web.context import Context
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle
from topicsd.web.v1.door import CLOSED, get_named, refusing, spelling_of
from topicsd.web.v1.entries import build_write
from topicsd.web.v1.texts import parse_number, parse_stamp_ms

APPEND_TIMEOUT_S: Final = 3.0
STREAM_SEQ_BYTES_MAX: Final = 1024
PRODUCER_ID_BYTES_MAX: Final = 1024


@refusing
async def post_stream(request: Request, context: Context) -> Reply:
    """Append what the body holds, close if asked to; all or nothing."""
    producer = _parse_producer(request)
    if context.throttle.pressed:
        await pass_throttle(request, context, [request.name])
    content_type = request.header("content-type") or ""
    write = build_write(request.body, content_type, key_of(request, context), stamp_of(request))
    command = AppendStream(
        topic=request.name,
        content_type=content_type,
        write=write,
        producer=producer,
        seq=text_of(request, "stream-seq", STREAM_SEQ_BYTES_MAX),
        close=wants_closed(request),
        if_match=await _parse_if_match(request, context),
    )
    reply = await submit_within(context, command, APPEND_TIMEOUT_S)
    assert isinstance(reply, StreamAppended)
    offset = build_offset(Position(reply.epoch, reply.entries), spelling_of(request, context))
    headers = [("stream-next-offset", offset)]
    if reply.producer is not None:
        headers.append(("producer-epoch", str(reply.producer[0])))
        headers.append(("producer-seq", str(reply.producer[1])))
    if reply.closed:
        headers.append(CLOSED)
    fresh = producer is not None and not reply.duplicate and bool(write.count)
    return Reply(200 if fresh else 204, b"", tuple(headers))


@refusing
async def delete_stream(request: Request, context: Context) -> Reply:
    """Remove a stream; one that forks read is kept for them and looks removed."""
    context.check_writable()
    await context.port.submit(DeleteStream(request.name))
    return Reply(204, b"")


async def submit_within(context: Context, command: Command, timeout_s: float) -> EngineReply:
    """Ask the engine and wait for so long; what is late may still happen (seed 000, 7.5)."""
    context.check_writable()
    future = context.port.submit(command)
    timer = asyncio.get_running_loop().call_later(timeout_s, _give_up, future)
    try:
        return await future
    finally:
        timer.cancel()


def _give_up(future: asyncio.Future[EngineReply]) -> None:
    if not future.done():
        future.set_exception(errors.append_timeout())


def wants_closed(request: Request) -> bool:
    return (request.header("stream-closed") or "").lower() == "true"


def stamp_of(request: Request) -> int | None:
    """The client's hint of when its entries were written."""
    text = request.header("stream-timestamp")
    return None if text is None else parse_stamp_ms(text, "Stream-Timestamp")


def key_of(request: Request, context: Context) -> str | None:
    """The routing key of all entries of a request."""
    return text_of(request, "stream-key", context.settings.max_tag_bytes)


def text_of(request: Request, name: str, max_bytes: int) -> str | None:
    """A header as text, within a limit; an empty one is an error."""
    value = request.header(name)
    if value is None:
        return None
    label = name.title()
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise errors.invalid_request(f"{label} is not valid UTF-8", field=label) from None
    if not 1 <= size <= max_bytes:
        raise errors.invalid_request(f"{label} must have 1 to {max_bytes} bytes", field=label)
    return value


def _parse_producer(request: Request) -> Producer | None:
    epoch, seq = request.header("producer-epoch"), request.header("producer-seq")
    found = (request.header("producer-id"), epoch, seq)
    if found == (None, None, None):
        return None
    if epoch is None or seq is None or found[0] is None:
        raise errors.invalid_request("Producer-Id, Producer-Epoch and Producer-Seq go together")
    producer_id = text_of(request, "producer-id", PRODUCER_ID_BYTES_MAX)
    assert producer_id is not None
    return Producer(
        producer_id, parse_number(epoch, "Producer-Epoch"), parse_number(seq, "Producer-Seq")
    )


async def _parse_if_match(request: Request, context: Context) -> tuple[int, int] | None:
    """The tail that a client believes in; an offset of the present life of the stream."""
    text = request.header("if-match")
    if text is None or text == "*":
        return None
    position = parse_offset(text.strip('"'), "If-Match")
    if position == NOW:
        raise errors.invalid_request("If-Match takes an offset, not a word", field="If-Match")
    view, status = await get_named(request.name, context)
    if position == START or position == view.position(min(position.entries, status.head_seq)):
        return view.topic.epoch, position.entries
    return position.epoch, position.entries

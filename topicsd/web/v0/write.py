"""`POST /v0/write`: append to several topics, all or nothing; beyond the contract.

Each part is what `POST /v0/topics/:topic` takes, plus the name of its topic. A dedupe key is a
part's own: the `Idempotency-Key` header, which could only mean one of them, is not looked at.
"""

from __future__ import annotations

import msgspec

from topicsd.model import errors, names
from topicsd.model.commands import Append, WriteMany, Written
from topicsd.model.errors import TopicsError
from topicsd.model.settings import Settings
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle
from topicsd.web.v0 import records


class WriteBody(records.AppendBody, kw_only=True):
    """One part: an append with the name of its topic."""

    topic: str


class WriteManyBody(msgspec.Struct):
    """The request; at least one part."""

    writes: list[WriteBody]
    disable_backpressure: bool = False


_DECODER = msgspec.json.Decoder(WriteManyBody)


async def post_write(request: Request, context: Context) -> Reply:
    """Append every part or none; answers one object a part, in order."""
    with_seqs = request.query_bool("return_seqs", True)
    asked, masked = body.decode_masked(_DECODER, request.body)
    _check_parts(asked.writes, request, context.settings)
    if context.throttle.pressed:
        patient = asked.disable_backpressure or all(
            part.disable_backpressure for part in asked.writes
        )
        await pass_throttle(
            request, context, [part.topic for part in asked.writes], patient=patient
        )
    traits = records.traits_of(request.body)
    writes = [
        _build(index, records.Envelope(part, masked, *traits), request, context.settings)
        for index, part in enumerate(asked.writes)
    ]
    context.check_writable()
    reply = await context.port.submit(WriteMany(writes))
    assert isinstance(reply, Written)
    parts = [
        b"{%b}" % records.render_part(write.topic, part, write.count, with_seqs)
        for write, part in zip(writes, reply.parts, strict=True)
    ]
    times = records.render_times(reply, request, context)
    status = 201 if any(part.created for part in reply.parts) else 200
    return Reply(status, b'{"writes":[%b],%b}' % (b",".join(parts), times))


def _check_parts(parts: list[WriteBody], request: Request, settings: Settings) -> None:
    """Names first: who may not touch one of them learns nothing about the rest."""
    for part in parts:
        auth.require_name(request.key, part.topic)
    if not parts:
        raise errors.invalid_request("writes must not be empty", field="writes")
    seen: set[str] = set()
    for index, part in enumerate(parts):
        field = f"writes[{index}].topic"
        if not names.is_topic_name(part.topic):
            raise errors.invalid_request(f"{field} is not a topic name", field=field)
        if part.topic in seen:
            raise errors.invalid_request(
                f'topic "{part.topic}" is named twice', field=field, topic=part.topic
            )
        seen.add(part.topic)
    count = sum(len(part.records) for part in parts)
    if count > settings.max_batch_records:
        raise errors.batch_too_large(count, settings.max_batch_records)


def _build(index: int, envelope: records.Envelope, request: Request, settings: Settings) -> Append:
    """One part as a command; a refusal says which part it is about."""
    part = envelope.asked
    assert isinstance(part, WriteBody)
    try:
        config = records.inline_config(part, request, part.topic)
        key = records.body_key(envelope)
        return records.build_append(part.topic, envelope, settings, config, key)
    except TopicsError as error:
        detail = dict(error.detail or {}, write=index, topic=part.topic)
        if "field" in detail:
            detail["field"] = f"writes[{index}].{detail['field']}"
        message = f"writes[{index}]: {error.message}"
        raise TopicsError(error.code, message, detail, error.retry_after_ms) from None

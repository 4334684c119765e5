"""`POST /v0/topics/:topic/delete`: remove records by seq and/or by tag (API 5)."""

from __future__ import annotations

from typing import Any

import msgspec

from topicsd.model import errors
from topicsd.model.commands import DeleteRecords, RecordsDeleted
from topicsd.model.match import parse_match
from topicsd.model.topic import U64_MAX
from topicsd.web import body
from topicsd.web.context import Context
from topicsd.web.reply import Reply, json_reply
from topicsd.web.request import Request


class DeleteBody(msgspec.Struct):
    """The request; at least one of the two is needed."""

    before_seq: int | msgspec.UnsetType = msgspec.UNSET
    match: Any = msgspec.UNSET


_DECODER = msgspec.json.Decoder(DeleteBody)


async def post_delete(request: Request, context: Context) -> Reply:
    """Delete what matches now; answers how many, and the topic's state after it."""
    asked = body.decode_text(_DECODER, request.body, ("match",))
    before_seq = None if asked.before_seq is msgspec.UNSET else asked.before_seq
    if before_seq is None and asked.match is msgspec.UNSET:
        raise errors.invalid_request("a delete needs before_seq, match or both")
    if before_seq is not None and not 0 <= before_seq <= U64_MAX:
        raise errors.invalid_request(
            "before_seq must be an unsigned 64-bit integer", field="before_seq"
        )
    match = None if asked.match is msgspec.UNSET else parse_match(asked.match)
    context.check_writable()
    reply = await context.port.submit(DeleteRecords(request.name, before_seq, match))
    assert isinstance(reply, RecordsDeleted)
    content = {
        "topic": request.name,
        "deleted": reply.deleted,
        "earliest_seq": reply.earliest_seq,
        "head_seq": reply.head_seq,
        "count": reply.count,
        "bytes": reply.bytes,
    }
    return json_reply(200, content, context.elapsed_us(request))

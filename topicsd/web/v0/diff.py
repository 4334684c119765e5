"""`POST /v0/topics/:topic/diff`: the records after a cursor (API 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.model import errors
from topicsd.model.topic import U64_MAX
from topicsd.reader import DiffQuery
from topicsd.web import body
from topicsd.web.context import Context
from topicsd.web.follow import follow
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.v0.find import get_topic_view

if TYPE_CHECKING:
    from topicsd.reader import DiffPage

LIMIT_DEFAULT = 256
WAIT_MS_MAX = 30_000

_BOOLEANS = (b"false", b"true")


class DiffBody(msgspec.Struct):
    """The request; every field is optional."""

    from_seq: int = 0
    limit: int = 0
    node: str | list[str] = msgspec.field(default_factory=list)
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: int = 0


_DECODER = msgspec.json.Decoder(DiffBody)


async def post_diff(request: Request, context: Context) -> Reply:
    """Read a page, waiting up to `wait_ms` for one that has something to say."""
    asked = _decode(request.body)
    topic = await get_topic_view(context, request.name)
    context.reader.touch(topic)
    page, scanned = await follow(
        context, topic, _query(asked, context), min(asked.wait_ms, WAIT_MS_MAX)
    )
    return Reply(200, _render(request.name, page, scanned, context.elapsed_us(request)))


def _decode(content: bytes) -> DiffBody:
    if not content:
        return DiffBody()
    body.check_utf8(content)
    asked = body.decode_json(_DECODER, content)
    for field in ("from_seq", "limit", "wait_ms"):
        if getattr(asked, field) < 0:
            raise errors.invalid_request(f"{field} must not be negative", field=field)
    if asked.from_seq > U64_MAX:
        raise errors.invalid_request("from_seq must fit 64 bits", field="from_seq")
    return asked


def _query(asked: DiffBody, context: Context) -> DiffQuery:
    settings = context.settings
    nodes = (asked.node,) if isinstance(asked.node, str) else tuple(asked.node)
    return DiffQuery(
        from_seq=asked.from_seq,
        limit=min(asked.limit or LIMIT_DEFAULT, settings.max_limit),
        nodes=nodes,
        include_tags=asked.include_tags,
        include_meta=asked.include_meta,
        max_bytes=settings.max_response_bytes,
    )


def _render(name: str, page: DiffPage, scanned: int, elapsed_us: int) -> bytes:
    """The response around the stored bytes of the records, which are copied once."""
    caught_up = page.next_from_seq == page.head_seq
    tombstone = b"null" if page.tombstone is None else encode(page.tombstone._asdict())
    after = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,'
        b'"caught_up":%b,"tombstone":%b,"lag":%d,'
        b'"performance":{"server_total_ms":%.3f,"records_scanned":%d}}'
    ) % (
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        _BOOLEANS[caught_up],
        tombstone,
        max(page.head_seq - page.next_from_seq, 0),
        elapsed_us / 1000,
        scanned,
    )
    return b"".join((b'{"topic":"%b","records":[' % name.encode(), page.records, after))

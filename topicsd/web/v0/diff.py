"""`POST /v0/topics/:topic/diff`: the records after a cursor (API 3).

Beyond the contract: `match` delivers only records whose tag matches (the language of deletes,
API 5), and GET asks the same with query parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from topicsd.model import errors
from topicsd.model.match import parse_match
from topicsd.model.topic import U64_MAX
from topicsd.reader import DiffQuery
from topicsd.web import body
from topicsd.web.context import Context
from topicsd.web.find import get_topic_view
from topicsd.web.follow import follow
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle

if TYPE_CHECKING:
    from topicsd.reader import DiffPage

LIMIT_DEFAULT = 256
WAIT_MS_MAX = 30_000

_BOOLEANS = (b"false", b"true")
# What a match parameter starts with when it is JSON text and not a bare tag.
_JSON_STARTS = ("[", '"')


class DiffBody(msgspec.Struct):
    """The request; every field is optional."""

    from_seq: int = 0
    limit: int = 0
    node: str | list[str] = msgspec.field(default_factory=list)
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: int = 0
    match: Any = msgspec.UNSET


_DECODER = msgspec.json.Decoder(DiffBody)
_VALUE: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


async def post_diff(request: Request, context: Context) -> Reply:
    """Read a page, waiting up to `wait_ms` for one that has something to say."""
    return await _read(_decode(request.body), request, context)


async def get_diff(request: Request, context: Context) -> Reply:
    """The same read, asked for with query parameters."""
    return await _read(_from_query(request), request, context)


async def _read(asked: DiffBody, request: Request, context: Context) -> Reply:
    query = _query(asked, context)
    if context.throttle.pressed:
        await pass_throttle(request, context, [request.name])
    topic = await get_topic_view(context, request.name)
    context.reader.touch(topic)
    page, scanned = await follow(context, topic, query, min(asked.wait_ms, WAIT_MS_MAX))
    times = (context.elapsed_us(request) / 1000, scanned, request.throttle_wait_us / 1000)
    return Reply(200, _render(request.name, page, times))


def _decode(content: bytes) -> DiffBody:
    if not content:
        return DiffBody()
    asked = body.decode_text(_DECODER, content, ("node", "match"))
    for field in ("from_seq", "limit", "wait_ms"):
        if getattr(asked, field) < 0:
            raise errors.invalid_request(f"{field} must not be negative", field=field)
    return asked


def _from_query(request: Request) -> DiffBody:
    """A request from query parameters; `node` may repeat."""
    match = request.query.get("match", msgspec.UNSET)
    if isinstance(match, str) and match.startswith(_JSON_STARTS):
        match = _decode_match(match)
    return DiffBody(
        from_seq=request.query_number("from_seq"),
        limit=request.query_number("limit"),
        node=[value for name, value in request.query_pairs if name == "node"],
        include_tags=request.query_bool("include_tags", False),
        include_meta=request.query_bool("include_meta", True),
        wait_ms=request.query_number("wait_ms"),
        match=match,
    )


def _decode_match(text: str) -> Any:
    try:
        return _VALUE.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        raise errors.invalid_request("match is not valid JSON", field="match") from None


def _query(asked: DiffBody, context: Context) -> DiffQuery:
    settings = context.settings
    if asked.from_seq > U64_MAX:
        raise errors.invalid_request("from_seq must fit 64 bits", field="from_seq")
    nodes = (asked.node,) if isinstance(asked.node, str) else tuple(asked.node)
    return DiffQuery(
        from_seq=asked.from_seq,
        limit=min(asked.limit or LIMIT_DEFAULT, settings.max_limit),
        nodes=nodes,
        include_tags=asked.include_tags,
        include_meta=asked.include_meta,
        max_bytes=settings.max_response_bytes,
        match=None if asked.match is msgspec.UNSET else parse_match(asked.match),
    )


def _render(name: str, page: DiffPage, times: tuple[float, int, float]) -> bytes:
    """The response around the stored bytes of the records, which are copied once."""
    caught_up = page.next_from_seq == page.head_seq
    tombstone = b"null" if page.tombstone is None else encode(page.tombstone._asdict())
    after = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,'
        b'"caught_up":%b,"tombstone":%b,"lag":%d,'
        b'"performance":{"server_total_ms":%.3f,"records_scanned":%d,"throttle_wait_ms":%.3f}}'
    ) % (
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        _BOOLEANS[caught_up],
        tombstone,
        max(page.head_seq - page.next_from_seq, 0),
        *times,
    )
    return b"".join((b'{"topic":"%b","records":[' % name.encode(), page.records, after))

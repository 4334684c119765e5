"""`POST /v0/topics/:topic`: append records (API 2).

The envelope is decoded once, with every payload left raw; each record is rendered to its
stored form here, so that the engine only adds seq and time. The loop over the records is
the hottest of the worker: a check in it has a cheap test first and the precise one behind.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from topicsd.model import errors
from topicsd.model.commands import Append, Appended, Written
from topicsd.model.errors import TopicsError
from topicsd.model.record import REST_BYTES, pack_plain, pack_record, single_line
from topicsd.model.settings import Settings
from topicsd.model.topic import DELAY_MS_MAX, TopicConfig
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.surrogates import Masked
from topicsd.web.throttle import pass_throttle
from topicsd.web.v0.topics import parse_config

META_KEYS_MAX = 64
IDEMPOTENCY_KEY_MAX = 256
# Below this many records the set-up of rendering them together costs more than it saves.
PLAIN_RECORDS_MIN = 12

_BOOLEANS = (b"false", b"true")
ABSENT = msgspec.Raw()
_BRACE = ord("{")


class RecordBody(msgspec.Struct, gc=False):
    """One record of the request; an absent payload is the one empty `Raw`."""

    data: msgspec.Raw = ABSENT
    tag: str | msgspec.UnsetType = msgspec.UNSET
    node: str | msgspec.UnsetType = msgspec.UNSET
    meta: msgspec.Raw = ABSENT
    delay_ms: int | msgspec.UnsetType = msgspec.UNSET


class AppendBody(msgspec.Struct):
    """The request; only `records` is required."""

    records: list[RecordBody]
    node: str | msgspec.UnsetType = msgspec.UNSET
    idempotency_key: str | msgspec.UnsetType = msgspec.UNSET
    create: bool | msgspec.UnsetType = msgspec.UNSET
    config: msgspec.Raw = ABSENT
    disable_backpressure: bool = False


_DECODER = msgspec.json.Decoder(AppendBody)


class Envelope(NamedTuple):
    """A decoded request, and how to find its payload bytes."""

    asked: AppendBody
    masked: Masked | None
    has_line_breaks: bool
    has_percents: bool

    @property
    def is_verbatim(self) -> bool:
        """Whether every payload is stored as it came, without another look at it."""
        return self.masked is None and not self.has_line_breaks

    def payload(self, raw: msgspec.Raw) -> bytes:
        """The client's bytes, on one line."""
        content = bytes(raw) if self.masked is None else self.masked.cut(raw)
        return single_line(content) if self.has_line_breaks else content


class Packed(NamedTuple):
    """Rendered records: concatenated forms, their rows, and the bytes of data and meta."""

    records: int
    forms: bytes
    rows: bytes
    payload_bytes: int
    # Of jobs that are to wait: place and milliseconds.
    delays: list[tuple[int, int]]


async def post_records(request: Request, context: Context) -> Reply:
    """Append all records or none; answers their seqs."""
    with_seqs = request.query_bool("return_seqs", True)
    envelope = decode_envelope(request.body)
    config = inline_config(envelope.asked, request, request.name)
    key = _idempotency_key(envelope, request)
    reply, members = await append(request, context, envelope, config, key, with_seqs=with_seqs)
    return Reply(201 if reply.created else 200, b"{%b}" % members)


async def append(
    request: Request,
    context: Context,
    envelope: Envelope,
    config: TopicConfig | None,
    idempotency_key: str | None,
    *,
    with_seqs: bool,
) -> tuple[Appended, bytes]:
    """Append to the request's topic, through whichever door; also the members of the answer."""
    if context.throttle.pressed:
        patient = envelope.asked.disable_backpressure
        await pass_throttle(request, context, [request.name], patient=patient)
    command = build_append(request.name, envelope, context.settings, config, idempotency_key)
    context.check_writable()
    reply = await context.port.submit(command)
    assert isinstance(reply, Appended)
    part = render_part(request.name, reply, command.count, with_seqs)
    return reply, b"%b,%b" % (part, render_times(reply, request, context))


def build_append(
    topic: str,
    envelope: Envelope,
    settings: Settings,
    config: TopicConfig | None,
    idempotency_key: str | None,
) -> Append:
    """What the engine is asked to do for one topic."""
    asked = envelope.asked
    packed = pack(envelope, settings)
    return Append(
        topic=topic,
        count=packed.records,
        forms=packed.forms,
        rows=packed.rows,
        payload_bytes=packed.payload_bytes,
        create=None if asked.create is msgspec.UNSET else asked.create,
        config=config,
        idempotency_key=idempotency_key,
        disable_backpressure=asked.disable_backpressure,
        delays=packed.delays,
    )


def inline_config(asked: AppendBody, request: Request, topic: str) -> TopicConfig | None:
    if asked.config is ABSENT:
        return None
    # Configuring is the admin's business, whichever request carries it (spec 2.8).
    auth.require_scope(request.key, "admin")
    try:
        return parse_config(asked.config, request, topic)[0]
    except TopicsError as error:
        raise _in_config(error) from None


def _in_config(error: TopicsError) -> TopicsError:
    """The same refusal, with the place in the request that it is about."""
    if error.code != "invalid_request":
        return error
    field = (error.detail or {}).get("field")
    if field is None:
        message = error.message.removeprefix("the body: ")
        return errors.invalid_request(f"config: {message}", field="config")
    return errors.invalid_request(f"config.{error.message}", field=f"config.{field}")


def decode_envelope(content: bytes) -> Envelope:
    """Decode and check the shape; payloads stay as they came."""
    asked, masked = body.decode_masked(_DECODER, content)
    return Envelope(asked, masked, *traits_of(content))


def traits_of(content: bytes) -> tuple[bool, bool]:
    """Whether a body has line breaks, and whether it has percent signs, anywhere."""
    return b"\n" in content or b"\r" in content, b"%" in content


def pack(envelope: Envelope, settings: Settings) -> Packed:
    """Check every record against the limits and render it, in order."""
    asked = envelope.asked
    records = asked.records
    _check_count(len(records), settings.max_batch_records)
    max_record, max_tag = settings.max_record_bytes, settings.max_tag_bytes
    max_node = settings.max_node_bytes
    node = None
    if asked.node is not msgspec.UNSET:
        node = asked.node
        _check_text(envelope, node, max_node, "node")
    if node is None and len(records) >= PLAIN_RECORDS_MIN and envelope.is_verbatim:
        plain = _pack_plain(envelope, max_record)
        if plain is not None:
            return plain
    forms: list[bytes] = []
    rows: list[bytes] = []
    delays: list[tuple[int, int]] = []
    size = 0
    for index, record in enumerate(records):
        if record.data is ABSENT:
            raise errors.invalid_request(
                f"records[{index}].data is missing", field=f"records[{index}].data"
            )
        data = envelope.payload(record.data)
        meta, tag, origin = None, None, node
        if record.meta is not ABSENT:
            meta = _meta(envelope, record.meta, settings.max_meta_bytes, index)
        if record.tag is not msgspec.UNSET:
            tag = record.tag
            if len(tag) * 4 > max_tag or envelope.masked is not None:
                _check_text(envelope, tag, max_tag, f"records[{index}].tag")
        if record.node is not msgspec.UNSET:
            origin = record.node
            if len(origin) * 4 > max_node or envelope.masked is not None:
                _check_text(envelope, origin, max_node, f"records[{index}].node")
        if record.delay_ms is not msgspec.UNSET:
            delays += _delay(record.delay_ms, index)
        payload_bytes = len(data) + len(meta or b"")
        if payload_bytes > max_record:
            raise _too_large(index, payload_bytes, max_record)
        size += payload_bytes
        form, row = pack_record(data, tag, origin, meta)
        forms.append(form)
        rows.append(row)
    return Packed(len(records), b"".join(forms), b"".join(rows), size, delays)


def _pack_plain(envelope: Envelope, max_bytes: int) -> Packed | None:
    """Render records that have nothing but data; None when some have more, or too much."""
    records = envelope.asked.records
    unset, absent = msgspec.UNSET, ABSENT
    rests = [
        b'"data":%b},' % record.data
        for record in records
        if record.tag is unset
        and record.node is unset
        and record.meta is absent
        and record.delay_ms is unset
    ]
    sizes = list(map(len, rests))
    if len(rests) < len(records) or min(sizes) == REST_BYTES or max(sizes) > max_bytes + REST_BYTES:
        return None
    forms, rows = pack_plain(rests, sizes, percents=envelope.has_percents)
    return Packed(len(records), forms, rows, sum(sizes) - len(sizes) * REST_BYTES, [])


def _delay(delay_ms: int, index: int) -> list[tuple[int, int]]:
    """How long a job has to wait; nothing when it has not."""
    if delay_ms < 0:
        field = f"records[{index}].delay_ms"
        raise errors.invalid_request(f"{field} must not be negative", field=field)
    return [(index, min(delay_ms, DELAY_MS_MAX))] if delay_ms else []


def _check_count(count: int, limit: int) -> None:
    if count == 0:
        raise errors.invalid_request("records must not be empty", field="records")
    if count > limit:
        raise errors.batch_too_large(count, limit)


def _too_large(index: int, size: int, limit: int) -> TopicsError:
    return errors.record_too_large(
        f"records[{index}] has {size} bytes of data and meta; the limit is {limit}",
        index=index,
        bytes=size,
        max_bytes=limit,
    )


def _check_text(envelope: Envelope, text: str, max_bytes: int, field: str) -> None:
    """Refuse text that is too long or that is not Unicode text."""
    _check_unicode(envelope, text, field)
    size = len(text.encode())
    if size > max_bytes:
        raise errors.invalid_request(
            f"{field} has {size} bytes; the limit is {max_bytes}", field=field, max_bytes=max_bytes
        )


def _check_unicode(envelope: Envelope, text: str, field: str) -> None:
    if envelope.masked is not None and envelope.masked.stand_in in text:
        raise errors.invalid_request(f"{field} contains a lone surrogate", field=field)


def _meta(envelope: Envelope, raw: msgspec.Raw, max_bytes: int, index: int) -> bytes:
    meta = envelope.payload(raw)
    # Each key has a colon, so few colons mean few keys.
    if meta[0] != _BRACE or len(meta) > max_bytes or meta.count(b":") > META_KEYS_MAX:
        _check_meta(raw, meta, max_bytes, f"records[{index}].meta")
    return meta


def _check_meta(raw: msgspec.Raw, meta: bytes, max_bytes: int, field: str) -> None:
    if meta[0] != _BRACE:
        raise errors.invalid_request(f"{field} must be an object", field=field)
    if len(meta) > max_bytes:
        raise errors.invalid_request(
            f"{field} has {len(meta)} bytes; the limit is {max_bytes}",
            field=field,
            max_bytes=max_bytes,
        )
    if len(body.decode_fields(raw)) > META_KEYS_MAX:
        raise errors.invalid_request(
            f"{field} has more than {META_KEYS_MAX} keys", field=field, max_keys=META_KEYS_MAX
        )


def _idempotency_key(envelope: Envelope, request: Request) -> str | None:
    """The dedupe key (API 0.8): the body's field wins over the header."""
    header = request.headers.get("idempotency-key")
    if envelope.asked.idempotency_key is not msgspec.UNSET or header is None:
        return body_key(envelope)
    key = _header_text(header.strip())
    _check_key(key)
    return key


def body_key(envelope: Envelope) -> str | None:
    """The dedupe key of the body's field."""
    key = envelope.asked.idempotency_key
    if key is msgspec.UNSET:
        return None
    _check_unicode(envelope, key, "idempotency_key")
    _check_key(key)
    return key


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX:
        raise errors.invalid_request(
            f"idempotency_key must have 1 to {IDEMPOTENCY_KEY_MAX} characters",
            field="idempotency_key",
        )


def _header_text(value: str) -> str:
    """A header value as text; bytes that are not UTF-8 arrive as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise errors.invalid_request("Idempotency-Key is not valid UTF-8") from None
    return value


def render_part(name: str, reply: Appended, count: int, with_seqs: bool) -> bytes:
    """The members that say what became of one topic's records."""
    seqs = b""
    if with_seqs:
        seqs = b'"seqs":%b,' % encode(list(range(reply.first_seq, reply.last_seq + 1)))
    return (
        b'"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,'
        b'"created":%b,"deduped":%b'
    ) % (
        name.encode(),
        reply.first_seq,
        reply.last_seq,
        seqs,
        reply.head_seq,
        count,
        _BOOLEANS[reply.created],
        _BOOLEANS[reply.deduped],
    )


def render_times(reply: Appended | Written, request: Request, context: Context) -> bytes:
    """The performance block of a write (API 0.9)."""
    return (
        b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f,'
        b'"throttle_wait_ms":%.3f}'
    ) % (
        context.elapsed_us(request) / 1000,
        reply.wal_append_us / 1000,
        reply.fsync_us / 1000,
        request.throttle_wait_us / 1000,
    )

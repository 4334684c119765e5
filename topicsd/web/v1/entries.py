"""Request bodies of streams as entries: one for bytes, one an element for JSON (spec 1.14)."""

from __future__ import annotations

from typing import Final

import msgspec

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.record import pack_plain, pack_record, single_line
from topicsd.model.stream import JSON_TYPE, StreamWrite, base_type
from topicsd.web import body

# What one append may hold, however small its elements are.
ENTRIES_MAX: Final = 100_000
# Below this many the set-up of rendering them together costs more than it saves.
PLAIN_ENTRIES_MIN: Final = 12

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_BLANKS = b" \t\r\n"


def build_write(
    content: bytes, content_type: str, key: str | None, ts_ms: int | None, *, creating: bool = False
) -> StreamWrite:
    """Entries rendered for the engine; what is wrong with them is told in its turn."""
    if not content:
        return StreamWrite(ts_ms=ts_ms)
    if base_type(content_type) != JSON_TYPE:
        form, row = pack_record(content, key, None, None)
        return StreamWrite(1, form, row, len(content), ts_ms=ts_ms)
    try:
        values = _split(content)
    except TopicsError as error:
        return StreamWrite(invalid=error.message)
    if not values:
        # An empty stream may be created with an empty array; nothing else is empty.
        return StreamWrite(invalid=None if creating else "an empty array appends nothing")
    if len(values) > ENTRIES_MAX:
        raise errors.batch_too_large(len(values), ENTRIES_MAX)
    return _pack(values, key, ts_ms)


def _split(content: bytes) -> list[bytes]:
    """The elements of an array, or the one value, each as it was written."""
    is_array = content.lstrip(_BLANKS)[:1] == b"["
    if is_array:
        raws, masked = body.decode_masked(_ELEMENTS, content)
    else:
        raw, masked = body.decode_masked(_VALUE, content)
        raws = [raw]
    cut = bytes if masked is None else masked.cut
    values = [cut(raw) for raw in raws]
    return [single_line(value.strip(_BLANKS)) for value in values]


def _pack(values: list[bytes], key: str | None, ts_ms: int | None) -> StreamWrite:
    size = sum(map(len, values))
    if key is None and len(values) >= PLAIN_ENTRIES_MIN:
        rests = [b'"data":%b},' % value for value in values]
        percents = any(b"%" in value for value in values)
        forms, rows = pack_plain(rests, list(map(len, rests)), percents=percents)
    else:
        packed = [pack_record(value, key, None, None) for value in values]
        forms = b"".join(form for form, _ in packed)
        rows = b"".join(row for _, row in packed)
    return StreamWrite(len(values), forms, rows, size, ts_ms=ts_ms)

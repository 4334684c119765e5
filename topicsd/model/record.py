"""A record's stored form, which is its wire form, and its 32-byte index row.

Stored form of one record (architecture, law 4):

    {"$seq":N,"$ts":T,["$tag":"t",]["$node":"n",]"data":D[,"meta":M]},

The part up to and including `"$ts":T,` is the *prefix*: only the engine knows it. The
part after it is the *rest*: the worker renders it once, in the process that decoded the
request, as a *form*: `{"$seq":%d%b` and the rest with its percent signs doubled. All forms
of a batch are one string, which the engine completes in one formatting operation, three
times as fast as a loop over the records. `D` and `M` are the bytes the
client sent, except that raw newlines (which JSON allows only between tokens) become
spaces, because they would break SSE and NDJSON framing.

Index row, little-endian, 32 bytes:

    0   ts         i64   commit time in milliseconds
    8   end        u32   position just after the record's comma in the .dat region
                         (between worker and engine: the length of the rest)
    12  sum        u32   low half of xxh3_64(rest)
    16  key_hash   u32   low half of xxh3_64(tag), 0 without a tag
    20  node_hash  u32   low half of xxh3_64(node), 0 without a node
    24  head_len   u16   bytes of rest before the data value
    26  tag_len    u16   bytes of rest that are the $tag member, its comma included
    28  tail_len   u16   bytes of rest after the data value, `},` included
    30  flags      u8    HAS_KEY, HAS_NODE, HAS_META
    31  deleted    u8    0xD5 when deleted, anything else is live (DESIGN 7.5)
"""

from __future__ import annotations

import struct

import msgspec
import numpy as np
import xxhash

ROW = struct.Struct("<qIIIIHHHBB")
ROW_BYTES = ROW.size
ROW_DTYPE = np.dtype(
    [
        ("ts", "<i8"),
        ("end", "<u4"),
        ("sum", "<u4"),
        ("key_hash", "<u4"),
        ("node_hash", "<u4"),
        ("head_len", "<u2"),
        ("tag_len", "<u2"),
        ("tail_len", "<u2"),
        ("flags", "u1"),
        ("deleted", "u1"),
    ]
)
assert ROW_DTYPE.itemsize == ROW_BYTES
DELETED = 0xD5

HAS_KEY = 1
HAS_NODE = 2
HAS_META = 4

META_LABEL = b',"meta":'
END = b"},"
# What surrounds the data of a record that has nothing else.
REST_BYTES = len(b'"data":},')
_FORM_HEAD = b'{"$seq":%d%b'
# The most bytes of a record after its data, as an index row can count them.
TAIL_MAX = 2**16 - 1

_encode = msgspec.json.encode
_hash = xxhash.xxh3_64_intdigest
_pack_row = ROW.pack
_UNSAFE = b"\r\n"


def prefix(seq: int, ts: int) -> bytes:
    return b'{"$seq":%d,"$ts":%d,' % (seq, ts)


def key_hash(text: str) -> int:
    """The 32-bit hash of a tag or node; never 0, which means absent."""
    return (_hash(text.encode()) & 0xFFFFFFFF) or 1


def rest_sum(rest: bytes | memoryview) -> int:
    return _hash(rest) & 0xFFFFFFFF


def single_line(payload: bytes) -> bytes:
    """Replace raw line breaks, which can only be insignificant whitespace, by spaces."""
    if b"\n" in payload or b"\r" in payload:
        return payload.translate(_SPACES)
    return payload


_SPACES = bytes(32 if byte in _UNSAFE else byte for byte in range(256))


def complete(forms: bytes, first_seq: int, count: int, ts: int) -> bytes:
    """The stored form of `count` records, given their concatenated forms."""
    values: list[int | bytes] = [b',"$ts":%d,' % ts] * (2 * count)
    values[::2] = range(first_seq, first_seq + count)
    return forms % tuple(values)


def _form(rest: bytes) -> bytes:
    return _FORM_HEAD + (rest.replace(b"%", b"%%") if b"%" in rest else rest)


def pack_record(
    data: bytes, tag: str | None, node: str | None, meta: bytes | None
) -> tuple[bytes, bytes]:
    """Render one record's form and its row; the engine fills in ts and turns end around."""
    flags = tag_len = key = origin = 0
    head = b'"data":'
    if node is not None:
        head = b'"$node":' + _encode(node) + b"," + head
        origin = key_hash(node)
        flags |= HAS_NODE
    if tag is not None:
        label = b'"$tag":' + _encode(tag) + b","
        tag_len = len(label)
        head = label + head
        key = key_hash(tag)
        flags |= HAS_KEY
    tail = END
    if meta is not None:
        tail = META_LABEL + meta + END
        flags |= HAS_META
    rest = head + data + tail
    row = _pack_row(
        0,
        len(rest),
        _hash(rest) & 0xFFFFFFFF,
        key,
        origin,
        len(head),
        tag_len,
        len(tail),
        flags,
        0,
    )
    return _form(rest), row


def pack_plain(rests: list[bytes], sizes: list[int], *, percents: bool) -> tuple[bytes, bytes]:
    """Forms and rows of records that have nothing but data; much faster than one by one.

    `percents` says whether any of them may contain a percent sign.
    """
    rows = np.zeros(len(rests), dtype=ROW_DTYPE)
    rows["end"] = sizes
    rows["sum"] = np.array(list(map(_hash, rests)), dtype=np.uint64) & 0xFFFFFFFF
    rows["head_len"] = len(b'"data":')
    rows["tail_len"] = len(END)
    return build_forms(rests, percents=percents), rows.tobytes()


def build_forms(rests: list[bytes], *, percents: bool) -> bytes:
    """The forms of records from their rests; `percents` as in `pack_plain`."""
    return b"".join(map(_form, rests)) if percents else _FORM_HEAD.join([b"", *rests])

"""WAL frames: the unit of commit, and the entries inside one.

A frame is everything one commit wrote to one shard. Its checksum is seeded with its own
lsn and length, so a frame copied or shifted elsewhere does not verify.

    frame, padded to 8 bytes
    0   magic     u32   "TWF1"
    4   length    u32   bytes of body
    8   lsn       u64   global commit number, increasing across shards
    16  checksum  u64   xxh3_64(body, seed = lsn xor length << 32)
    24  body      entries, one after the other

    entry
    0   kind      u8    APPEND, KEYS, DELETE, CREATE, LEASES, ROUTE, STREAM
    4   length    u32   bytes of payload
    8   log_id    u64
    16  payload

    APPEND payload
    0   first_seq u64
    8   ceiling   u64   no seq above it was handed out before a later frame was synced
    16  payload   u64   bytes of data plus meta of these records
    24  count     u32
    28  dat_len   u32
    32  rows      count * 32
    ..  dat       dat_len

    DELETE payload
    0   before    u64   every record below is deleted; 0 for none
    8   earliest  u64   the log's floors before the delete: what caps and expiry took
    16  cap       u64   until then cannot be found again from a later state
    24  ttl       u64
    32  seqs      u64 * n, single records deleted; with no seqs and a `before` of 0 the entry
                  is there for the floors, which a change of limits moved or makes unfindable

    KEYS payload: msgpack array of (key, first_seq, last_seq, ts)

    CREATE payload: msgpack array (row, name, epoch, configuration as JSON, created_ts)

    LEASES payload: msgpack array of lease events, see `model.lease`

    ROUTE payload: msgpack array (source log id, cursor, next_seq, last_ts, trimmed,
                   [(router id, forwarded_total), ...]); the entry's log is the destination.
                   Copies are in no frame, so this says how far they had come: with the
                   cursor there, the destination's next seq and last time were these. Seq
                   `trimmed`, unless 0, stands for what the source lost before it was copied.

    STREAM payload: msgpack array (closed, last `Stream-Seq` or nil, the producer that sent
                   this as (id, epoch, seq) or nil); of a log that is a stream, or is written
                   like one. With `closed`, that producer is the one that closed it.

Reading asks three questions in order: magic, length, checksum. What a failure means (a
torn tail or a corrupt middle) is decided by `storage.replay`, not here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from topicsd.model.lease import Event, decode_events, encode_events
from topicsd.model.record import ROW_BYTES

MAGIC: Final = 0x31465754
HEADER = struct.Struct("<IIQQ")
ENTRY = struct.Struct("<BxxxIQ")
APPEND_HEAD = struct.Struct("<QQQII")
DELETE_HEAD = struct.Struct("<QQQQ")
ALIGN: Final = 8
BODY_MAX: Final = 2**31

APPEND: Final = 1
KEYS: Final = 2
DELETE: Final = 3
CREATE: Final = 4
LEASES: Final = 5
ROUTE: Final = 6
STREAM: Final = 7

_encode = msgspec.msgpack.encode
_decode_keys = msgspec.msgpack.Decoder(list[tuple[str, int, int, int]]).decode
_decode_route = msgspec.msgpack.Decoder(
    tuple[int, int, int, int, int, list[tuple[int, int]]]
).decode
_decode_stream = msgspec.msgpack.Decoder(
    tuple[bool, str | None, tuple[str, int, int] | None]
).decode
_decode_creation = msgspec.msgpack.Decoder(tuple[int, str, int, str, int]).decode


class AppendEntry(NamedTuple):
    log_id: int
    first_seq: int
    ceiling: int
    payload_bytes: int
    records: int
    rows: memoryview
    dat: memoryview


class KeysEntry(NamedTuple):
    log_id: int
    keys: list[tuple[str, int, int, int]]


class DeleteEntry(NamedTuple):
    log_id: int
    before_seq: int
    earliest_seq: int
    cap_floor: int
    ttl_floor: int
    seqs: npt.NDArray[np.uint64]


class CreateEntry(NamedTuple):
    """A topic that the catalog may not know yet when its records are in the log."""

    log_id: int
    row: int
    name: str
    epoch: int
    config_json: str
    created_ts: int


class LeasesEntry(NamedTuple):
    """What happened to the jobs of a queue, in order."""

    log_id: int
    events: list[Event]


class RouteEntry(NamedTuple):
    """How far the copies of a source had come in a destination, which is `log_id`."""

    log_id: int
    source_id: int
    cursor: int
    next_seq: int
    last_ts: int
    trimmed: int
    totals: list[tuple[int, int]]


class StreamEntry(NamedTuple):
    """What an append or a close changed in a stream beside its records."""

    log_id: int
    closed: bool
    last_seq: str | None
    producer: tuple[str, int, int] | None


Entry = AppendEntry | KeysEntry | DeleteEntry | CreateEntry | LeasesEntry | RouteEntry | StreamEntry


class Frame(NamedTuple):
    lsn: int
    body: memoryview
    end: int


class BadFrame(Exception):
    """The bytes at a position are not a whole, intact frame."""


def checksum(body: bytes | memoryview, lsn: int) -> int:
    return xxhash.xxh3_64_intdigest(body, (lsn ^ (len(body) << 32)) & 0xFFFFFFFFFFFFFFFF)


def build(lsn: int, parts: list[bytes]) -> bytes:
    """One frame, ready to write."""
    body = b"".join(parts)
    padding = bytes(-(HEADER.size + len(body)) % ALIGN)
    return HEADER.pack(MAGIC, len(body), lsn, checksum(body, lsn)) + body + padding


def append_parts(
    log_id: int, seqs: tuple[int, int], payload_bytes: int, rows: bytes, dat: bytes
) -> list[bytes]:
    """The byte parts of an APPEND entry, left unjoined for the frame to join once.

    `seqs` are the first seq and the ceiling.
    """
    length = APPEND_HEAD.size + len(rows) + len(dat)
    head = ENTRY.pack(APPEND, length, log_id)
    counts = APPEND_HEAD.pack(*seqs, payload_bytes, len(rows) // ROW_BYTES, len(dat))
    return [head, counts, rows, dat]


def keys_parts(log_id: int, keys: list[tuple[str, int, int, int]]) -> list[bytes]:
    payload = _encode(keys)
    return [ENTRY.pack(KEYS, len(payload), log_id), payload]


def delete_parts(
    log_id: int, before_seq: int, floors: tuple[int, int, int], seqs: npt.NDArray[np.int64]
) -> list[bytes]:
    """The byte parts of a DELETE entry; `floors` are the earliest seq, the cap and ttl floor."""
    payload = DELETE_HEAD.pack(before_seq, *floors) + seqs.astype("<u8").tobytes()
    return [ENTRY.pack(DELETE, len(payload), log_id), payload]


def create_parts(entry: CreateEntry) -> list[bytes]:
    payload = _encode(entry[1:])
    return [ENTRY.pack(CREATE, len(payload), entry.log_id), payload]


def leases_parts(log_id: int, events: list[Event]) -> list[bytes]:
    payload = encode_events(events)
    return [ENTRY.pack(LEASES, len(payload), log_id), payload]


def route_parts(entry: RouteEntry) -> list[bytes]:
    payload = _encode(entry[1:])
    return [ENTRY.pack(ROUTE, len(payload), entry.log_id), payload]


def stream_parts(entry: StreamEntry) -> list[bytes]:
    payload = _encode(entry[1:])
    return [ENTRY.pack(STREAM, len(payload), entry.log_id), payload]


def read(data: memoryview, position: int) -> Frame:
    """Read the frame at `position`, or raise BadFrame."""
    if len(data) - position < HEADER.size:
        raise BadFrame("the file ends inside a frame header")
    magic, length, lsn, expected = HEADER.unpack_from(data, position)
    if magic != MAGIC:
        raise BadFrame("no frame magic")
    start = position + HEADER.size
    if length > BODY_MAX or start + length > len(data):
        raise BadFrame(f"a length of {length} leads out of the file")
    body = data[start : start + length]
    if checksum(body, lsn) != expected:
        raise BadFrame("checksum mismatch")
    return Frame(lsn, body, start + length + -(HEADER.size + length) % ALIGN)


def entries(body: memoryview) -> Iterator[Entry]:
    """The entries of an intact frame."""
    position = 0
    while position < len(body):
        kind, length, log_id = ENTRY.unpack_from(body, position)
        position += ENTRY.size
        yield _READERS[kind](log_id, body[position : position + length])
        position += length


def deletes(body: memoryview) -> Iterator[DeleteEntry]:
    """Only the DELETE entries of an intact frame; the others are not looked into."""
    position = 0
    while position < len(body):
        kind, length, log_id = ENTRY.unpack_from(body, position)
        position += ENTRY.size
        if kind == DELETE:
            yield _read_delete(log_id, body[position : position + length])
        position += length


def _read_append(log_id: int, payload: memoryview) -> AppendEntry:
    first_seq, ceiling, size, count, dat_len = APPEND_HEAD.unpack_from(payload)
    split = APPEND_HEAD.size + count * ROW_BYTES
    rows = payload[APPEND_HEAD.size : split]
    dat = payload[split : split + dat_len]
    return AppendEntry(log_id, first_seq, ceiling, size, count, rows, dat)


def _read_keys(log_id: int, payload: memoryview) -> KeysEntry:
    return KeysEntry(log_id, _decode_keys(payload))


def _read_delete(log_id: int, payload: memoryview) -> DeleteEntry:
    seqs = np.frombuffer(payload, "<u8", offset=DELETE_HEAD.size)
    before_seq, earliest_seq, cap_floor, ttl_floor = DELETE_HEAD.unpack_from(payload)
    return DeleteEntry(log_id, before_seq, earliest_seq, cap_floor, ttl_floor, seqs)


def _read_create(log_id: int, payload: memoryview) -> CreateEntry:
    return CreateEntry(log_id, *_decode_creation(payload))


def _read_leases(log_id: int, payload: memoryview) -> LeasesEntry:
    return LeasesEntry(log_id, decode_events(payload))


def _read_route(log_id: int, payload: memoryview) -> RouteEntry:
    return RouteEntry(log_id, *_decode_route(payload))


def _read_stream(log_id: int, payload: memoryview) -> StreamEntry:
    return StreamEntry(log_id, *_decode_stream(payload))


_READERS: dict[int, Callable[[int, memoryview], Entry]] = {
    APPEND: _read_append,
    KEYS: _read_keys,
    DELETE: _read_delete,
    CREATE: _read_create,
    LEASES: _read_leases,
    ROUTE: _read_route,
    STREAM: _read_stream,
}

"""The format of `<base seq>.tag`: which rows of a sealed segment have which tag.

Written when a segment is sealed, never changed. Tags stand in it as they stand in the
records: JSON text without its quotes. Escaping maps characters one by one, so a prefix of a
tag is a prefix of its JSON text.

    0   magic     u32  "TTAG"
    4   version   u32  2
    8   tags      u32  distinct tags
    12  entries   u32  rows that have a tag
    16  blob      u64  bytes of all tags
    24  sums_sum  u64  xxh3_64 of the sums
    32  checksum  u64  xxh3_64 of the first 32 bytes
    40  sums      u64 each       xxh3_64 of every 4 KiB of the body
    ..  body:
        ends      u32 * tags     where each tag ends in the blob, tags ascending
        counts    u32 * tags     how many rows have this tag or a smaller one
        rows      u32 * entries  rows, grouped by tag, ascending within it
        blob

A file is mapped, not read: a look-up touches the pages its binary search comes by, and
verifies these and no others, each once. A page that fails raises `Damaged`. Version 1, which
had one sum for everything, is not opened.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

MAGIC: Final = 0x47415454
VERSION: Final = 2
PAGE_BYTES: Final = 4096
_HEADER = struct.Struct("<IIIIQQQ")
_SUMMED = _HEADER.size - 8
_NUMBER: Final = 4

Rows = npt.NDArray[np.int64]
_hash = xxhash.xxh3_64_intdigest


class Damaged(Exception):
    """A page of an index is not what was written."""


def stored_text(text: str) -> bytes:
    """A tag, or the beginning of one, as it stands in a record."""
    return msgspec.json.encode(text)[1:-1]


def build_file(texts: npt.NDArray[np.bytes_], rows: Rows) -> bytes:
    """The bytes of an index: tags ascending, one for each row, and the rows.

    There may be a million distinct ones, and the engine's thread goes on beside this: no
    step is a loop of the interpreter over tags.
    """
    heads = np.flatnonzero(np.concatenate(([True], texts[1:] != texts[:-1])))
    tags = texts[heads]
    lengths = np.strings.str_len(tags)
    counts = np.append(heads[1:], len(rows))
    numbers = [column.astype("<u4").tobytes() for column in (np.cumsum(lengths), counts, rows)]
    letters = tags.view(np.uint8).reshape(len(tags), -1)
    blob = letters[np.arange(letters.shape[1]) < lengths[:, None]].tobytes()
    body = b"".join((*numbers, blob))
    pages = range(0, len(body), PAGE_BYTES)
    view = memoryview(body)
    sums = np.array([_hash(view[at : at + PAGE_BYTES]) for at in pages], dtype="<u8").tobytes()
    head = _HEADER.pack(MAGIC, VERSION, len(tags), len(rows), len(blob), _hash(sums), 0)[:_SUMMED]
    return head + struct.pack("<Q", _hash(head)) + sums + body


class TagIndex:
    """A .tag file, opened."""

    def __init__(
        self, tags: int, sums: npt.NDArray[np.uint64], body: memoryview, blob: int
    ) -> None:
        self._tags = tags
        self._sums = sums
        self._body = body
        self._blob = len(body) - blob
        self._intact: set[int] = set()

    def find(self, text: bytes, *, is_prefix: bool) -> Rows:
        """Rows whose stored tag is `text`, or starts with it, ascending; may raise `Damaged`."""
        low = self._place(text, after_prefix=False)
        if is_prefix:
            high = self._place(text, after_prefix=True)
        else:
            high = low + (low < self._tags and self._tag(low) == text)
        if low >= high:
            return np.empty(0, dtype=np.int64)
        rows = 2 * self._tags
        start, stop = self._before(self._tags, low), self._before(self._tags, high)
        found = self._read((rows + start) * _NUMBER, (rows + stop) * _NUMBER)
        return np.sort(np.frombuffer(found, dtype="<u4").astype(np.int64))

    def _tag(self, number: int) -> bytes:
        start, stop = self._before(0, number), self._before(0, number + 1)
        return bytes(self._read(self._blob + start, self._blob + stop))

    def _before(self, column: int, number: int) -> int:
        """The running total of a column up to, excluding, a tag."""
        if not number:
            return 0
        at = (column + number) * _NUMBER
        return int.from_bytes(self._read(at - _NUMBER, at), "little")

    def _place(self, text: bytes, *, after_prefix: bool) -> int:
        """The first tag not below `text`, or the first one behind those that start with it."""
        low, high = 0, self._tags
        while low < high:
            middle = (low + high) // 2
            tag = self._tag(middle)
            if tag < text or (after_prefix and tag.startswith(text)):
                low = middle + 1
            else:
                high = middle
        return low

    def _read(self, start: int, stop: int) -> memoryview:
        """Bytes of the body, verified."""
        for page in range(start // PAGE_BYTES, -(-stop // PAGE_BYTES)):
            if page not in self._intact:
                at = page * PAGE_BYTES
                if _hash(self._body[at : at + PAGE_BYTES]) != int(self._sums[page]):
                    raise Damaged(f"page at {at} of a tag index")
                self._intact.add(page)
        return self._body[start:stop]


def open_index(data: memoryview) -> TagIndex | None:
    """The index in a .tag file, or None when it is another version, cut short or damaged."""
    if len(data) < _HEADER.size:
        return None
    magic, version, tags, entries, blob, sums_sum, expected = _HEADER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION) or _hash(data[:_SUMMED]) != expected:
        return None
    size = (2 * tags + entries) * _NUMBER + blob
    start = _HEADER.size + -(-size // PAGE_BYTES) * 8
    if len(data) != start + size or _hash(data[_HEADER.size : start]) != sums_sum:
        return None
    sums = np.frombuffer(data[_HEADER.size : start], dtype="<u8")
    return TagIndex(tags, sums, data[start:], blob)

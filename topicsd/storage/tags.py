"""Tags of a segment: an index beside a sealed one, a bounded vectorised look at the others.

`<base seq>.tag` is written when a segment is sealed and never changes. Tags stand in it as
they stand in the records: JSON text without its quotes. Escaping maps characters one by one,
so a prefix of a tag is a prefix of its JSON text.

    0   magic     u32  "TTAG"
    4   version   u32  1
    8   tags      u32  distinct tags
    12  entries   u32  rows that have a tag
    16  blob      u64  bytes of all tags
    24  checksum  u64  xxh3_64 of everything behind the header
    32  ends      u32 * tags     where each tag ends in the blob, tags ascending
    ..  counts    u32 * tags     how many rows have this tag or a smaller one
    ..  rows      u32 * entries  rows, grouped by tag, ascending within it
    ..  blob

An index that is missing or damaged is not an error: the segment's rows are looked at
instead, which costs more and finds the same.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from topicsd.model.match import Match
from topicsd.model.record import DELETED, HAS_KEY, key_hash
from topicsd.storage import place
from topicsd.storage.fs import Files
from topicsd.storage.segment import digits
from topicsd.storage.shelf import Region, SegmentKey

MAGIC: Final = 0x47415454
VERSION: Final = 1
_HEADER = struct.Struct("<IIIIQQ")
_LABEL = len(b'"$tag":"')
_CLOSE = len(b'",')
# Bytes compared at once when looking for a prefix.
_STEP: Final = 8

Rows = npt.NDArray[np.int64]
_hash = xxhash.xxh3_64_intdigest


def stored_text(text: str) -> bytes:
    """A tag, or the beginning of one, as it stands in a record."""
    return msgspec.json.encode(text)[1:-1]


def build_index(region: Region, rows: int) -> bytes:
    """The .tag file of a segment; empty when no record has a tag."""
    tagged = np.flatnonzero(region.rows["flags"][:rows] & HAS_KEY)
    if not len(tagged):
        return b""
    starts, lengths = _spans(region, tagged)
    texts = _gather(region, starts, lengths)
    order = np.argsort(texts, kind="stable")
    texts, tagged, lengths = texts[order], tagged[order], lengths[order]
    heads = np.flatnonzero(np.concatenate(([True], texts[1:] != texts[:-1])))
    counts = np.append(heads[1:], len(tagged)).astype("<u4")
    blob = b"".join(
        bytes(text)[:length]
        for text, length in zip(texts[heads].tolist(), lengths[heads].tolist(), strict=True)
    )
    ends = np.cumsum(lengths[heads]).astype("<u4")
    body = ends.tobytes() + counts.tobytes() + tagged.astype("<u4").tobytes() + blob
    head = _HEADER.pack(MAGIC, VERSION, len(heads), len(tagged), len(blob), _hash(body))
    return head + body


class TagIndex:
    """A .tag file, opened."""

    def __init__(self, data: memoryview) -> None:
        _, _, tags, entries, _, _ = _HEADER.unpack_from(data)
        at = _HEADER.size
        self._ends = np.frombuffer(data, "<u4", tags, at)
        self._counts = np.frombuffer(data, "<u4", tags, at + 4 * tags)
        self._rows = np.frombuffer(data, "<u4", entries, at + 8 * tags)
        self._blob = data[at + 8 * tags + 4 * entries :]

    def find(self, match: Match) -> Rows:
        """Rows whose tag matches, ascending."""
        text = stored_text(match.text)
        low = self._place(text, after_prefix=False)
        if match.is_prefix:
            high = self._place(text, after_prefix=True)
        else:
            high = low + (low < len(self._ends) and self._tag(low) == text)
        if low >= high:
            return np.empty(0, dtype=np.int64)
        start = int(self._counts[low - 1]) if low else 0
        return np.sort(self._rows[start : int(self._counts[high - 1])].astype(np.int64))

    def _tag(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) if number else 0
        return bytes(self._blob[start : int(self._ends[number])])

    def _place(self, text: bytes, *, after_prefix: bool) -> int:
        """The first tag not below `text`, or the first one behind those that start with it."""
        low, high = 0, len(self._ends)
        while low < high:
            middle = (low + high) // 2
            tag = self._tag(middle)
            if tag < text or (after_prefix and tag.startswith(text)):
                low = middle + 1
            else:
                high = middle
        return low


def open_index(data: memoryview) -> TagIndex | None:
    """The index in a .tag file, or None when the bytes are not an intact one."""
    if len(data) < _HEADER.size:
        return None
    magic, version, tags, entries, blob, expected = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if (magic, version) != (MAGIC, VERSION) or len(body) != 8 * tags + 4 * entries + blob:
        return None
    return TagIndex(data) if _hash(body) == expected else None


class TagIndexes:
    """Indexes of one volume's segments: read and verified once, a bounded number kept."""

    def __init__(self, files: Files, roots: Sequence[Path], kept_max: int) -> None:
        self._files = files
        self._roots = roots
        self._kept_max = kept_max
        self._kept: OrderedDict[SegmentKey, TagIndex] = OrderedDict()

    def find(self, region: Region) -> TagIndex | None:
        """The index of a sealed segment; None when it has none that is intact."""
        key = region.key
        found = self._kept.get(key)
        if found is None and region.seal is not None:
            found = self._open(key)
            if found is not None:
                self._kept[key] = found
                if len(self._kept) > self._kept_max:
                    self._kept.popitem(last=False)
        return found

    def _open(self, key: SegmentKey) -> TagIndex | None:
        try:
            fd = self._files.open_readonly(
                place.tag_path(self._roots[key.tier], key.log_id, key.base_seq)
            )
        except FileNotFoundError:
            return None
        try:
            return open_index(memoryview(self._files.map(fd, self._files.size(fd))))
        finally:
            self._files.close(fd)


def scan_rows(region: Region, rows: int, match: Match, *, first: int = 0) -> Rows:
    """The same answer from the rows `first` to `rows` (exclusive); needs no index."""
    columns = region.rows
    found = np.flatnonzero(columns["flags"][first:rows] & HAS_KEY) + first
    if not match.is_prefix:
        found = found[columns["key_hash"][found] == key_hash(match.text)]
    text = stored_text(match.text)
    starts, lengths = _spans(region, found)
    keep = lengths == len(text) if not match.is_prefix else lengths >= len(text)
    found, starts = found[keep], starts[keep]
    dat = np.frombuffer(region.dat, dtype=np.uint8)
    for at in range(0, len(text), _STEP):
        part = np.frombuffer(text[at : at + _STEP], dtype=np.uint8)
        places = starts[:, None] + (at + np.arange(len(part)))
        same = (dat[places] == part).all(axis=1)
        found, starts = found[same], starts[same]
    return found


def only_live(region: Region, rows: Rows) -> Rows:
    live: Rows = rows[region.rows["deleted"][rows] != DELETED]
    return live


def _spans(region: Region, rows: Rows) -> tuple[Rows, Rows]:
    """Where the tag text of each row starts in `dat`, and how long it is."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    prefixes = 16 + digits(region.base_seq + rows) + digits(region.rows["ts"][rows])
    lengths = region.rows["tag_len"][rows].astype(np.int64) - _LABEL - _CLOSE
    return starts + prefixes + _LABEL, lengths


def _gather(region: Region, starts: Rows, lengths: Rows) -> npt.NDArray[np.bytes_]:
    """Tag texts as one array of fixed width, which sorts without the interpreter.

    A tag cannot contain a zero byte (JSON escapes it), so padding with zeros keeps the order.
    """
    width = max(int(lengths.max()), 1)
    dat = np.frombuffer(region.dat, dtype=np.uint8)
    texts = np.zeros((len(starts), width), dtype=np.uint8)
    for at in range(width):
        longer = np.flatnonzero(lengths > at)
        texts[longer, at] = dat[starts[longer] + at]
    return texts.view(f"S{width}").ravel()

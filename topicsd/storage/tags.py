"""Finding rows by tag: an index beside a sealed segment, a look at the rows of another.

Whatever proposes rows (the index, or the hashes in the rows), the records themselves have
the last word: every row found is compared with the bytes of its record. An index that is
missing or damaged is not an error: the segment's rows are looked at instead, which costs
more and finds the same.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from topicsd.model.match import Match
from topicsd.model.record import DELETED, HAS_KEY, key_hash
from topicsd.storage import place
from topicsd.storage.fs import Files
from topicsd.storage.segment import digits
from topicsd.storage.shelf import Region, SegmentKey
from topicsd.storage.tag_file import (
    Damaged,
    Rows,
    TagIndex,
    build_file,
    open_index,
    stored_text,
)

_log = logging.getLogger("topicsd.tags")

_LABEL: Final = b'"$tag":"'
_CLOSE: Final = b'",'
# Bytes compared at once.
_WORD: Final = 8
# Behind a tag follow at least these bytes of its record.
_BEHIND: Final = len(b'","data":0},')
# Rows looked at together: their columns fit the caches.
_WINDOW_ROWS: Final = 65_536

assert len(_LABEL) == _WORD <= _BEHIND


def build_index(region: Region, rows: int) -> bytes:
    """The .tag file of a segment; empty when no record has a tag."""
    tagged = np.flatnonzero(region.rows["flags"][:rows] & HAS_KEY)
    if not len(tagged):
        return b""
    starts, lengths = _spans(region, tagged)
    texts = _gather(region, starts, lengths)
    order = np.argsort(texts, kind="stable")
    texts, tagged = texts[order], tagged[order]
    heads = np.flatnonzero(np.concatenate(([True], texts[1:] != texts[:-1])))
    counts = np.append(heads[1:], len(tagged))
    return build_file(texts[heads].tolist(), counts, tagged)


class TagIndexes:
    """Indexes of one volume's segments: read and verified once, a bounded number kept."""

    def __init__(self, files: Files, roots: Sequence[Path], kept_max: int) -> None:
        self._files = files
        self._roots = roots
        self._kept_max = kept_max
        self._kept: OrderedDict[SegmentKey, TagIndex] = OrderedDict()

    def find_rows(self, region: Region, rows: int, match: Match) -> Rows:
        """Rows below `rows` whose record has a matching tag, ascending."""
        index = self.find(region)
        if index is None:
            return scan_rows(region, rows, match)
        try:
            found = index.find(stored_text(match.text), is_prefix=match.is_prefix)
        except Damaged as damage:
            _log.error("tag index ignored segment=%s problem=%s", region.path, damage)
            return scan_rows(region, rows, match)
        return confirm(region, found[found < rows], match)

    def find(self, region: Region) -> TagIndex | None:
        """The index of a sealed segment; None when it has none that can be opened."""
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
                place.tag_path(self._roots[key.resident], key.log_id, key.base_seq)
            )
        except FileNotFoundError:
            return None
        try:
            return open_index(memoryview(self._files.map(fd, self._files.size(fd))))
        finally:
            self._files.close(fd)


def scan_rows(region: Region, rows: int, match: Match, *, first: int = 0) -> Rows:
    """The same answer from the rows `first` to `rows` (exclusive); needs no index."""
    found = [
        confirm(region, _candidates(region, start, min(start + _WINDOW_ROWS, rows), match), match)
        for start in range(first, rows, _WINDOW_ROWS)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _candidates(region: Region, first: int, stop: int, match: Match) -> Rows:
    """Rows that may match, by what stands in the rows."""
    columns = region.rows[first:stop]
    if match.is_prefix:
        likely = columns["flags"] & HAS_KEY
    else:
        likely = columns["key_hash"] == key_hash(match.text)
    return np.flatnonzero(likely) + first


def confirm(region: Region, rows: Rows, match: Match) -> Rows:
    """Those of some rows whose record has a matching tag, going by the record's bytes."""
    text = stored_text(match.text)
    starts, lengths = _spans(region, rows)
    fits = lengths >= len(text) if match.is_prefix else lengths == len(text)
    # A damaged row may lead anywhere.
    fits &= (starts >= _WORD) & (starts + lengths + _BEHIND <= len(region.dat))
    rows, starts = rows[fits], starts[fits]
    if not len(rows):
        return rows
    # The eight bytes at every position; a strided view costs nothing.
    words = np.ndarray((len(region.dat) - _WORD + 1,), "<u8", region.dat, strides=(1,))
    for at in range(0, len(text), _WORD):
        part = text[at : at + _WORD]
        wanted, mask = (int.from_bytes(each, "little") for each in (part, b"\xff" * len(part)))
        same = words[starts + at] & np.uint64(mask) == np.uint64(wanted)
        rows, starts = rows[same], starts[same]
    labelled: Rows = rows[words[starts - _WORD] == np.uint64(int.from_bytes(_LABEL, "little"))]
    return labelled


def only_live(region: Region, rows: Rows) -> Rows:
    live: Rows = rows[region.rows["deleted"][rows] != DELETED]
    return live


def _spans(region: Region, rows: Rows) -> tuple[Rows, Rows]:
    """Where the tag text of each row starts in `dat`, and how long it is."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    prefixes = 16 + digits(region.base_seq + rows) + digits(region.rows["ts"][rows])
    lengths = region.rows["tag_len"][rows].astype(np.int64) - len(_LABEL) - len(_CLOSE)
    return starts + prefixes + len(_LABEL), lengths


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

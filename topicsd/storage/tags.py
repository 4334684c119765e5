"""Tags where they stand: in the records of a segment, at places its rows lead to.

Rows in the order of their tags (which is what an index is made of), rows found by looking
at all of them, and the comparison with the record's bytes that every found row has to pass.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from topicsd.model.match import Match
from topicsd.model.record import DELETED, key_hash
from topicsd.storage import segment
from topicsd.storage.shelf import Region
from topicsd.storage.tag_file import Rows, build_file, stored_text

LABEL: Final = b'"$tag":"'
CLOSE: Final = b'",'
# Bytes compared at once.
_WORD: Final = 8
# Behind a tag follow at least these bytes of its record.
_BEHIND: Final = len(b'","data":0},')
# Rows looked at together: their columns fit the caches.
_WINDOW_ROWS: Final = 65_536

Spans = tuple[Rows, Rows]

assert len(LABEL) == _WORD <= _BEHIND


def sort_rows(region: Region, first: int, stop: int) -> tuple[Rows, npt.NDArray[np.bytes_]]:
    """The tagged ones of rows `first` to `stop` (exclusive) in the order of their tags."""
    if not region.rows["tag_len"][first:stop].any():
        return np.empty(0, dtype=np.int64), np.empty(0, dtype="S1")
    starts, lengths = _spans_between(region, first, stop)
    inside = np.flatnonzero(_inside(region, starts, lengths))
    tagged = inside + first
    texts = _gather(region, starts[inside], lengths[inside])
    order = np.argsort(texts, kind="stable")
    return tagged[order], texts[order]


def build_index(region: Region, rows: int) -> bytes:
    """The .tag file of a segment; empty when no record has a tag."""
    tagged, texts = sort_rows(region, 0, rows)
    return build_file(texts, tagged) if len(tagged) else b""


def scan_rows(region: Region, rows: int, match: Match, *, first: int = 0) -> Rows:
    """The same answer from the rows `first` to `rows` (exclusive); needs no index."""
    scan = _scan_prefix if match.is_prefix else _scan_exact
    found = [
        scan(region, start, min(start + _WINDOW_ROWS, rows), match)
        for start in range(first, rows, _WINDOW_ROWS)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _scan_exact(region: Region, first: int, stop: int, match: Match) -> Rows:
    """The hashes of tags, which stand in the rows, leave few rows to compare."""
    same = region.rows["key_hash"][first:stop] == key_hash(match.text)
    return confirm(region, np.flatnonzero(same) + first, match)


def _scan_prefix(region: Region, first: int, stop: int, match: Match) -> Rows:
    return _compare(region, np.arange(first, stop), _spans_between(region, first, stop), match)


def confirm(region: Region, rows: Rows, match: Match) -> Rows:
    """Those of some rows whose record has a matching tag, going by the record's bytes."""
    return _compare(region, rows, _spans(region, rows), match)


def _compare(region: Region, rows: Rows, spans: Spans, match: Match) -> Rows:
    text = stored_text(match.text)
    starts, lengths = spans
    fits = lengths >= len(text) if match.is_prefix else lengths == len(text)
    fits &= _inside(region, starts, lengths)
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
    labelled: Rows = rows[words[starts - _WORD] == np.uint64(int.from_bytes(LABEL, "little"))]
    return labelled


def only_live(region: Region, rows: Rows) -> Rows:
    live: Rows = rows[region.rows["deleted"][rows] != DELETED]
    return live


def _spans(region: Region, rows: Rows) -> Spans:
    """Where the tag text of each row starts in `dat`, and how long it is; below 0: no tag."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    return _tag_spans(region.rows[rows], region.base_seq + rows, starts)


def _spans_between(region: Region, first: int, stop: int) -> Spans:
    """The same for rows `first` to `stop` (exclusive), three times as fast."""
    starts = np.empty(stop - first, dtype=np.int64)
    starts[:1] = region.position(first)
    starts[1:] = region.rows["end"][first : stop - 1]
    seqs = np.arange(region.base_seq + first, region.base_seq + stop)
    return _tag_spans(region.rows[first:stop], seqs, starts)


def _tag_spans(rows: segment.Rows, seqs: Rows, starts: Rows) -> Spans:
    prefixes = 16 + len(LABEL) + segment.digits(seqs) + segment.digits(rows["ts"])
    return starts + prefixes, rows["tag_len"].astype(np.int64) - len(LABEL) - len(CLOSE)


def _inside(region: Region, starts: Rows, lengths: Rows) -> npt.NDArray[np.bool_]:
    """Which tags lie where a tag can be: a damaged row may lead anywhere."""
    ends: npt.NDArray[np.bool_] = starts + lengths + _BEHIND <= len(region.dat)
    return ends & (starts >= _WORD) & (lengths >= 0)


def _gather(region: Region, starts: Rows, lengths: Rows) -> npt.NDArray[np.bytes_]:
    """Tag texts as one array of fixed width, which sorts without the interpreter.

    A tag cannot contain a zero byte (JSON escapes it), so padding with zeros keeps the order.
    """
    width = max(int(lengths.max(initial=0)), 1)
    dat = np.frombuffer(region.dat, dtype=np.uint8)
    texts = np.zeros((len(starts), width), dtype=np.uint8)
    for at in range(width):
        longer = np.flatnonzero(lengths > at)
        texts[longer, at] = dat[starts[longer] + at]
    return texts.view(f"S{width}").ravel()

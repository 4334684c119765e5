"""From rows to bytes: which records of a region a read returns, as few slices as possible.

Consecutive visible records are one slice of the mapped file. Holes (deleted records, a
reader's own node, tags that a read filter does not match) split it into runs, found with a
numpy mask. Only a read that leaves out a member some record has (tags by default, meta on
request) cuts record by record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.model.match import Match
from topicsd.model.record import DELETED, END, HAS_KEY, HAS_META, prefix
from topicsd.storage.shelf import Region
from topicsd.storage.tags import scan_rows

# Rows looked at for one page when holes keep it from filling.
WINDOW_MIN = 4096

Part = memoryview | bytes
_DATA = b'"data":'


class Want(NamedTuple):
    """What a page may hold, and what its records leave out."""

    limit: int
    budget: int
    nodes: frozenset[bytes]
    node_hashes: tuple[int, ...]
    include_tags: bool
    include_meta: bool
    # Whether any record of the log may be deleted; saves looking when none is.
    holes: bool = True
    # Only records whose tag matches are delivered.
    match: Match | None = None
    # Without it a record is just its seq, time, tag and node.
    include_data: bool = True


class Slices(NamedTuple):
    """The records found: comma-terminated parts, and how far the scan came."""

    parts: list[Part]
    records: int
    size: int
    next_row: int


def scan(region: Region, first: int, last: int, want: Want) -> Slices:
    """Collect visible records of rows `first` to `last` (exclusive) within the limits.

    The budget lets one record through whatever its size; pass a budget of 0 or less only
    when nothing may be added any more.
    """
    last = min(last, first + max(want.limit, WINDOW_MIN))
    rows = region.rows[first:last]
    hidden = _hidden(region, rows, first, want)
    if hidden is None:
        count = min(len(rows), want.limit)
        kept: npt.NDArray[np.intp] | None = None
        ends = rows["end"][:count]
    else:
        kept = np.flatnonzero(~hidden)[: want.limit]
        ends = rows["end"][kept]
    if len(ends) == 0:
        return Slices([], 0, 0, last)
    start = region.position(first)
    if kept is None or want.match is None:
        fitting = _within_budget(ends, start, want.budget)
    else:
        # Between two matches may lie megabytes that are not delivered: they cost no budget.
        fitting = _within_budget(_totals(region, first + kept), 0, want.budget)
    if kept is None:
        next_row = first + fitting
    elif fitting == len(ends) < want.limit:
        next_row = last
    else:
        next_row = first + int(kept[fitting - 1]) + 1
    flags = int(np.bitwise_or.reduce(rows["flags"])) if len(rows) else 0
    cut = (
        not want.include_data
        or (not want.include_tags and flags & HAS_KEY)
        or (not want.include_meta and flags & HAS_META)
    )
    if cut:
        indexes = range(fitting) if kept is None else kept[:fitting].tolist()
        parts = [part for row in indexes for part in _trimmed(region, first + row, want)]
    elif kept is None:
        parts = [region.dat[start : int(ends[fitting - 1])]]
    else:
        parts = _runs(region, first, kept[:fitting])
    return Slices(parts, fitting, sum(map(len, parts)), next_row)


def _hidden(
    region: Region, rows: npt.NDArray[np.void], first: int, want: Want
) -> npt.NDArray[np.bool_] | None:
    """A mask of rows not to deliver, or None when every row is visible."""
    if not want.holes and not want.node_hashes and want.match is None:
        return None
    mask = rows["deleted"] == DELETED
    if want.match is not None:
        other = np.ones(len(rows), dtype=np.bool_)
        other[scan_rows(region, first + len(rows), want.match, first=first) - first] = False
        mask |= other
    for node_hash in want.node_hashes:
        own = rows["node_hash"] == node_hash
        for row in np.flatnonzero(own).tolist():
            # Equal hashes are not equal nodes: compare the bytes.
            if _node(region, first + row) not in want.nodes:
                own[row] = False
        mask |= own
    return mask if mask.any() else None


def _node(region: Region, row: int) -> bytes:
    """The JSON string of a record's node, as stored."""
    start = region.position(row)
    head = prefix(region.base_seq + row, int(region.rows["ts"][row]))
    tag_len, head_len = int(region.rows["tag_len"][row]), int(region.rows["head_len"][row])
    member = region.dat[start + len(head) + tag_len : start + len(head) + head_len]
    return bytes(member)[len(b'"$node":') : -len(b',"data":')]


def _totals(region: Region, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Bytes of these records, added up."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    totals: npt.NDArray[np.int64] = np.cumsum(ends[rows].astype(np.int64) - starts)
    return totals


def _within_budget(ends: npt.NDArray[np.integer[Any]], start: int, budget: int) -> int:
    """How many records fit, by the bytes up to each one's end; at least one."""
    if int(ends[-1]) - start <= budget:
        return len(ends)
    return max(int(np.searchsorted(ends, start + budget, side="right")), 1)


def _runs(region: Region, first: int, kept: npt.NDArray[np.intp]) -> list[Part]:
    """One slice for each run of consecutive rows."""
    breaks = np.flatnonzero(np.diff(kept) != 1)
    heads = kept[np.concatenate(([0], breaks + 1))].tolist()
    tails = kept[np.concatenate((breaks, [len(kept) - 1]))].tolist()
    ends = region.rows["end"]
    return [
        region.dat[region.position(first + head) : int(ends[first + tail])]
        for head, tail in zip(heads, tails, strict=True)
    ]


def _trimmed(region: Region, row: int, want: Want) -> list[Part]:
    """One record without the members the reader left out."""
    start, end = region.position(row), int(region.rows["end"][row])
    _, _, _, _, _, head_len, tag_len, tail_len, _, _ = region.rows[row].tolist()
    parts: list[Part] = []
    if not want.include_data:
        head = prefix(region.base_seq + row, int(region.rows["ts"][row]))
        after = start + len(head) + (0 if want.include_tags else tag_len)
        labels = region.dat[after : start + len(head) + head_len - len(_DATA)]
        # The comma after the last member gives way to the brace.
        return [(head + bytes(labels))[:-1], END]
    if tag_len and not want.include_tags:
        head = prefix(region.base_seq + row, int(region.rows["ts"][row]))
        parts.append(head)
        start += len(head) + tag_len
    if tail_len > len(END) and not want.include_meta:
        return [*parts, region.dat[start : end - tail_len], END]
    return [*parts, region.dat[start:end]]

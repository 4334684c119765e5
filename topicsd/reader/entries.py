"""Entries of a log as streams deliver them: payloads alone, cut out of the stored records.

The rows say where each payload lies, so that a page is computed with a few numpy operations
and cut in one pass. Deleted records and other keys are left out; a corrupt record ends the
page before it, and is refused when the page begins with it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.model import errors
from topicsd.model.match import Match
from topicsd.model.record import DELETED
from topicsd.rules.floors import Floors
from topicsd.storage.segment import digits
from topicsd.storage.shelf import Region
from topicsd.storage.tags import scan_rows
from topicsd.storage.view import Snapshot

# `{"$seq":` and `,"$ts":` and `,`: what surrounds the two numbers of a stored record.
PREFIX_BYTES: Final = 16
WINDOW_ROWS: Final = 4096
# Entries looked at for one page, however few of them have the key.
SCANNED_MAX: Final = 262_144


class EntryQuery(NamedTuple):
    """What to read: after a seq, up to another one, within a budget of bytes."""

    from_seq: int
    until_seq: int
    max_bytes: int
    max_entries: int
    match: Match | None = None


class EntryPage(NamedTuple):
    """Payloads, the seq after which to read on, and where the log stands."""

    parts: list[bytes]
    size: int
    next_seq: int
    earliest_seq: int
    # Whether a limit ended the page before `until_seq` or the head.
    full: bool


class StreamStatus(NamedTuple):
    """What a board row says of a stream."""

    head_seq: int
    closed: bool
    gone: bool
    accessed_ms: int
    payload_bytes: int
    records: int
    last_write_ts: int


def read_entries(snapshot: Snapshot, floors: Floors, query: EntryQuery) -> EntryPage:
    """One page; `next_seq` is the last seq that needs not be looked at again."""
    stop = min(query.until_seq, floors.head_seq)
    first = max(query.from_seq + 1, floors.earliest_seq)
    collector = _Collector(query, max(first - 1, query.from_seq))
    bases = snapshot.bases()
    for index in range(snapshot.find(first), len(bases)):
        if bases[index] > stop or collector.full or collector.seen >= stop:
            break
        region, rows = snapshot.region(index)
        low = min(max(collector.seen + 1 - region.base_seq, 0), rows)
        high = min(rows, stop - region.base_seq + 1)
        collector.take(region, low, high, snapshot.session_row(region, rows))
    seen = collector.seen if collector.full else max(stop, query.from_seq)
    return EntryPage(collector.parts, collector.size, seen, floors.earliest_seq, collector.full)


class _Collector:
    """Gathers payloads until a limit is reached."""

    def __init__(self, query: EntryQuery, seen: int) -> None:
        self._query = query
        self.parts: list[bytes] = []
        self.size = 0
        self.seen = seen
        self.full = False
        self._scanned = 0

    def take(self, region: Region, low: int, high: int, session_row: int) -> None:
        """Add rows `low` to `high` (exclusive) of a segment, so far as they fit."""
        while low < high and not self.full:
            last = min(high, low + WINDOW_ROWS)
            region.verify(low, last, session_row)
            bad = min((row for row in region.bad if low <= row < last), default=None)
            if bad == low:
                self._refuse(region, low)
                return
            last = last if bad is None else bad
            self._take_window(region, low, last)
            self._scanned += last - low
            if self._scanned >= SCANNED_MAX:
                self.full = True
            low = last

    def _refuse(self, region: Region, row: int) -> None:
        if not self.parts:
            raise errors.storage_corrupt(
                region.path.name, region.file_position(row), "the entry is damaged"
            )
        self.full = True

    def _take_window(self, region: Region, low: int, last: int) -> None:
        rows = region.rows[low:last]
        kept = self._kept(region, rows, low, last)
        if len(kept):
            starts, ends = _payloads(region, rows, low, kept)
            fitting = self._fitting(ends - starts)
            dat = region.dat
            self.parts += [
                bytes(dat[start:end])
                for start, end in zip(
                    starts[:fitting].tolist(), ends[:fitting].tolist(), strict=True
                )
            ]
            self.size += int((ends[:fitting] - starts[:fitting]).sum())
            if fitting < len(kept):
                self.full = True
                if fitting:
                    self.seen = region.base_seq + low + int(kept[fitting - 1])
                return
        self.seen = region.base_seq + last - 1

    def _kept(
        self, region: Region, rows: npt.NDArray[np.void], low: int, last: int
    ) -> npt.NDArray[np.int64]:
        live = rows["deleted"] != DELETED
        if self._query.match is not None:
            wanted = np.zeros(len(rows), dtype=np.bool_)
            wanted[scan_rows(region, last, self._query.match, first=low) - low] = True
            live &= wanted
        return np.flatnonzero(live)

    def _fitting(self, sizes: npt.NDArray[np.int64]) -> int:
        """How many of the next payloads fit; the first one of a page always does."""
        room = self._query.max_bytes - self.size
        fitting = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
        if not self.parts:
            fitting = max(fitting, 1)
        return min(fitting, self._query.max_entries - len(self.parts))


def _payloads(
    region: Region, rows: npt.NDArray[np.void], low: int, kept: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the payloads of these rows begin and end."""
    ends = rows["end"].astype(np.int64)
    begins = np.concatenate(([region.position(low)], ends[:-1]))
    seqs = np.arange(region.base_seq + low, region.base_seq + low + len(rows))
    begins += PREFIX_BYTES + digits(seqs) + digits(rows["ts"]) + rows["head_len"]
    return begins[kept], ends[kept] - rows["tail_len"][kept]

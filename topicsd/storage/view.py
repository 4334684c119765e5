"""One instant of one log: its board row, its floors now, and its segments.

Expiry is a function of the clock, so the row's floor is only a lower bound: the true one is
found by binary search over segments and rows, because timestamps never decrease with seq.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.model.record import DELETED, END, ROW_DTYPE
from topicsd.storage import place
from topicsd.storage.board import FLAG_RESIDENT, BoardRow
from topicsd.storage.shelf import Region, SegmentKey, Shelf

# Few enough that finding the first of them costs little, enough to pay for the call.
WINDOW_ROWS = 1024
_META_LABEL_BYTES = len(b',"meta":')


class Stale(Exception):
    """The log moved while it was read: take a new snapshot."""


class Eviction(NamedTuple):
    """Live records to give up: all up to `last_seq`."""

    last_seq: int
    records: int
    payload_bytes: int


class Snapshot:
    """Reads of one log at one board row."""

    def __init__(self, shelf: Shelf, row: BoardRow, session: int) -> None:
        self._shelf = shelf
        self.row = row
        self._session = session
        self._resident = bool(row.flags & FLAG_RESIDENT)
        self._bases: list[int] | None = None
        self._active: Region | None = None

    def bases(self) -> list[int]:
        """Base seqs of all segments, the active one last."""
        if self._bases is None:
            row = self.row
            if place.is_packed(row.location) or row.location == place.NOWHERE:
                older: list[int] = []
            else:
                older = self._shelf.bases(row.log_id, row.shelf_generation, resident=self._resident)
            self._bases = [*older[: bisect_left(older, row.active_base)], row.active_base]
        return self._bases

    def region(self, index: int) -> tuple[Region, int]:
        """A segment by its place in `bases()`, and how many rows of it are visible."""
        row, bases = self.row, self.bases()
        key = SegmentKey(self._resident, row.log_id, bases[index])
        if index < len(bases) - 1:
            region = self._open(key)
            rows = min(bases[index + 1] - bases[index], len(region.rows))
            return region, region.seal.rows if region.seal else rows
        if self._active is None:
            self._active = self._open_active(key)
        return self._active, row.active_rows

    def find(self, seq: int) -> int:
        """Place in `bases()` of the segment that holds `seq`, or of the one before it."""
        return max(bisect_right(self.bases(), seq) - 1, 0)

    def session_row(self, region: Region, rows: int) -> int:
        """Rows below this one were not written by the running engine."""
        if self.row.session != self._session:
            return rows
        return min(max(self.row.session_seq - region.base_seq + 1, 0), rows)

    def expired_below(self, now_ms: int) -> int:
        """The first seq that is not expired at `now_ms`; head + 1 when all are."""
        row = self.row
        if not row.ttl_ms or row.live == 0:
            return row.ttl_floor
        alive = self._first_alive(now_ms - row.ttl_ms)
        # Below the earliest record nothing expires any more: something else took it before.
        return alive if alive > row.earliest_seq else row.ttl_floor

    def first_visible(self, seq: int) -> int:
        """The first record at or above `seq` that is not deleted; head + 1 when none is."""
        for region, low, high in self._windows(seq, self.row.head_seq + 1):
            live = np.flatnonzero(region.rows["deleted"][low:high] != DELETED)
            if len(live):
                return region.base_seq + low + int(live[0])
        return self.row.head_seq + 1

    def live_between(self, first_seq: int, stop_seq: int) -> tuple[int, int]:
        """Live records and payload bytes from `first_seq` up to, excluding, `stop_seq`."""
        records = payload = 0
        for region, low, high in self._windows(first_seq, stop_seq):
            sizes = payload_sizes(region, low, high)
            records += int(np.count_nonzero(sizes >= 0))
            payload += int(sizes[sizes >= 0].sum())
        return records, payload

    def plan_eviction(self, over_records: int, over_bytes: int) -> Eviction:
        """The oldest live records to give up so that both excesses are covered."""
        records = payload = 0
        last_seq = 0
        for region, low, high in self._windows(self.row.earliest_seq, self.row.head_seq + 1):
            if records >= over_records and payload >= over_bytes:
                break
            sizes = payload_sizes(region, low, high)
            live = np.flatnonzero(sizes >= 0)
            if not len(live):
                continue
            sums = np.cumsum(sizes[live])
            by_bytes = int(np.searchsorted(sums, over_bytes - payload, side="left")) + 1
            wanted = max(over_records - records, by_bytes if over_bytes > payload else 0)
            taken = min(wanted, len(live))
            records += taken
            payload += int(sums[taken - 1])
            last_seq = region.base_seq + low + int(live[taken - 1])
        return Eviction(last_seq, records, payload)

    def _windows(self, first_seq: int, stop_seq: int) -> Iterator[tuple[Region, int, int]]:
        """The rows that hold a range of seqs, a bounded number at a time."""
        bases = self.bases()
        for index in range(self.find(first_seq), len(bases)):
            if bases[index] >= stop_seq:
                return
            region, rows = self.region(index)
            low = min(max(first_seq - region.base_seq, 0), rows)
            high = min(max(stop_seq - region.base_seq, 0), rows)
            for start in range(low, high, WINDOW_ROWS):
                yield region, start, min(start + WINDOW_ROWS, high)

    def _first_alive(self, oldest_ts: int) -> int:
        """The first seq with ts >= oldest_ts, from the earliest one on."""
        bases = self.bases()
        for index in range(self.find(self.row.earliest_seq), len(bases)):
            region, rows = self.region(index)
            if rows and int(region.rows["ts"][rows - 1]) >= oldest_ts:
                # Not numpy's search, which would first copy the whole column.
                return region.base_seq + bisect_left(region.rows["ts"], oldest_ts, 0, rows)
        return self.row.head_seq + 1

    def _open_active(self, key: SegmentKey) -> Region:
        row = self.row
        if row.active_rows == 0:
            # A segment has files, or a block, from its first record on.
            return Region(key, np.empty(0, dtype=ROW_DTYPE), memoryview(b""), Path())
        if row.location == place.OWN_FILES:
            return self._open(key, row.active_rows, row.active_end)
        return self._shelf.open_packed(key, row.location, row.active_rows, row.active_end)

    def _open(self, key: SegmentKey, rows: int | None = None, end: int | None = None) -> Region:
        try:
            return self._shelf.open(key, rows, end)
        except FileNotFoundError:
            raise Stale from None


def payload_sizes(region: Region, low: int, high: int) -> npt.NDArray[np.int64]:
    """Payload bytes (data plus meta) of rows `low` to `high` (exclusive); -1 when deleted."""
    rows = region.rows[low:high]
    ends = rows["end"].astype(np.int64)
    starts = np.concatenate(([region.position(low)], ends[:-1]))
    seqs = np.arange(region.base_seq + low, region.base_seq + high)
    # The prefix is {"$seq":N,"$ts":T, : 16 bytes and the digits of both numbers.
    prefixes = 16 + _digits(seqs) + _digits(rows["ts"])
    tails = rows["tail_len"].astype(np.int64)
    meta = np.where(tails > len(END), tails - len(END) - _META_LABEL_BYTES, 0)
    data = ends - starts - prefixes - rows["head_len"] - tails
    return np.where(rows["deleted"] == DELETED, -1, data + meta)


def _digits(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Decimal digits of positive integers."""
    powers = 10 ** np.arange(1, 19, dtype=np.int64)
    return np.searchsorted(powers, values, side="right").astype(np.int64) + 1

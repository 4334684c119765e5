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

from topicsd.model.record import DELETED, ROW_DTYPE
from topicsd.storage import place, segment
from topicsd.storage.board import FLAG_GAPS, FLAG_HOLES, FLAG_RESIDENT, BoardRow
from topicsd.storage.shelf import Region, SegmentKey, Shelf

# Few enough that finding the first of them costs little, enough to pay for the call.
WINDOW_ROWS = 1024
# A walk that goes on takes larger steps.
WINDOW_ROWS_MAX = 65_536
# Up to so many rows, looking at each beats looking at the whole segment.
FEW_ROWS = 64


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
        self._tier = place.RAM if row.flags & FLAG_RESIDENT else place.DISK
        self._bases: list[int] | None = None
        self._cold: frozenset[int] = frozenset()
        self._active: Region | None = None

    def bases(self) -> list[int]:
        """Base seqs of all segments, the active one last."""
        if self._bases is None:
            row = self.row
            if place.is_packed(row.location) or row.location == place.NOWHERE:
                older: list[int] = []
            else:
                older, self._cold = self._shelf.list_segments(
                    row.log_id, row.shelf_generation, tier=self._tier
                )
            self._bases = [*older[: bisect_left(older, row.active_base)], row.active_base]
        return self._bases

    def key(self, index: int) -> SegmentKey:
        """Where a segment is, by its place in `bases()`."""
        base_seq = self.bases()[index]
        tier = place.COLD if base_seq in self._cold else self._tier
        return SegmentKey(tier, self.row.log_id, base_seq)

    def region(self, index: int) -> tuple[Region, int]:
        """A segment by its place in `bases()`, and how many rows of it are visible."""
        row, bases = self.row, self.bases()
        key = self.key(index)
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
        """The seq above the last live record that is expired at `now_ms`.

        Deleted records do not count, whatever their age: losing them told nobody anything.
        """
        row = self.row
        if not row.ttl_ms or row.live == 0:
            return row.ttl_floor
        floor = self.first_since(now_ms - row.ttl_ms)
        if floor <= row.earliest_seq:
            return row.ttl_floor
        if row.flags & (FLAG_HOLES | FLAG_GAPS) == FLAG_HOLES:
            # With a gap the floor stays above it, so that the gap is told with the rest.
            floor = self._last_live(floor) + 1
        return max(floor, row.ttl_floor)

    def first_visible(self, seq: int) -> int:
        """The first record at or above `seq` that is not deleted; head + 1 when none is."""
        for region, low, high in self._windows(seq, self.row.head_seq + 1):
            live = np.flatnonzero(region.rows["deleted"][low:high] != DELETED)
            if len(live):
                return region.base_seq + low + int(live[0])
        return self.row.head_seq + 1

    def list_live(self, first_seq: int, limit: int, stop_seq: int | None = None) -> list[int]:
        """The first `limit` records at or above `first_seq` that are not deleted.

        Looks no further than it must: the cost is that of what it finds.
        """
        found: list[int] = []
        if limit <= 0:
            return found
        stop = self.row.head_seq + 1 if stop_seq is None else stop_seq
        first_seq, window = max(first_seq, self.row.earliest_seq), min(2 * limit, WINDOW_ROWS)
        for region, low, high in self._windows(first_seq, stop, window):
            live = np.flatnonzero(region.rows["deleted"][low:high] != DELETED)
            found += (live[: limit - len(found)] + (region.base_seq + low)).tolist()
            if len(found) >= limit:
                break
        return found

    def live_between(
        self, first_seq: int, stop_seq: int, *, recount: bool = False
    ) -> tuple[int, int]:
        """Live records and payload bytes from `first_seq` up to, excluding, `stop_seq`.

        A sealed segment that lies inside the range is counted by its seal. With `recount`
        the delete flags of all records are looked at, whatever the board row says of holes.
        """
        records = payload = 0
        holes = recount or self._has_holes()
        bases = self.bases()
        for index in range(self.find(first_seq), len(bases)):
            if bases[index] >= stop_seq:
                break
            region, rows = self.region(index)
            low = min(max(first_seq - region.base_seq, 0), rows)
            high = min(max(stop_seq - region.base_seq, 0), rows)
            if region.seal is not None and (low, high) == (0, rows):
                found = _live_by_seal(region, region.seal, holes=holes)
            else:
                found = _live_by_rows(region, low, high)
            records += found[0]
            payload += found[1]
        return records, payload

    def plan_eviction(self, over_records: int, over_bytes: int) -> Eviction:
        """The oldest live records to give up so that both excesses are covered.

        Sealed segments that go as a whole are counted by their seals: the cost is that of
        their number, not of their records.
        """
        taken = Eviction(0, 0, 0)
        bases = self.bases()
        for index in range(self.find(self.row.earliest_seq), len(bases)):
            if taken.records >= over_records and taken.payload_bytes >= over_bytes:
                break
            records, payload = over_records - taken.records, over_bytes - taken.payload_bytes
            region, _ = self.region(index)
            seal, whole = region.seal, region.base_seq >= self.row.earliest_seq
            if seal and whole and (records >= seal.rows or payload >= seal.payload_bytes):
                more = self._evict_segment(region, seal)
            else:
                more = self._evict_rows(index, records, payload)
            if more.records:
                sums = (taken.records + more.records, taken.payload_bytes + more.payload_bytes)
                taken = Eviction(more.last_seq, *sums)
        return taken

    def _evict_segment(self, region: Region, seal: segment.Seal) -> Eviction:
        stop_seq = region.base_seq + seal.rows
        holes = self._has_holes()
        records, payload = _live_by_seal(region, seal, holes=holes)
        last_seq = self._last_live(stop_seq) if holes and records else stop_seq - 1
        return Eviction(last_seq, records, payload)

    def _evict_rows(self, index: int, over_records: int, over_bytes: int) -> Eviction:
        """The same in one segment, record by record."""
        records = payload = last_seq = 0
        bases = self.bases()
        first_seq = max(self.row.earliest_seq, bases[index])
        stop_seq = bases[index + 1] if index + 1 < len(bases) else self.row.head_seq + 1
        for region, low, high in self._windows(first_seq, stop_seq):
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

    def _has_holes(self) -> bool:
        return bool(self.row.flags & FLAG_HOLES)

    def _windows(
        self, first_seq: int, stop_seq: int, first_rows: int = WINDOW_ROWS
    ) -> Iterator[tuple[Region, int, int]]:
        """The rows that hold a range of seqs, a bounded number at a time, few at first."""
        bases = self.bases()
        for index in range(self.find(first_seq), len(bases)):
            if bases[index] >= stop_seq:
                return
            region, rows = self.region(index)
            low = min(max(first_seq - region.base_seq, 0), rows)
            high = min(max(stop_seq - region.base_seq, 0), rows)
            window = first_rows
            while low < high:
                yield region, low, min(low + window, high)
                low, window = low + window, min(4 * window, WINDOW_ROWS_MAX)

    def first_since(self, oldest_ts: int) -> int:
        """The first seq with ts >= oldest_ts, from the earliest one on."""
        bases = self.bases()
        for index in range(self.find(self.row.earliest_seq), len(bases)):
            region, rows = self.region(index)
            if rows and int(region.rows["ts"][rows - 1]) >= oldest_ts:
                # Not numpy's search, which would first copy the whole column.
                return region.base_seq + bisect_left(region.rows["ts"], oldest_ts, 0, rows)
        return self.row.head_seq + 1

    def _last_live(self, stop_seq: int) -> int:
        """The last record below `stop_seq` that is not deleted; there is one."""
        for index in range(self.find(stop_seq - 1), -1, -1):
            region, rows = self.region(index)
            high = min(max(stop_seq - region.base_seq, 0), rows)
            for stop in range(high, 0, -WINDOW_ROWS):
                start = max(stop - WINDOW_ROWS, 0)
                live = np.flatnonzero(region.rows["deleted"][start:stop] != DELETED)
                if len(live):
                    return region.base_seq + start + int(live[-1])
        return self.row.earliest_seq

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


def payload_sizes(
    region: Region, low: int, high: int, *, deleted_too: bool = False
) -> npt.NDArray[np.int64]:
    """Payload bytes (data plus meta) of rows `low` to `high` (exclusive); -1 when deleted."""
    rows = region.rows[low:high]
    sizes = segment.payload_sizes(rows, region.base_seq + low, region.position(low))
    if not deleted_too:
        sizes[rows["deleted"] == DELETED] = -1
    return sizes


def _live_by_rows(region: Region, low: int, high: int) -> tuple[int, int]:
    sizes = payload_sizes(region, low, high)
    live = sizes[sizes >= 0]
    return len(live), int(live.sum())


def _live_by_seal(region: Region, seal: segment.Seal, *, holes: bool) -> tuple[int, int]:
    if not holes:
        return seal.rows, seal.payload_bytes
    deleted = np.flatnonzero(region.rows["deleted"] == DELETED)
    if not len(deleted):
        return seal.rows, seal.payload_bytes
    if len(deleted) > FEW_ROWS:
        return _live_by_rows(region, 0, seal.rows)
    sizes = [payload_sizes(region, row, row + 1, deleted_too=True) for row in deleted.tolist()]
    gone = int(np.concatenate(sizes).sum())
    return seal.rows - len(deleted), seal.payload_bytes - gone

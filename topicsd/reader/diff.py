"""The core read: records after a cursor, with a tombstone when some were lost (API 3).

Snapshot, floors, scan, over as many segments as the limits allow. Corrupt records found on
the way are withheld and reported like any other involuntary loss.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from topicsd.model.match import Match
from topicsd.model.record import key_hash
from topicsd.reader.scan import Part, Want, scan
from topicsd.rules.floors import Floors, ReadPlan, Tombstone, plan_read
from topicsd.storage.view import Snapshot

# Records one page looks at, however few of them it may deliver: what a filter costs at most
# before the reader gets its cursor back.
SCANNED_MAX = 65_536

_encode = msgspec.json.encode


class DiffQuery(msgspec.Struct, frozen=True):
    """A validated and clamped diff request."""

    from_seq: int
    limit: int
    nodes: tuple[str, ...]
    include_tags: bool
    include_meta: bool
    max_bytes: int
    match: Match | None = None
    include_data: bool = True
    # Nothing above this seq is delivered.
    until_seq: int | None = None


class Losses(NamedTuple):
    """Seqs lost in the middle, in order, and those of them that stand for a source's loss."""

    gaps: list[tuple[int, int]] = []
    trims: frozenset[int] = frozenset()


class DiffPage(msgspec.Struct, frozen=True):
    """Records in wire form, comma-separated, and the cursor after them.

    A single run of records is a view of the mapped segment: copy it before the next await.
    """

    records: bytes | memoryview
    count: int
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int


def build_want(query: DiffQuery, *, dedupe_node: bool) -> Want:
    nodes = query.nodes if dedupe_node else ()
    return Want(
        limit=query.limit,
        budget=query.max_bytes,
        nodes=frozenset(_encode(node) for node in nodes),
        node_hashes=tuple({key_hash(node) for node in nodes}),
        include_tags=query.include_tags,
        include_meta=query.include_meta,
        match=query.match,
        include_data=query.include_data,
    )


def read_page(
    snapshot: Snapshot, floors: Floors, query: DiffQuery, losses: Losses, want: Want
) -> DiffPage:
    """One page for a cursor."""
    plan = _plan(query, floors, losses)
    collector = _Collector(snapshot, want)
    corrupt = collector.collect(plan)
    if corrupt and collector.count == 0 and plan.tombstone is None:
        # The cursor stands at corrupt records: report them and read on behind them.
        losses = losses._replace(gaps=sorted([*losses.gaps, corrupt]))
        plan = _plan(query, floors, losses)
        collector = _Collector(snapshot, want)
        collector.collect(plan)
    return DiffPage(
        records=collector.join(),
        count=collector.count,
        next_from_seq=collector.next_seq - 1,
        head_seq=floors.head_seq,
        earliest_seq=floors.earliest_seq,
        tombstone=plan.tombstone,
        scanned=collector.scanned,
    )


def _plan(query: DiffQuery, floors: Floors, losses: Losses) -> ReadPlan:
    plan = plan_read(query.from_seq, floors, losses.gaps, losses.trims)
    if query.until_seq is None or query.until_seq >= plan.stop:
        return plan
    return plan._replace(stop=max(query.until_seq, plan.start - 1))


class _Collector:
    """Gathers slices segment by segment until a limit is reached."""

    def __init__(self, snapshot: Snapshot, want: Want) -> None:
        self._snapshot = snapshot
        self._want = want
        self.parts: list[Part] = []
        self.count = 0
        self.scanned = 0
        self.next_seq = 0
        self._size = 0
        # The next record does not fit: nothing behind it may be added either.
        self._closed = False
        self._scanned_max = max(SCANNED_MAX, want.limit)

    def collect(self, plan: ReadPlan) -> tuple[int, int] | None:
        """Read what the plan allows; return the corrupt range that ended the read, if any."""
        snapshot = self._snapshot
        self.next_seq = plan.start
        bases = snapshot.bases()
        for index in range(snapshot.find(plan.start), len(bases)):
            if self._is_full() or self.next_seq > plan.stop:
                break
            if bases[index] > plan.stop:
                break
            corrupt = self._read_segment(index, plan.stop)
            if corrupt is not None:
                return corrupt
        if not self._is_full() and self.next_seq <= plan.stop and self._reached_end(bases):
            self.next_seq = plan.stop + 1
        return None

    def join(self) -> bytes | memoryview:
        """What was gathered, without the last comma."""
        if not self.parts:
            return b""
        last = self.parts.pop()[:-1]
        return b"".join([*self.parts, last]) if self.parts else last

    def _is_full(self) -> bool:
        if self._closed or self.count >= self._want.limit or self.scanned >= self._scanned_max:
            return True
        return self.count > 0 and self._size >= self._want.budget

    def _reached_end(self, bases: list[int]) -> bool:
        """Whether only seqs without records (dropped segments) lie before the plan's end."""
        return self.next_seq >= bases[-1] + self._snapshot.row.active_rows

    def _read_segment(self, index: int, stop_seq: int) -> tuple[int, int] | None:
        region, rows = self._snapshot.region(index)
        first = max(self.next_seq - region.base_seq, 0)
        last = min(rows, stop_seq - region.base_seq + 1)
        while first < last and not self._is_full():
            window = min(last, first + max(self._want.limit - self.count, 4096))
            region.verify(first, window, self._snapshot.session_row(region, rows))
            end = _first_bad(region.bad, first, window) if region.bad else window
            if end == first:
                return _corrupt_range(region.base_seq, region.bad, first)
            found = scan(
                region,
                first,
                end,
                self._want._replace(
                    limit=self._want.limit - self.count, budget=self._want.budget - self._size
                ),
            )
            if self.count and found.size > self._want.budget - self._size:
                self._closed = True
                return None
            self.parts += found.parts
            self.count += found.records
            self._size += found.size
            self.scanned += found.next_row - first
            first = found.next_row
            self.next_seq = region.base_seq + first
        if first >= last:
            self.next_seq = max(self.next_seq, region.base_seq + last)
        return None


def _first_bad(bad: set[int], first: int, last: int) -> int:
    return min((row for row in bad if first <= row < last), default=last)


def _corrupt_range(base_seq: int, bad: set[int], row: int) -> tuple[int, int]:
    last = row
    while last + 1 in bad:
        last += 1
    return base_seq + row, base_seq + last

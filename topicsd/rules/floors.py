"""Floors and tombstones: where a read starts, and which loss it must report.

Two floors are kept apart (DESIGN 5.1). `earliest_seq` is the first live record and moves
for any reason. The involuntary floor moves only when live records were lost: to a cap
(`cap_floor`), to expiry (`ttl_floor`), or because a restart emptied an ephemeral topic
(`lost_floor`). A cursor below the involuntary floor gets a
tombstone; one that merely fell into deleted records advances silently.

Besides the floors a log may have gaps: ranges in the middle that a crash or a corrupt
file took. They are reported the same way, with the reason "lost", when a cursor arrives
at one; a read that starts before a gap ends at it. A delete of the records around a gap
moves `earliest_seq` past it and stays silent, but does not silence the gap: a cursor below
still hears of it, of exactly the lost seqs above the cursor, one gap a response.

A router's destination has gaps of another kind: one seq each, which stands for whatever the
source lost before it could be copied (API 3, reason "source_trim").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

SEQ_BASE = 1
LOST = "lost"
SOURCE_TRIM = "source_trim"


class Floors(NamedTuple):
    """The watermarks that decide a read, all of one instant."""

    head_seq: int
    earliest_seq: int
    cap_floor: int
    ttl_floor: int
    lost_floor: int


class Tombstone(NamedTuple):
    """Involuntary loss, inclusive at both ends (API 3.3)."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class ReadPlan(NamedTuple):
    """Read records from `start` up to and including `stop`, after reporting `tombstone`."""

    start: int
    stop: int
    tombstone: Tombstone | None


def plan_read(
    from_seq: int,
    floors: Floors,
    gaps: Sequence[tuple[int, int]],
    trims: Collection[int] = (),
) -> ReadPlan:
    """Decide what a cursor reads next.

    `gaps` are lost ranges in ascending order; those that begin at one of `trims` stand for
    what a router's source lost.
    """
    tombstone = _below_floor(from_seq, floors)
    if tombstone is None:
        start = from_seq + 1
    else:
        # It tells of everything below the first record, gaps included.
        tombstone = _with_gaps_below(tombstone, floors, gaps, trims)
        start = floors.earliest_seq
    for gap_from, gap_to in gaps:
        if gap_to < start:
            continue
        readable = max(start, floors.earliest_seq)
        if gap_from > readable:
            return ReadPlan(readable, gap_from - 1, tombstone)
        # The gap is entered at its beginning, or in the middle by an old cursor.
        lost_from = max(gap_from, start)
        if tombstone is not None and lost_from > tombstone.gap_to + 1:
            # Only deleted records lie between two gaps: the next read tells of the second.
            return ReadPlan(lost_from, lost_from - 1, tombstone)
        reason = SOURCE_TRIM if gap_from in trims else LOST
        lost = _tombstone(lost_from, gap_to, reason, floors)
        tombstone = lost if tombstone is None else _join(tombstone, lost)
        start = gap_to + 1
    return ReadPlan(max(start, floors.earliest_seq), floors.head_seq, tombstone)


def _below_floor(from_seq: int, floors: Floors) -> Tombstone | None:
    if from_seq > floors.head_seq:
        return _tombstone(SEQ_BASE, floors.head_seq, "recreated", floors)
    wanted = from_seq + 1
    causes = (("cap", floors.cap_floor), ("ttl", floors.ttl_floor), (LOST, floors.lost_floor))
    reasons = [reason for reason, floor in causes if wanted < floor]
    if not reasons:
        return None
    reason = reasons[0] if len(reasons) == 1 else "mixed"
    return _tombstone(wanted, floors.earliest_seq - 1, reason, floors)


def _with_gaps_below(
    tombstone: Tombstone,
    floors: Floors,
    gaps: Sequence[tuple[int, int]],
    trims: Collection[int],
) -> Tombstone:
    """Say "mixed" when a gap in the range was lost to neither cap nor expiry."""
    if tombstone.reason == "recreated":
        return tombstone
    evict_floor = max(floors.cap_floor, floors.ttl_floor, floors.lost_floor)
    reason = tombstone.reason
    for gap_from, gap_to in gaps:
        if gap_to >= max(evict_floor, tombstone.gap_from) and gap_from < floors.earliest_seq:
            reason = _joined_reason(reason, SOURCE_TRIM if gap_from in trims else LOST)
    return tombstone._replace(reason=reason)


def _tombstone(gap_from: int, gap_to: int, reason: str, floors: Floors) -> Tombstone:
    missed = max(gap_to - gap_from + 1, 0)
    return Tombstone(gap_from, gap_to, reason, missed, floors.earliest_seq, floors.head_seq)


def _join(first: Tombstone, second: Tombstone) -> Tombstone:
    """One tombstone for two losses that touch or overlap: a response carries at most one."""
    gap_to = max(first.gap_to, second.gap_to)
    return first._replace(
        gap_to=gap_to,
        reason=_joined_reason(first.reason, second.reason),
        missed_estimate=max(gap_to - first.gap_from + 1, 0),
    )


def _joined_reason(first: str, second: str) -> str:
    return first if first == second else "mixed"

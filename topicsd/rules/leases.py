"""Who holds which job of one queue, as a table that events are applied to (DESIGN 10).

A job is in the table from its first claim (or from its birth, when it is born delayed) until
it is gone from the log. It is *held* while a lease runs, *put off* while it is not claimable
yet, and *free* after that. Whatever is live in the log and not in the table was never
delivered: such jobs are handed out by a cursor, below which every live job is in the table.

Replaying the same events gives the same table. A lease that ran out leaves no event: it is
over by the clock, and the claim that takes the job over says so. `advance` merely sorts jobs
into the right drawer for a moment that never moves back, so counting is O(1) and moving on
costs O(log n) a job, once. Nothing here grows with the backlog.

Entries of a drawer are dropped lazily: one that its job has outlived is skipped when it comes
up, and all of them are swept when they outnumber the jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from topicsd.model.lease import (
    Acked,
    Claimed,
    DeadLettered,
    Delayed,
    Event,
    Extended,
    Released,
)

# Fewer stale entries than this are not worth a sweep.
SWEEP_MIN = 64


class Job(NamedTuple):
    """A job that was delivered or put off; `lease` is 0 when nobody holds it."""

    # From this moment on it is free: the first millisecond after its deadline, or its due time.
    free_at: int
    lease: int
    node: str
    deliveries: int

    @property
    def deadline(self) -> int:
        return self.free_at - 1


class _Drawer:
    """A heap of entries that may be stale."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def push(self, entry: Any, current: Callable[[], Iterable[Any]], size: int) -> None:
        """Add an entry; `current` gives the `size` or so entries that are not stale."""
        if len(self.entries) > 2 * size + SWEEP_MIN:
            self.entries = list(current())
            heapq.heapify(self.entries)
        heapq.heappush(self.entries, entry)


class LeaseTable:
    """The jobs of one queue that are not simply waiting in line."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        # Every live job below it is in the table.
        self.cursor = 1
        # Jobs moved to the dead-letter topic so far.
        self.dead_lettered = 0
        # What changed since somebody last asked, for a checkpoint.
        self.changed: set[int] = set()
        self._now = 0
        self.max_deliveries = 0
        self._held = 0
        # Free jobs, and those of them that may not be delivered once more.
        self._free: set[int] = set()
        self.spent: set[int] = set()
        self._by_time = _Drawer()
        self._by_seq = _Drawer()
        self._free_seqs = _Drawer()
        self._before: dict[int, Job | None] | None = None
        self._numbers = (1, 0)

    @property
    def in_flight(self) -> int:
        """Jobs under a lease that runs, as of the last `advance`."""
        return self._held

    @property
    def free(self) -> int:
        """Jobs that were delivered or put off before and are claimable now."""
        return len(self._free) + len(self.spent)

    @property
    def delayed(self) -> int:
        """Jobs that nobody holds and that are not claimable yet."""
        return len(self.jobs) - self._held - self.free

    @property
    def next_free_at(self) -> int | None:
        """When the next job becomes free, unless something happens to it before."""
        while self._by_time.entries:
            free_at, seq = self._by_time.entries[0]
            if self._is_waiting(free_at, seq):
                return int(free_at)
            heapq.heappop(self._by_time.entries)
        return None

    def advance(self, now: int, max_deliveries: int = 0) -> None:
        """Free what is free at `now`; 0 deliveries stands for any number."""
        if max_deliveries != self.max_deliveries:
            self._limit(max_deliveries)
        self._now = max(self._now, now)
        entries = self._by_time.entries
        while entries and entries[0][0] <= self._now:
            free_at, seq = heapq.heappop(entries)
            if self._is_waiting(free_at, seq):
                self._held -= self.jobs[seq].lease != 0
                self._sort_free(seq)

    def holds(self, seq: int, node: str, lease: int | None) -> bool:
        """Whether a node holds a job, under this very lease if one is given."""
        job = self.jobs.get(seq)
        return (
            job is not None
            and job.lease != 0
            and job.node == node
            and (lease is None or job.lease == lease)
            and not self.is_free(seq)
        )

    def is_free(self, seq: int) -> bool:
        return seq in self._free or seq in self.spent

    def take_free(self, limit: int) -> list[int]:
        """Up to `limit` free jobs that may be delivered, ascending; they stay free until claimed.

        What is taken must be claimed (or the batch rolled back) before the next take.
        """
        taken: list[int] = []
        entries = self._free_seqs.entries
        while entries and len(taken) < limit:
            seq = heapq.heappop(entries)
            # The same job may have been freed twice.
            if seq in self._free and (not taken or taken[-1] != seq):
                taken.append(seq)
        return taken

    def apply(self, event: Event) -> None:
        """Make an event true; jobs it names that are gone by now stay gone."""
        _APPLY[type(event)](self, event)

    def forget(self, seqs: Iterable[int]) -> None:
        """Drop jobs whose records are gone, for whatever reason."""
        for seq in seqs:
            if seq in self.jobs:
                self._set(seq, None)

    def forget_below(self, floor: int) -> None:
        """Drop jobs below the log's first record."""
        entries = self._by_seq.entries
        while entries and entries[0] < floor:
            seq = heapq.heappop(entries)
            if seq in self.jobs:
                self._set(seq, None)
        self.cursor = max(self.cursor, floor)

    def put(self, seq: int, job: Job) -> None:
        """Put a job in as it was saved, or as it turned out to be."""
        self._set(seq, job)

    def begin(self) -> None:
        """Remember what changes from now on, unless that has begun already."""
        if self._before is None:
            self._before = {}
            self._numbers = (self.cursor, self.dead_lettered)

    def keep(self) -> None:
        """What changed since `begin` is there to stay."""
        self._before = None

    def roll_back(self) -> None:
        """Undo everything since `begin`."""
        before, self._before = self._before or {}, None
        self.cursor, self.dead_lettered = self._numbers
        for seq, job in before.items():
            self._set(seq, job)

    def _claimed(self, event: Claimed) -> None:
        free_at, lease, node = event.deadline + 1, event.lease, event.node
        for seq in event.seqs:
            job = self.jobs.get(seq)
            self._set(seq, Job(free_at, lease, node, 1 if job is None else job.deliveries + 1))
            lease += 1
        self.cursor = max(self.cursor, event.cursor)

    def _released(self, event: Released) -> None:
        for seq in event.seqs:
            job = self.jobs.get(seq)
            if job is not None:
                self._set(seq, Job(event.due, 0, "", job.deliveries))

    def _extended(self, event: Extended) -> None:
        for seq in event.seqs:
            job = self.jobs.get(seq)
            if job is not None:
                self._set(seq, job._replace(free_at=event.deadline + 1))

    def _gone(self, event: Acked | DeadLettered) -> None:
        self.forget(event.seqs)

    def _dead_lettered(self, event: DeadLettered) -> None:
        self.dead_lettered += len(event.seqs)
        self._gone(event)

    def _delayed(self, event: Delayed) -> None:
        for seq in event.seqs:
            self._set(seq, Job(event.due, 0, "", 0))

    def _set(self, seq: int, job: Job | None) -> None:
        """The one place where a job changes."""
        old = self.jobs.get(seq)
        if self._before is not None:
            self._before.setdefault(seq, old)
        self.changed.add(seq)
        if old is not None:
            self._leave_drawer(seq, old)
        if job is None:
            self.jobs.pop(seq, None)
            return
        self.jobs[seq] = job
        if old is None:
            self._by_seq.push(seq, lambda: self.jobs, len(self.jobs))
        if job.free_at <= self._now:
            self._sort_free(seq)
            return
        self._held += job.lease != 0
        self._by_time.push((job.free_at, seq), self._waiting, len(self.jobs))

    def _leave_drawer(self, seq: int, old: Job) -> None:
        if seq in self._free:
            self._free.discard(seq)
        elif seq in self.spent:
            self.spent.discard(seq)
        else:
            self._held -= old.lease != 0

    def _sort_free(self, seq: int) -> None:
        if self.max_deliveries and self.jobs[seq].deliveries >= self.max_deliveries:
            self.spent.add(seq)
            return
        self._free.add(seq)
        self._free_seqs.push(seq, lambda: self._free, len(self._free))

    def _limit(self, max_deliveries: int) -> None:
        """Sort free jobs anew after a change of the configuration."""
        self.max_deliveries = max_deliveries
        free = [*self._free, *self.spent]
        self._free, self.spent = set(), set()
        self._free_seqs = _Drawer()
        for seq in free:
            self._sort_free(seq)

    def _is_waiting(self, free_at: int, seq: int) -> bool:
        job = self.jobs.get(seq)
        return job is not None and job.free_at == free_at and not self.is_free(seq)

    def _waiting(self) -> Iterable[tuple[int, int]]:
        return ((job.free_at, seq) for seq, job in self.jobs.items() if not self.is_free(seq))


_APPLY: dict[type, Callable[[LeaseTable, Any], None]] = {
    Claimed: LeaseTable._claimed,
    Released: LeaseTable._released,
    Extended: LeaseTable._extended,
    Acked: LeaseTable._gone,
    Delayed: LeaseTable._delayed,
    DeadLettered: LeaseTable._dead_lettered,
}


def divide(available: int, wants: list[int]) -> list[int]:
    """How many jobs each claimer gets: all it wants, or a share in proportion to that.

    What proportion leaves over goes round, the first claimers first.
    """
    total = sum(wants)
    if total <= available:
        return list(wants)
    shares = [available * want // total for want in wants]
    left = available - sum(shares)
    for index in range(left):
        shares[index] += 1
    return shares

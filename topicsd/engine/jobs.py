"""What holders do with their jobs: ack, nack, extend (API 10.4 to 10.6), and questions.

A seq that the node does not hold, or not under the lease it names, is skipped and told; so
is one whose lease has run out, even when nobody else has claimed it since.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from topicsd.engine import leasing
from topicsd.engine.log import Log
from topicsd.engine.queues import Queue
from topicsd.engine.staging import Batch, Outcome
from topicsd.model.jobs import (
    AckJobs,
    ExtendJobs,
    JobsAcked,
    JobsExtended,
    JobsListed,
    JobsNacked,
    ListedJob,
    ListJobs,
    NackJobs,
    QueueCounts,
    QueueState,
)
from topicsd.model.lease import Acked, Extended, Released
from topicsd.rules.leases import Job, LeaseTable
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

READY, IN_FLIGHT, DELAYED = "ready", "in_flight", "delayed"


def apply_ack(engine: Engine, batch: Batch, outcome: Outcome, command: AckJobs) -> JobsAcked:
    log, queue = _open(engine, batch, outcome, command.topic)
    held, skipped = _sort(queue.table, command)
    if held:
        stage = leasing.record(batch, outcome, log, queue.table, Acked(held))
        leasing.delete(engine, stage, outcome, log, held)
    else:
        # Whoever repeats an ack is told that it is done: that must not be too early.
        engine.commits.await_written(outcome, log)
    ready = engine.queues.ready(log, queue.table)
    return JobsAcked(len(held), skipped, ready, queue.table.in_flight)


def apply_nack(engine: Engine, batch: Batch, outcome: Outcome, command: NackJobs) -> JobsNacked:
    log, queue = _open(engine, batch, outcome, command.topic)
    held, skipped = _sort(queue.table, command)
    if held:
        event = Released(held, engine.clock.now_ms() + command.delay_ms)
        leasing.record(batch, outcome, log, queue.table, event)
    ready = engine.queues.ready(log, queue.table)
    return JobsNacked(len(held), skipped, ready, queue.table.in_flight)


def apply_extend(
    engine: Engine, batch: Batch, outcome: Outcome, command: ExtendJobs
) -> JobsExtended:
    log, queue = _open(engine, batch, outcome, command.topic)
    held, skipped = _sort(queue.table, command)
    deadline = engine.clock.now_ms() + command.lease_ms
    if held:
        leasing.record(batch, outcome, log, queue.table, Extended(held, deadline))
    return JobsExtended(held, skipped, deadline)


def apply_state(engine: Engine, batch: Batch, outcome: Outcome, command: QueueState) -> QueueCounts:
    log, queue = _open(engine, batch, outcome, command.topic)
    table = queue.table
    ready = engine.queues.ready(log, table)
    return QueueCounts(ready, table.in_flight, table.delayed, table.dead_lettered)


def apply_list(engine: Engine, batch: Batch, outcome: Outcome, command: ListJobs) -> JobsListed:
    log, queue = _open(engine, batch, outcome, command.topic)
    after, limit, table = command.after_seq, command.limit, queue.table
    known = heapq.nsmallest(
        limit,
        (
            seq
            for seq, job in table.jobs.items()
            if seq > after and _state(table, seq, job) == command.state
        ),
    )
    found = [_listed(table, seq) for seq in known]
    if command.state == READY:
        fresh = [ListedJob(seq, 0, 0, "", 0) for seq in _fresh(engine, log, table, after, limit)]
        found = sorted([*found, *fresh], key=lambda job: job.seq)[:limit]
    return JobsListed(found)


def _open(engine: Engine, batch: Batch, outcome: Outcome, name: str) -> tuple[Log, Queue]:
    log = engine.queues.get(outcome, name)
    return log, engine.queues.open(batch, log)


def _sort(
    table: LeaseTable, command: AckJobs | NackJobs | ExtendJobs
) -> tuple[list[int], list[int]]:
    """The seqs that the node holds, ascending, and the others, as they were named."""
    node, leases = command.node, command.leases
    held: set[int] = set()
    skipped: list[int] = []
    for place, seq in enumerate(command.seqs):
        lease = leases[place] if leases else None
        if seq not in held and table.holds(seq, node, lease):
            held.add(seq)
        else:
            skipped.append(seq)
    return sorted(held), skipped


def _state(table: LeaseTable, seq: int, job: Job) -> str:
    if table.is_free(seq):
        return READY
    return IN_FLIGHT if job.lease else DELAYED


def _listed(table: LeaseTable, seq: int) -> ListedJob:
    job = table.jobs[seq]
    if table.is_free(seq):
        return ListedJob(seq, job.deliveries, 0, "", 0)
    at = job.deadline if job.lease else job.free_at
    return ListedJob(seq, job.deliveries, job.lease, job.node, at)


def _fresh(engine: Engine, log: Log, table: LeaseTable, after: int, limit: int) -> Iterator[int]:
    """Jobs that were never delivered, from the log itself."""
    snapshot = Snapshot(engine.shelf, log.to_row(), log.session)
    first = max(table.cursor, after + 1)
    while limit > 0:
        live = snapshot.list_live(first, limit)
        if not live:
            return
        first = live[-1] + 1
        for seq in live:
            if seq not in table.jobs:
                limit -= 1
                yield seq

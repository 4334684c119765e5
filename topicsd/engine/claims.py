"""Claims: one pass over a queue serves all who wait for it (API 10.2, DESIGN 10).

A pass hands out free jobs first, then fresh ones from the cursor on. Without a coalescing
window a claim is a pass of its own, at once. With one (`claim_jitter_ms`) claims wait until
the window that the first of them opened has ended, and then share what there is, in
proportion to what each asked for. Streams (`engine.work`) take part in the same passes.

A window is measured by the wall clock, as leases are, and by the monotonic one, so that a
clock that is set back holds nobody up.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from topicsd.engine import dead_letters, leasing, work
from topicsd.engine.log import Log
from topicsd.engine.queues import Queue
from topicsd.engine.staging import Batch, Outcome
from topicsd.model.commands import Command, Reply
from topicsd.model.jobs import ClaimJobs, JobsClaimed
from topicsd.model.lease import LEASE_BITS, Claimed
from topicsd.rules.leases import LeaseTable, divide
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket


class Waiting(NamedTuple):
    """A claim that waits for the end of its window."""

    ticket: Ticket
    command: ClaimJobs


class Claimer(NamedTuple):
    """Somebody who takes part in a pass."""

    outcome: Outcome
    node: str
    want: int
    lease_ms: int
    stream: work.Stream | None = None


class Window(NamedTuple):
    """A coalescing window: the queue, and when it ends."""

    topic: str
    ends_ms: int
    ends_us: int


class Claims:
    """The windows that are open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._windows: dict[int, Window] = {}

    def open_window(self, log: Log) -> None:
        """Begin to gather claimers, unless that has begun already."""
        if log.id not in self._windows:
            clock, width = self._engine.clock, log.config.claim_jitter_ms
            self._windows[log.id] = Window(
                log.name, clock.now_ms() + width, clock.monotonic_us() + width * 1000
            )

    def leave(self, worker: int) -> None:
        """Drop the claims of a worker that is lost: nobody would work on what they get."""
        for log_id in self._windows:
            queue = self._engine.queues.find(log_id)
            if queue is not None:
                queue.waiting = [each for each in queue.waiting if each.command.worker != worker]

    def next_end_us(self) -> int | None:
        """When the next window ends, by the monotonic clock."""
        return min((window.ends_us for window in self._windows.values()), default=None)

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Serve the windows that have ended."""
        engine = self._engine
        now_ms, now_us = engine.clock.now_ms(), engine.clock.monotonic_us()
        ready: list[tuple[Ticket, Reply]] = []
        for log_id, window in list(self._windows.items()):
            if window.ends_ms <= now_ms or window.ends_us <= now_us:
                del self._windows[log_id]
                ready += run_pass(engine, log_id, window.topic)
        return ready + self.push()

    def push(self) -> list[tuple[Ticket, Reply]]:
        """Serve streams whose queue has moved, or has jobs that became free by the clock."""
        engine, now_ms = self._engine, self._engine.clock.now_ms()
        if not engine.streams.open:
            return []
        moved, engine.queues.moved = engine.queues.moved, set()
        ready: list[tuple[Ticket, Reply]] = []
        for queue in engine.streams.queues():
            due = queue.table.next_free_at
            if queue.log_id not in moved and (due is None or due > now_ms):
                continue
            queue.table.advance(now_ms, queue.table.max_deliveries)
            streams = work.hungry(queue)
            if streams:
                ready += self._serve(queue, streams[0].topic)
        # What a pass changed it has served already.
        engine.queues.moved -= moved
        return ready

    def _serve(self, queue: Queue, topic: str) -> list[tuple[Ticket, Reply]]:
        log = self._engine.registry.find(topic)
        if log is not None and log.config.claim_jitter_ms:
            self.open_window(log)
            return []
        return run_pass(self._engine, queue.log_id, topic)


def apply_claim(
    engine: Engine, batch: Batch, outcome: Outcome, command: ClaimJobs
) -> JobsClaimed | None:
    log = engine.queues.get(outcome, command.topic)
    queue = engine.queues.open(batch, log)
    if log.config.claim_jitter_ms:
        queue.waiting.append(Waiting(outcome.ticket, command))
        engine.claims.open_window(log)
        return None
    claimer = Claimer(outcome, command.node, command.max, command.lease_ms)
    _serve(engine, batch, log, queue, [claimer])
    assert isinstance(outcome.reply, JobsClaimed)
    return outcome.reply


def run_pass(engine: Engine, log_id: int, topic: str) -> list[tuple[Ticket, Reply]]:
    """One pass for everybody who waits for a queue, as a commit of its own."""
    log = engine.registry.find(topic)
    queue = engine.queues.find(log_id)
    if log is None or log.id != log_id or queue is None:
        return []
    dead_letters.bury(engine, topic)
    batch = Batch()
    engine.queues.open(batch, log)
    claimers = []
    waiting, queue.waiting = queue.waiting, []
    for ticket, command in waiting:
        outcome = Outcome(ticket)
        batch.outcomes.append(outcome)
        engine.commits.await_catalog(outcome, topic)
        claimers.append(Claimer(outcome, command.node, command.max, command.lease_ms))
    for stream in work.hungry(queue):
        outcome = Outcome(stream.parked)
        claimers.append(Claimer(outcome, stream.node, stream.room, stream.lease_ms, stream))
    _serve(engine, batch, log, queue, claimers)
    return engine.commits.commit(batch)


def find_spent(engine: Engine, command: Command) -> str | None:
    """The queue of a claim if it has jobs to be dead-lettered before anything is claimed."""
    if not isinstance(command, ClaimJobs):
        return None
    log = engine.registry.find(command.topic)
    if log is None or log.config.type != "queue" or not log.config.dead_letter:
        return None
    return log.name if engine.queues.peek(log).table.spent else None


def _serve(engine: Engine, batch: Batch, log: Log, queue: Queue, claimers: list[Claimer]) -> None:
    """Lease what there is to the claimers; a stream that gets nothing goes on waiting."""
    table = queue.table
    wants = [claimer.want for claimer in claimers]
    seqs, cursor = _take(engine, log, table, sum(wants))
    now_ms, start = engine.clock.now_ms(), 0
    for claimer, share in zip(claimers, divide(len(seqs), wants), strict=True):
        part = sorted(seqs[start : start + share])
        start += share
        lease = secrets.randbits(LEASE_BITS)
        deadline = now_ms + (claimer.lease_ms or log.config.lease_ms)
        if part:
            event = Claimed(part, claimer.node, lease, deadline, cursor)
            leasing.record(batch, claimer.outcome, log, table, event)
        deliveries = [table.jobs[seq].deliveries for seq in part]
        claimer.outcome.reply = JobsClaimed(part, lease, deadline, deliveries, 0)
    ready = engine.queues.ready(log, table)
    for claimer in claimers:
        _tell(batch, claimer, ready)


def _tell(batch: Batch, claimer: Claimer, ready: int) -> None:
    reply = claimer.outcome.reply
    assert isinstance(reply, JobsClaimed)
    claimer.outcome.reply = JobsClaimed(
        reply.seqs, reply.lease, reply.deadline, reply.deliveries, ready
    )
    if claimer.stream is not None and reply.seqs:
        claimer.stream.take(reply.seqs, reply.lease)
        batch.outcomes.append(claimer.outcome)


def _take(engine: Engine, log: Log, table: LeaseTable, limit: int) -> tuple[list[int], int]:
    """Up to `limit` claimable jobs, free ones first, and the cursor after them."""
    seqs = table.take_free(limit)
    cursor = table.cursor
    if len(seqs) < limit and cursor <= log.head_seq:
        snapshot = Snapshot(engine.shelf, log.to_row(), log.session)
        while len(seqs) < limit:
            live = snapshot.list_live(cursor, limit - len(seqs))
            if not live:
                cursor = log.head_seq + 1
                break
            cursor = live[-1] + 1
            seqs += _unknown(table, live)
    return seqs, cursor


def _unknown(table: LeaseTable, seqs: Iterable[int]) -> list[int]:
    """Without those that are put off from birth, and are in the table for that."""
    return [seq for seq in seqs if seq not in table.jobs]

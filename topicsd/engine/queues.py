"""Queues in memory: the lease table of each, loaded when it is needed and saved by checkpoints.

The catalog has every table as the last checkpoint saw it; the WAL has the events since. A
table that is loaded is made to agree with the log first: what is not live is dropped, and
what is live below the cursor but unknown (its lease events were lost) is free at once. So a
lost lease is a lease that ran out, and no job is ever lost (DESIGN 10.6).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import Failed, Reply
from topicsd.model.jobs import WorkEnded
from topicsd.model.lease import Event
from topicsd.rules.leases import Job, LeaseTable
from topicsd.storage.catalog import QueueRecord, SaveLeases
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.claims import Waiting
    from topicsd.engine.engine import Engine, Ticket
    from topicsd.engine.work import Stream


class Queue:
    """One queue that is in use."""

    def __init__(self, log_id: int, table: LeaseTable) -> None:
        self.log_id = log_id
        self.table = table
        # Whether the table was compared with the log.
        self.sound = False
        # Checkpoints under way that save a part of it.
        self.saving = 0
        # What the total of all queues counts of it.
        self.counted = 0
        self.waiting: list[Waiting] = []
        self.streams: dict[tuple[int, int], Stream] = {}

    @property
    def in_use(self) -> bool:
        return bool(self.saving or self.counted or self.waiting or self.streams)


class Saving(NamedTuple):
    """What a checkpoint saves, and the queues it is about."""

    change: SaveLeases
    queues: list[Queue]


class Queues:
    """All queues that are in use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loaded: OrderedDict[int, Queue] = OrderedDict()
        # Leases that run, of all queues, as of each one's last change or the last tick.
        self.in_flight = 0
        # Queues with something for a stream to look at.
        self.moved: set[int] = set()

    def get(self, outcome: Outcome, name: str) -> Log:
        """The log of a queue; the reply waits until the catalog knows it, too."""
        log = self._engine.registry.find(name)
        self._engine.commits.await_catalog(outcome, name)
        if log is None:
            raise errors.topic_not_found(name)
        if log.config.type != "queue":
            raise errors.not_a_queue(name)
        return log

    def open(self, batch: Batch, log: Log) -> Queue:
        """A queue as of now: without what expired or was evicted, leases that ran out freed."""
        queue = self._load(log)
        if log not in batch.leases:
            # Staged deletes are in no segment yet, where expiry would look for them.
            self._engine.retention.notice(log, self._engine.clock.now_ms())
            queue.table.forget_below(log.earliest_seq)
        return self.peek(log)

    def peek(self, log: Log) -> Queue:
        """A queue with leases that ran out freed; its log may have records staged."""
        queue, config = self._load(log), log.config
        now_ms = self._engine.clock.now_ms()
        queue.table.advance(now_ms, config.max_deliveries if config.dead_letter else 0)
        return queue

    def find(self, log_id: int) -> Queue | None:
        """A queue, if it is in memory."""
        return self._loaded.get(log_id)

    def ready(self, log: Log, table: LeaseTable) -> int:
        """Claimable jobs: all that are live and neither held nor put off."""
        return log.live - table.in_flight - table.delayed

    def forget(self, log: Log, seqs: Iterable[int]) -> None:
        """Records are deleted: they are no jobs any more."""
        queue = self._loaded.get(log.id)
        if queue is not None:
            queue.table.forget(map(int, seqs))
            self.note_moved(log)

    def drop(self, batch: Batch, log: Log) -> None:
        """A topic is deleted: whoever waits for its jobs is told."""
        queue = self._loaded.pop(log.id, None)
        if queue is None:
            return
        self.in_flight -= queue.counted
        gone = Failed.of(errors.topic_not_found(log.name))
        told: list[tuple[Ticket, Reply]] = [(ticket, gone) for ticket, _ in queue.waiting]
        for number, stream in queue.streams.items():
            self._engine.streams.open.pop(number, None)
            if stream.parked is not None:
                told.append((stream.parked, WorkEnded(True)))
        for ticket, reply in told:
            outcome = Outcome(ticket)
            outcome.reply = reply
            batch.outcomes.append(outcome)

    def note_moved(self, log: Log) -> None:
        """Something happened in a log; if it is a queue in use, streams may want to know."""
        queue = self._loaded.get(log.id)
        if queue is not None:
            queue.table.forget_below(log.earliest_seq)
            self._count(queue)
            if queue.streams:
                self.moved.add(log.id)

    def poll(self, now_ms: int) -> None:
        """Let the total know of leases that ran out."""
        for queue in [queue for queue in self._loaded.values() if queue.counted]:
            queue.table.advance(now_ms, queue.table.max_deliveries)
            self._count(queue)
            if queue.streams:
                self.moved.add(queue.log_id)

    def replay(self, log: Log, events: list[Event]) -> None:
        """Apply events of the WAL."""
        table = self._find_or_read(log.id).table
        for event in events:
            table.apply(event)

    def to_save(self) -> Saving:
        """What changed since the last checkpoint began."""
        change = SaveLeases([], [], [])
        queues = []
        for queue in self._loaded.values():
            table = queue.table
            if not table.changed:
                continue
            queues.append(queue)
            queue.saving += 1
            record = QueueRecord(queue.log_id, table.cursor, table.dead_lettered)
            change.queues.append(record)
            for seq in table.changed:
                job = table.jobs.get(seq)
                if job is None:
                    change.gone.append((queue.log_id, seq))
                else:
                    change.jobs.append((queue.log_id, seq, *job))
            table.changed = set()
        return Saving(change, queues)

    def saved(self, saving: Saving) -> None:
        for queue in saving.queues:
            queue.saving -= 1

    def trim(self) -> None:
        """Forget the least recently used queues that the catalog knows all of."""
        excess = len(self._loaded) - self._engine.settings.topic_cache
        if excess <= 0:
            return
        idle = [queue for queue in self._loaded.values() if not queue.in_use]
        for queue in [queue for queue in idle if not queue.table.changed][:excess]:
            del self._loaded[queue.log_id]

    def _count(self, queue: Queue) -> None:
        self.in_flight += queue.table.in_flight - queue.counted
        queue.counted = queue.table.in_flight

    def _load(self, log: Log) -> Queue:
        queue = self._find_or_read(log.id)
        if not queue.sound:
            self._heal(log, queue.table)
            queue.sound = True
        return queue

    def _find_or_read(self, log_id: int) -> Queue:
        queue = self._loaded.get(log_id)
        if queue is None:
            queue = self._loaded[log_id] = Queue(log_id, self._read(log_id))
        self._loaded.move_to_end(log_id)
        return queue

    def _read(self, log_id: int) -> LeaseTable:
        table = LeaseTable()
        record = self._engine.catalog.find_queue(log_id)
        if record is not None:
            table.cursor, table.dead_lettered = record.cursor, record.dead_lettered
            for seq, *job in self._engine.catalog.list_leases(log_id):
                table.put(seq, Job._make(job))
            table.changed.clear()
        return table

    def _heal(self, log: Log, table: LeaseTable) -> None:
        """Make a table agree with its log; the cost is that of what is below the cursor."""
        table.cursor = min(table.cursor, log.next_seq)
        snapshot = Snapshot(self._engine.shelf, log.to_row(), log.session)
        stop = max(table.cursor, max(table.jobs, default=0) + 1)
        live = set(snapshot.list_live(log.earliest_seq, log.live, stop))
        table.forget([seq for seq in table.jobs if seq not in live])
        for seq in live:
            if seq < table.cursor and seq not in table.jobs:
                table.put(seq, Job(0, 0, "", 0))

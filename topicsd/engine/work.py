"""Streams that jobs are pushed to (API 10.8): standing claimers with room for so many jobs.

A worker opens a stream and asks for its next jobs; the engine answers when a pass has some
for it. How much room a stream has follows from the table: a job that was acked, nacked or
reclaimed is not its any more. When the stream is closed, or its worker is lost, what it still
holds is free at once. Leases from a claim of the same node are none of its business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.engine import leasing
from topicsd.engine.log import Log
from topicsd.engine.queues import Queue
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import Reply
from topicsd.model.jobs import CloseWork, NextWork, OpenWork, WorkClosed, WorkEnded, WorkOpened
from topicsd.model.lease import Released
from topicsd.rules.leases import LeaseTable

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

Number = tuple[int, int]


class Stream:
    """One open stream."""

    def __init__(self, command: OpenWork, log: Log, table: LeaseTable) -> None:
        self.topic = command.topic
        self.log_id = log.id
        self.node = command.node
        self.lease_ms = command.lease_ms
        # The question that is answered with jobs, while there is one.
        self.parked: Ticket = None
        self._max = command.max
        self._table = table
        self._leases: dict[int, int] = {}

    @property
    def room(self) -> int:
        """How many more jobs it may hold."""
        return self._max - len(self.held())

    def held(self) -> list[int]:
        """What it was given and still holds, ascending."""
        table = self._table
        self._leases = {
            seq: lease
            for seq, lease in self._leases.items()
            if seq in table.jobs and table.jobs[seq].lease == lease and not table.is_free(seq)
        }
        return sorted(self._leases)

    def take(self, seqs: list[int], lease: int) -> None:
        """Jobs are on their way to it."""
        self.parked = None
        self._leases |= {seq: lease + place for place, seq in enumerate(seqs)}


class Streams:
    """All open streams, by the worker and its number for each."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.open: dict[Number, Stream] = {}

    def next_due_us(self) -> int | None:
        """When a job becomes free that a stream waits for, by the monotonic clock."""
        if not self.open:
            return None
        clock = self._engine.clock
        found = [queue.table.next_free_at for queue in self.queues()]
        due = min((moment for moment in found if moment is not None), default=None)
        if due is None:
            return None
        return clock.monotonic_us() + max(due - clock.now_ms(), 0) * 1000

    def leave(self, batch: Batch, outcome: Outcome, worker: int) -> None:
        """Close the streams of a worker that is lost."""
        for number in [number for number in self.open if number[0] == worker]:
            close(self._engine, batch, outcome, number)

    def queues(self) -> list[Queue]:
        """The queues that have streams."""
        ids = {stream.log_id for stream in self.open.values()}
        found = (self._engine.queues.find(log_id) for log_id in ids)
        return [queue for queue in found if queue is not None]


def hungry(queue: Queue) -> list[Stream]:
    """Streams that wait and have room, in the order they were opened."""
    return [
        stream for stream in queue.streams.values() if stream.parked is not None and stream.room > 0
    ]


def apply_open(engine: Engine, batch: Batch, outcome: Outcome, command: OpenWork) -> WorkOpened:
    log = engine.queues.get(outcome, command.topic)
    if command.worker not in engine.watches.workers:
        # Its connection was lost, so nothing would ever close the stream.
        raise errors.not_ready(1.0)
    queue = engine.queues.open(batch, log)
    number = (command.worker, command.stream)
    stream = Stream(command, log, queue.table)
    engine.streams.open[number] = queue.streams[number] = stream
    return WorkOpened()


def apply_next(
    engine: Engine, batch: Batch, outcome: Outcome, command: NextWork
) -> WorkEnded | None:
    stream = engine.streams.open.get((command.worker, command.stream))
    if stream is None:
        return WorkEnded(False)
    stream.parked = outcome.ticket
    engine.queues.moved.add(stream.log_id)
    return None


def apply_close(engine: Engine, batch: Batch, outcome: Outcome, command: CloseWork) -> WorkClosed:
    return WorkClosed(close(engine, batch, outcome, (command.worker, command.stream)))


def close(engine: Engine, batch: Batch, outcome: Outcome, number: Number) -> int:
    """Forget a stream and free what it holds; how many jobs that were."""
    stream = engine.streams.open.pop(number, None)
    if stream is None:
        return 0
    if stream.parked is not None:
        _answer(batch, stream, WorkEnded(False))
    queue = engine.queues.find(stream.log_id)
    log = engine.registry.find(stream.topic)
    if queue is None or log is None or log.id != stream.log_id:
        return 0
    queue.streams.pop(number, None)
    engine.queues.open(batch, log)
    held = stream.held()
    if held:
        event = Released(held, engine.clock.now_ms())
        leasing.record(batch, outcome, log, queue.table, event)
    engine.queues.moved.add(log.id)
    return len(held)


def _answer(batch: Batch, stream: Stream, reply: Reply) -> None:
    outcome = Outcome(stream.parked)
    outcome.reply = reply
    stream.parked = None
    batch.outcomes.append(outcome)

"""Jobs that were delivered often enough go to the dead-letter topic, and back (API 10.6).

A move is one commit with one WAL frame: the copy is appended and the job deleted, or neither.
The copy keeps data, tag, node and meta as they were; meta gains three members that say where
it came from, as text. A dead-letter topic that takes nothing (full, or the disk is) does not
stop the queue: its jobs are put off and tried again later, and are not delivered meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topicsd.engine import leasing
from topicsd.engine.append import apply_append
from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.engine.write_many import take_back
from topicsd.model import errors
from topicsd.model.commands import Append
from topicsd.model.errors import TopicsError
from topicsd.model.jobs import Redrive, Redriven
from topicsd.model.lease import Acked, DeadLettered, Released
from topicsd.model.provenance import Origin, add_origin, find_origin, remove_origin
from topicsd.model.record import pack_record
from topicsd.rules.leases import LeaseTable
from topicsd.storage.pick import Picked, pick
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

# Moved in one commit; one frame holds their copies.
MOVE_JOBS_MAX: Final = 256
MOVE_BYTES_MAX: Final = 16 << 20
# A job that could not be moved is tried again after this time.
RETRY_MS: Final = 1000


def bury(engine: Engine, topic: str) -> None:
    """Move every job of a queue that may not be delivered again; nothing is staged."""
    log = engine.registry.find(topic)
    assert log is not None
    table = engine.queues.open(Batch(), log).table
    while table.spent:
        jobs = _read(engine, log, sorted(table.spent)[:MOVE_JOBS_MAX])
        if not jobs or not _move_out(engine, log, table, jobs):
            _put_off(engine, log, table)


def _move_out(engine: Engine, log: Log, table: LeaseTable, jobs: list[Picked]) -> bool:
    """Move jobs out of their queue as a commit of its own; False when they must stay."""
    dead_letter = log.config.dead_letter
    assert dead_letter is not None
    batch, outcome = Batch(), Outcome(None)
    batch.together = True
    batch.outcomes.append(outcome)
    origins = [Origin(log.name, table.jobs[job.seq].deliveries, job.seq) for job in jobs]
    metas: list[bytes | None] = [
        add_origin(job.meta, origin) for job, origin in zip(jobs, origins, strict=True)
    ]
    try:
        _stage_copies(engine, batch, outcome, _copies(dead_letter, jobs, metas))
    except TopicsError:
        return False
    event = DeadLettered([job.seq for job in jobs])
    stage = leasing.record(batch, outcome, log, table, event)
    leasing.delete(engine, stage, outcome, log, event.seqs)
    engine.commits.commit(batch)
    # There is nobody to answer; a refusal of the disk shows in what is left of the batch.
    return bool(batch.leases)


def _put_off(engine: Engine, log: Log, table: LeaseTable) -> None:
    """Try again later; with no room even for that, the next claim tries."""
    batch, outcome = Batch(), Outcome(None)
    event = Released(sorted(table.spent), engine.clock.now_ms() + RETRY_MS)
    leasing.record(batch, outcome, log, table, event)
    engine.commits.commit(batch)
    if not batch.leases:
        table.apply(event)


def apply_redrive(engine: Engine, batch: Batch, outcome: Outcome, command: Redrive) -> Redriven:
    """Move jobs back from the dead-letter topic; those it does not have any more are left out."""
    log = engine.queues.get(outcome, command.topic)
    source = engine.registry.find(log.config.dead_letter or "")
    moved = 0
    if source is not None:
        engine.retention.notice(source, engine.clock.now_ms())
        jobs = [
            job
            for job in _read(engine, source, sorted(set(command.seqs)))
            if job.seq >= source.earliest_seq and _came_from(job, log.name)
        ]
        if jobs:
            batch.together = True
            metas = [None if job.meta is None else remove_origin(job.meta) for job in jobs]
            _stage_copies(engine, batch, outcome, _copies(log.name, jobs, metas))
            _stage_deletes(engine, batch, outcome, source, [job.seq for job in jobs])
            moved = len(jobs)
    table = engine.queues.peek(log).table
    return Redriven(moved, engine.queues.ready(log, table))


def _stage_deletes(
    engine: Engine, batch: Batch, outcome: Outcome, source: Log, seqs: list[int]
) -> None:
    """Stage the deletes of a move back; the dead-letter topic may be a queue itself."""
    if source.config.type == "queue":
        table = engine.queues.open(batch, source).table
        stage = leasing.record(batch, outcome, source, table, Acked(seqs))
    else:
        stage = leasing.stage_of(batch, source, None)
        stage.outcomes.append(outcome)
    leasing.delete(engine, stage, outcome, source, seqs)


def _stage_copies(engine: Engine, batch: Batch, outcome: Outcome, copies: Append) -> None:
    """Stage the append of a move; when it is refused nothing is staged."""
    if engine.registry.is_dropping(copies.topic):
        # The catalog still has the old topic; replay could not tell the two apart.
        raise errors.throttled("topic_delete", 1, retry_after_ms=100)
    try:
        apply_append(engine, batch, outcome, copies)
    except TopicsError:
        take_back(engine, batch)
        raise


def _copies(topic: str, jobs: list[Picked], metas: list[bytes | None]) -> Append:
    """The records of a move, as an append."""
    packed = [
        pack_record(job.data, job.tag, job.node, meta)
        for job, meta in zip(jobs, metas, strict=True)
    ]
    size = sum(len(job.data) + len(meta or b"") for job, meta in zip(jobs, metas, strict=True))
    forms, rows = zip(*packed, strict=True)
    return Append(topic, len(jobs), b"".join(forms), b"".join(rows), size)


def _read(engine: Engine, log: Log, seqs: list[int]) -> list[Picked]:
    """Records to move, as many as fit one frame, at least one if there is any."""
    found: list[Picked] = []
    size = 0
    for job in pick(Snapshot(engine.shelf, log.to_row(), log.session), seqs):
        size += len(job.record)
        if found and size > MOVE_BYTES_MAX:
            break
        found.append(job)
    return found


def _came_from(job: Picked, topic: str) -> bool:
    origin = find_origin(job.meta)
    return origin is not None and origin.topic == topic

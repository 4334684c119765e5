"""The part of a commit that is about leases: events into the frame, acked records out of it.

A command applies its events to the table at once, so that the next one of the same batch
sees them, and stages them here. The commit writes what all commands of a batch did to one
queue as one LEASES and one DELETE entry. When there is no room for them, the tables and the
counts go back to what they were and the commands fail.

Leases are a projection that heals itself, so a reply waits for their sync only when the queue
asks for it (`leases_durable`); an ack waits as a delete does, by the durability class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topicsd.engine import removal
from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, LeaseStage, Outcome
from topicsd.model.commands import Failed
from topicsd.model.lease import Event
from topicsd.rules.leases import LeaseTable
from topicsd.storage import frame

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def stage_of(batch: Batch, log: Log, table: LeaseTable | None) -> LeaseStage:
    """What the batch does to a queue so far."""
    stage = batch.leases.get(log)
    if stage is None:
        stage = batch.leases[log] = LeaseStage(table)
        batch.leased.add(log.name)
        if table is not None:
            table.begin()
    return stage


def record(batch: Batch, outcome: Outcome, log: Log, table: LeaseTable, event: Event) -> LeaseStage:
    """Apply an event now and have it written with the batch."""
    stage = stage_of(batch, log, table)
    table.apply(event)
    stage.events.append(event)
    stage.outcomes.append(outcome)
    if log.config.leases_durable:
        stage.waiting.append((outcome, False))
    return stage


def delete(engine: Engine, stage: LeaseStage, outcome: Outcome, log: Log, seqs: list[int]) -> None:
    """Have records deleted with the batch; ascending seqs of live records."""
    payload_bytes = removal.plan_seqs(engine, log, seqs)
    removal.count_out(engine, log, len(seqs), payload_bytes)
    stage.removed += seqs
    stage.payload_bytes += payload_bytes
    if log.config.durability == "fsync":
        stage.waiting.append((outcome, True))


def parts(log: Log, stage: LeaseStage) -> list[bytes]:
    """The entries of one queue."""
    found: list[bytes] = []
    if stage.events:
        found += frame.leases_parts(log.id, stage.events)
    if stage.removed:
        floors = (log.earliest_seq, log.cap_floor, log.ttl_floor)
        found += frame.delete_parts(log.id, 0, floors, _seqs(stage))
    return found


def note_written(stage: LeaseStage, shard: int, lsn: int) -> None:
    """Let replies wait for the frame, each once."""
    told: dict[Outcome, bool] = {}
    for outcome, gated in stage.waiting:
        told[outcome] = told.get(outcome, False) or gated
    for outcome, gated in told.items():
        outcome.need.add_sync(shard, lsn)
        outcome.need.gated = outcome.need.gated or gated


def undo(engine: Engine, batch: Batch, log: Log, error: Failed) -> None:
    """Take back what was staged for a queue; its commands fail."""
    stage = batch.leases.pop(log)
    batch.leased.discard(log.name)
    removal.count_out(engine, log, -len(stage.removed), -stage.payload_bytes)
    if stage.table is not None:
        stage.table.roll_back()
    for outcome in stage.outcomes:
        outcome.reply = error


def settle(engine: Engine, batch: Batch) -> None:
    """The frame is written: flip the flags of deleted records, and keep the tables."""
    for log, stage in batch.leases.items():
        if stage.table is not None:
            stage.table.keep()
        if stage.removed:
            gone = removal.Removal(0, _seqs(stage), len(stage.removed), stage.payload_bytes)
            removal.show(engine, log, gone)
            batch.touched.add(log)
        # A checkpoint is due, though the board may not have changed.
        engine.dirty[log.row] = log.id
        engine.queues.note_moved(log)


def _seqs(stage: LeaseStage) -> removal.Seqs:
    return np.array(sorted(stage.removed), dtype=np.int64)

"""Checkpoints: make segments durable, fold state into the catalog, give WAL files up.

`begin` runs in the engine thread between two batches: it starts new WAL files and notes the
state of every log that changed since the last checkpoint. The rest runs on a thread of its
own while appends go on: sync the segments, seal those that are full, commit the noted state,
remove the old WAL files and whatever fell below a floor. `finish` runs in the engine thread
again. A crash at any moment leaves either the old checkpoint with its WAL files or the new
one; frames that remain although the new one is durable are skipped by recovery, by lsn.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from topicsd.engine.log import Rolled, state_of_row
from topicsd.engine.pace import Pace
from topicsd.engine.sealing import seal_segment
from topicsd.storage import place, wal
from topicsd.storage.catalog import (
    Change,
    DropSegment,
    ForgetKeys,
    LogState,
    SaveKeys,
    SaveRoutes,
    SaveSegment,
    SaveState,
    SetMeta,
)
from topicsd.storage.volume import Spot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

# Frames up to this lsn are in the checkpoint.
CHECKPOINT_LSN = "checkpoint_lsn"
# How many expired idempotency keys a checkpoint forgets at least, if there are any.
FORGET_KEYS_MIN = 10_000
# A checkpoint under way makes way for commands until this many times the log that makes one due
# is written since: replay is bounded by it.
BEHIND_FACTOR = 2


class Job:
    """One checkpoint under way, and everything it noted when it began."""

    def __init__(self, engine: Engine, checkpoints: Checkpoints) -> None:
        self._engine = engine
        self.failure: BaseException | None = None
        self.retired = engine.wal.rotate()
        self.lsn = engine.wal.lsn
        self.states = _states(engine)
        self.segments = checkpoints.segments
        self.rolled = checkpoints.rolled
        self.trash = checkpoints.trash
        self.droppable = engine.retention.take_droppable()
        self.emptied = engine.retention.take_emptied()
        self.keys = engine.keys.to_save()
        self.leases = engine.queues.to_save()
        self.streams = engine.stream_states.to_save()
        self.number = checkpoints.started
        # Cursors and the copies they stand for are saved together, or not.
        self.routes = engine.routes.states(self.number - 1)
        self.now_ms = engine.clock.now_ms()
        self.parked = [volume.packs.parked() for volume in engine.volumes]
        self._thread = threading.Thread(target=self._run, daemon=True, name="checkpoint")

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self.failure = failure
        self._engine.checkpoints.ring()

    def _work(self) -> None:
        engine = self._engine
        dropped = set(self.droppable)
        rolled = [
            each
            for each in self.rolled
            if (each.resident, each.spot.log_id, each.spot.base_seq) not in dropped
        ]
        for tier in {tier for tier, _, _ in self.segments} - {place.RAM} | {place.DISK}:
            engine.volumes[tier].sync(
                {(log_id, base) for at, log_id, base in self.segments if at == tier}
            )
        pace = Pace(lambda: engine.turns, lambda: engine.checkpoints.behind)
        sealed = [seal_segment(engine, each, pace) for each in rolled]
        changes = self._changes([save for save in sealed if save])
        engine.clerk.wait(engine.clerk.submit(changes))
        wal.remove(engine.files, self.retired)
        for resident, log_id, base in self.droppable:
            # The hot one first: see `tiering`, which may be copying it.
            for volume in engine.volumes_of(resident=resident):
                for path in place.segment_paths(volume.root, log_id, base):
                    engine.files.remove(path)
        for directory in self.trash:
            engine.files.remove_directory(directory)

    def _changes(self, sealed: list[SaveSegment]) -> list[Change]:
        changes: list[Change] = [SaveState(self.states), *sealed]
        changes.append(SetMeta(CHECKPOINT_LSN, str(self.lsn)))
        changes += [DropSegment(log_id, base) for _, log_id, base in self.droppable]
        changes += [DropSegment(log_id, base) for log_id, base in self.emptied]
        if self.keys:
            changes.append(SaveKeys(self.keys))
        changes.append(self.leases.change)
        if self.streams.states or self.streams.producers:
            changes.append(self.streams)
        if self.routes:
            changes.append(SaveRoutes(self.routes))
        # Faster than keys are saved, so that they cannot pile up, and never all at once.
        changes.append(ForgetKeys(self.now_ms, FORGET_KEYS_MIN + 2 * len(self.keys)))
        return changes


class Checkpoints:
    """Decides when a checkpoint is due and keeps what the next one has to do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._job: Job | None = None
        self._asked = False
        self._begun_ms = engine.clock.monotonic_us() // 1000
        self._wal_bytes = 0
        self._wal_frames = 0
        # How many were begun, and the number of the last one that was finished.
        self.started = 0
        self.finished = 0
        self.segments: set[tuple[int, int, int]] = set()
        self.rolled: list[Rolled] = []
        self.trash: list[Path] = []

    @property
    def running(self) -> bool:
        return self._job is not None

    @property
    def behind(self) -> bool:
        """Whether a checkpoint under way has taken too long."""
        return self._has_written(BEHIND_FACTOR)

    def ring(self) -> None:
        self._engine.notify()

    def note_written(self, tier: int, spot: Spot) -> None:
        if spot.location == place.OWN_FILES:
            self.segments.add((tier, spot.log_id, spot.base_seq))

    def note_rolled(self, rolled: Rolled) -> None:
        """A segment that will not grow any more: seal it next time."""
        spot = rolled.spot
        if spot.rows:
            self.rolled.append(rolled)
            self.segments.add((rolled.resident, spot.log_id, spot.base_seq))

    def unsealed(self, log_id: int) -> list[int]:
        """Base seqs of a log's segments that ended and wait for their seal."""
        rolled = [*self.rolled, *(self._job.rolled if self._job else ())]
        return [each.spot.base_seq for each in rolled if each.spot.log_id == log_id]

    def discard(self, directories: list[Path]) -> None:
        """Remove directories after the next checkpoint."""
        self.trash += directories

    def ask(self) -> None:
        """Take a checkpoint at the next chance."""
        self._asked = True

    def poll(self) -> None:
        """Finish a checkpoint that is done and begin one that is due."""
        if self._job is not None:
            if not self._job.done:
                return
            self._finish(self._job)
        if self._is_due():
            self._begin().start()

    def run_last(self) -> None:
        """Take a final checkpoint and wait for it."""
        if self._job is not None:
            self._job.join()
            self._finish(self._job)
        job = self._begin()
        job.start()
        job.join()
        self._finish(job)

    def _is_due(self) -> bool:
        engine, settings = self._engine, self._engine.settings
        if self._asked:
            return True
        if not engine.dirty and not self.trash:
            return False
        if self._has_written(1):
            return True
        return (
            engine.clock.monotonic_us() // 1000 - self._begun_ms > settings.checkpoint_interval_ms
        )

    def _has_written(self, times: int) -> bool:
        """Whether the log has grown enough for so many checkpoints since the last one began.

        Replay takes time by bytes and by frames: both are bounded.
        """
        counters, settings = self._engine.wal.counters, self._engine.settings
        return (
            counters.bytes_written - self._wal_bytes > times * settings.checkpoint_bytes
            or counters.frames - self._wal_frames > times * settings.checkpoint_frames
        )

    def _begin(self) -> Job:
        self._asked = False
        self.started += 1
        self._engine.clerk.begin_checkpoint()
        self._begun_ms = self._engine.clock.monotonic_us() // 1000
        self._wal_bytes = self._engine.wal.counters.bytes_written
        self._wal_frames = self._engine.wal.counters.frames
        self._job = Job(self._engine, self)
        self.segments, self.rolled, self.trash = set(), [], []
        self._engine.dirty = {}
        return self._job

    def _finish(self, job: Job) -> None:
        self._job = None
        if job.failure is not None:
            raise job.failure
        engine = self._engine
        self.finished = job.number
        engine.wal.forget(job.retired)
        engine.keys.saved(job.keys)
        engine.queues.saved(job.leases)
        engine.stream_states.saved(job.streams)
        for volume, parked in zip(engine.volumes, job.parked, strict=True):
            volume.packs.settle(parked)
        for resident, log_id, base in job.droppable:
            for volume in engine.volumes_of(resident=resident):
                volume.forget(log_id, base)
        engine.retention.drop_emptied(job.emptied)
        engine.tiering.note_sealed({each.spot.log_id for each in job.rolled if not each.resident})


def _states(engine: Engine) -> list[LogState]:
    board = engine.board
    states = []
    for number, log_id in engine.dirty.items():
        row = board.read(number)
        if row.log_id == log_id:
            states.append(state_of_row(row, board.last_read(number)))
    return states

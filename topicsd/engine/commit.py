"""The one commit: WAL frame, segment bytes, board row, reply, in this order (law 3).

Durability classes (DESIGN 2.2) differ only in the WAL step and in what the reply waits for:

    ephemeral  no WAL entry; the reply waits for nothing
    memory     WAL entry; the reply waits for nothing
    disk       WAL entry; the reply waits for nothing while the seq is below the ceiling
    fsync      WAL entry; the reply waits until the frame is synced

The ceiling keeps a lost tail from reusing seqs. A disk-class reply leaves before its frame
is synced, so a power loss may take acknowledged records; their seqs must not be handed out
again. Each entry therefore names a ceiling well above its last seq, and a seq is only
acknowledged without waiting when a synced frame names a ceiling above it. After a power
loss the log goes on above the ceiling. In practice one append in thousands waits, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topicsd.engine import leasing, tagging, topics, write_many
from topicsd.engine.log import Log
from topicsd.engine.routes import mark_at, marks_of
from topicsd.engine.staging import Batch, Chunk, Outcome
from topicsd.model import errors
from topicsd.model.commands import Appended, Failed, Reply, Written
from topicsd.storage import frame
from topicsd.storage.catalog import Change
from topicsd.storage.fs import is_full

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

CEILING_STEP = 4096
# Stands for the number of a batch's catalog changes until they are submitted.
THIS_BATCH = -1

_DISK_FULL = Failed.of(errors.storage_full("the disk is full"))


class Commits:
    """Turns staged batches into visible records and replies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Records made visible since start; read by metrics.
        self.records = 0

        # Logs whose last records are in a frame of another shard than theirs, until it is synced.
        self._away: dict[int, tuple[int, int]] = {}

    def stage_change(
        self, batch: Batch, outcome: Outcome, change: Change, settle: Callable[[], None]
    ) -> None:
        """Add a catalog change; `settle` runs once it is committed, before the reply."""
        batch.changes.append(change)
        batch.settles.append(settle)
        outcome.need.catalog = THIS_BATCH

    def await_catalog(self, outcome: Outcome, name: str) -> None:
        """Let a reply wait for a change of `name` that is on its way to the catalog."""
        if self._engine.registry.is_pending(name):
            outcome.need.catalog = THIS_BATCH

    def await_written(self, outcome: Outcome, log: Log) -> None:
        """Let a reply wait as if it acknowledged what was written so far for a log."""
        if log.resident:
            return
        number = self._engine.wal.shard_of(log.id)
        shard = self._engine.wal.shards[number]
        if shard.synced_lsn < shard.written_lsn and self._must_wait(log, number):
            outcome.need.add_sync(number, shard.written_lsn)
        away = self._away.get(log.id)
        if away is not None and not self._is_synced(away) and self._must_wait(log, number):
            outcome.need.add_sync(*away)

    def await_synced(self, outcome: Outcome, log: Log) -> None:
        """Let a reply wait until all that was written for a log is synced, and hurry it up."""
        if log.resident:
            return
        shards = self._engine.wal.shards
        number = self._engine.wal.shard_of(log.id)
        for frame_at in ((number, shards[number].written_lsn), self._away.get(log.id)):
            if frame_at is not None and not self._is_synced(frame_at):
                outcome.need.add_sync(*frame_at)
                shards[frame_at[0]].hurry()

    def commit(self, batch: Batch) -> list[tuple[Ticket, Reply]]:
        """Make a batch real and return the replies that wait for nothing."""
        engine = self._engine
        started = engine.clock.monotonic_us()
        if batch.chunks or batch.leases or batch.states:
            if batch.together:
                self._write_together(batch)
            else:
                self._write_wal(batch)
            self._write_segments(batch)
            leasing.settle(engine, batch)
        for log in batch.touched:
            if not log.dropped:
                engine.board.write(log.row, log.to_row())
                engine.moved.add(log.row)
                engine.dirty[log.row] = log.id
                engine.queues.note_moved(log)
                engine.forwarder.note_moved(log)
                engine.subscriptions.note_moved(log)
        self._submit(batch)
        return self._reply(batch, started)

    def _submit(self, batch: Batch) -> None:
        """Hand catalog changes to the clerk; only then is their number known."""
        waiting = [outcome for outcome in batch.outcomes if outcome.need.catalog]
        if not (batch.changes or waiting):
            return
        number = self._engine.clerk.submit(batch.changes)
        for settle in batch.settles:
            self._engine.held.after_catalog(number, settle)
        for outcome in waiting:
            outcome.need.catalog = number

    def _write_wal(self, batch: Batch) -> None:
        """One frame a shard; a shard without room undoes its logs and nothing else."""
        engine = self._engine
        by_shard: dict[int, list[Log]] = {}
        for log in {**batch.chunks, **batch.leases, **batch.states}:
            chunk = batch.chunks.get(log)
            stated = log in batch.leases or log in batch.states
            if not log.resident and (stated or (chunk and chunk.logged)):
                by_shard.setdefault(engine.wal.shard_of(log.id), []).append(log)
        for shard, logs in by_shard.items():
            parts: list[bytes] = []
            for log in logs:
                parts += self._entries(batch, log)
            urgent = self._is_urgent(batch, logs)
            try:
                lsn = engine.wal.write(shard, parts, urgent=urgent)
            except OSError as error:
                if not is_full(error):
                    raise
                self.undo(batch, logs)
                continue
            written = [log for log in logs if log in batch.chunks or log in batch.states]
            self._note_lsn(batch, written, shard, lsn)
            self._note_leases(batch, logs, shard, lsn)

    def _write_together(self, batch: Batch) -> None:
        """One frame for all logs, so that a crash leaves all of the write or nothing."""
        engine = self._engine
        wal = engine.wal
        # What loses records to a move comes first: its deletes stay in its own shard.
        logs = [log for log in {**batch.leases, **batch.chunks} if not log.resident]
        if not logs:
            return
        shard = wal.shard_of(logs[0].id)
        parts = write_many.creations(engine, batch)
        for log in logs:
            parts += self._entries(batch, log)
        try:
            lsn = wal.write(shard, parts, urgent=self._is_urgent(batch, logs))
        except OSError as error:
            if not is_full(error):
                raise
            batch.outcomes[0].reply = _DISK_FULL
            write_many.take_back(engine, batch)
            return
        self._away = {key: away for key, away in self._away.items() if not self._is_synced(away)}
        self._note_leases(batch, logs, shard, lsn)
        logs = [log for log in logs if log in batch.chunks]
        waiting = [log for log in logs if self._must_wait(log, wal.shard_of(log.id))]
        for log in logs:
            engine.forwarder.syncs.note_written(log, shard, lsn)
            if wal.shard_of(log.id) != shard:
                # Its ceiling is in force when its own shard says so, which this frame cannot.
                self._away[log.id] = (shard, lsn)
            elif log.ceiling_lsn == 0:
                log.ceiling_lsn = lsn
        if waiting:
            need = batch.outcomes[0].need
            need.add_sync(shard, lsn)
            need.gated = any(log.config.durability == "fsync" for log in waiting)

    def _is_synced(self, away: tuple[int, int]) -> bool:
        shard, lsn = away
        return self._engine.wal.shards[shard].synced_lsn >= lsn

    def undo(self, batch: Batch, logs: list[Log]) -> None:
        """Take back what was staged for these logs, and those that were created for it.

        Their commands fail for want of space.
        """
        for log in [log for log in logs if log in batch.leases]:
            leasing.undo(self._engine, batch, log, _DISK_FULL)
        for log in [log for log in logs if log in batch.states]:
            batch.undo_state(log, _DISK_FULL)
            if log not in batch.chunks:
                topics.uncreate(self._engine, batch, log)
        for log in [log for log in logs if log in batch.chunks]:
            chunk = batch.undo(log, _DISK_FULL)
            self._engine.volume_of(log).cancel(log.spot, chunk.spot.location)
            self._engine.total_bytes -= chunk.payload_bytes
            topics.uncreate(self._engine, batch, log)
            for key, *_ in chunk.keys:
                self._engine.keys.remove(log.id, key)

    def _is_urgent(self, batch: Batch, logs: list[Log]) -> bool:
        """Whether any reply will wait for the frame of these logs."""
        shard_of = self._engine.wal.shard_of
        return any(
            (
                (log in batch.chunks or log in batch.states)
                and self._must_wait(log, shard_of(log.id))
            )
            or (log in batch.leases and batch.leases[log].waiting)
            for log in logs
        )

    def _note_leases(self, batch: Batch, logs: list[Log], shard: int, lsn: int) -> None:
        for log in logs:
            if log in batch.leases:
                leasing.note_written(batch.leases[log], shard, lsn)

    def _entries(self, batch: Batch, log: Log) -> list[bytes]:
        """All that a batch does to one log."""
        parts: list[bytes] = []
        if log in batch.chunks:
            parts += self._entry(log, batch.chunks[log])
        if log in batch.states:
            parts += batch.states[log].parts
        if log in batch.leases:
            if batch.leases[log].removed:
                parts += marks_of(self._engine, log, batch.chunks)
            parts += leasing.parts(log, batch.leases[log])
        return parts

    def _entry(self, log: Log, chunk: Chunk) -> list[bytes]:
        self._raise_ceiling(log)
        rows, dat = b"".join(chunk.rows), b"".join(chunk.dat)
        chunk.rows, chunk.dat = [rows], [dat]
        parts = frame.append_parts(
            log.id, (chunk.first_seq, log.ceiling_next), chunk.payload_bytes, rows, dat
        )
        if chunk.keys:
            parts += frame.keys_parts(log.id, chunk.keys)
        route = self._engine.routes.by_dest.get(log.id)
        if route is not None:
            # Between these records and those before them may be copies, which are in no frame.
            return [*mark_at(route, log, route.cursor, chunk.first_seq), *parts, *chunk.after]
        return parts

    def _raise_ceiling(self, log: Log) -> None:
        """Choose the ceiling the next entry names, well before the present one is reached."""
        checkpoint = self._engine.checkpoints.started
        if log.ceiling_checkpoint != checkpoint:
            log.ceiling = log.ceiling_next = log.ceiling_lsn = 0
            log.ceiling_checkpoint = checkpoint
        if log.head_seq + CEILING_STEP // 2 > log.ceiling_next:
            step = max(CEILING_STEP, 4 * (log.head_seq - log.ceiling))
            log.ceiling_next = log.head_seq + min(step, 64 * CEILING_STEP)
            log.ceiling_lsn = 0

    def _must_wait(self, log: Log, shard: int) -> bool:
        durability = log.config.durability
        if durability != "disk":
            return durability == "fsync"
        if 0 < log.ceiling_lsn <= self._engine.wal.shards[shard].synced_lsn:
            log.ceiling = log.ceiling_next
        return log.head_seq > log.ceiling

    def _note_lsn(self, batch: Batch, logs: list[Log], shard: int, lsn: int) -> None:
        for log in logs:
            self._engine.forwarder.syncs.note_written(log, shard, lsn)
            if log.ceiling_lsn == 0:
                log.ceiling_lsn = lsn
        waiting = {log for log in logs if self._must_wait(log, shard)}
        for outcome in batch.outcomes:
            if outcome.appended is not None and outcome.appended in waiting:
                outcome.need.shard, outcome.need.lsn = shard, lsn
                outcome.need.gated = outcome.appended.config.durability == "fsync"

    def _write_segments(self, batch: Batch) -> None:
        engine = self._engine
        now_ms = engine.clock.now_ms()
        for log, chunk in batch.chunks.items():
            rows, dat = b"".join(chunk.rows), b"".join(chunk.dat)
            before = log.spot
            log.spot = engine.volume_of(log).write(chunk.spot, rows, dat)
            if log.spot.base_seq != before.base_seq:
                log.shelf_generation += 1
                engine.checkpoints.note_rolled(log.rolled(before))
            engine.checkpoints.note_written(log.resident, log.spot)
            engine.ages.note(log, now_ms)
            tagging.note_written(engine, log, before)
            self.records += chunk.records
            limited = log.config.cap_records or log.config.cap_bytes or log.config.ttl_ms
            if limited:
                engine.retention.enforce(log, now_ms)
            batch.touched.add(log)

    def _reply(self, batch: Batch, started: int) -> list[tuple[Ticket, Reply]]:
        engine = self._engine
        now_us = engine.clock.monotonic_us()
        ready: list[tuple[Ticket, Reply]] = []
        for outcome in batch.outcomes:
            reply = outcome.reply
            if reply is None:
                continue
            if (isinstance(reply, Appended) and not reply.deduped) or (
                isinstance(reply, Written) and batch.chunks
            ):
                reply.wal_append_us = max(now_us - started, 1)
            need = outcome.need
            if need.lsn or need.catalog:
                engine.held.hold(outcome.ticket, reply, need, now_us)
            else:
                ready.append((outcome.ticket, reply))
        return ready

"""Applies WAL entries to logs: the second half of recovery.

Entries of one log are gathered and written a megabyte at a time, so that a WAL of many
small frames replays at the speed of a few large ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from topicsd.engine import removal
from topicsd.engine.log import Log
from topicsd.engine.rederive import Rederive
from topicsd.model.record import DELETED, ROW, ROW_DTYPE
from topicsd.rules.floors import LOST, SOURCE_TRIM
from topicsd.storage.catalog import Change, CreateLog, RecordGap
from topicsd.storage.frame import (
    AppendEntry,
    CreateEntry,
    DeleteEntry,
    Entry,
    KeysEntry,
    LeasesEntry,
    RouteEntry,
    StreamEntry,
)
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

GATHER_BYTES: Final = 1 << 20

Heads = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


class Gathered:
    """A log being rebuilt, and entries not yet written to its segment."""

    __slots__ = ("ceiling", "dat", "dat_bytes", "deleted", "log", "marks", "records", "rows")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.rows: list[memoryview] = []
        self.dat: list[memoryview] = []
        self.dat_bytes = 0
        self.records = 0
        self.ceiling = 0
        # Whether records were deleted: the log is then counted once all entries are applied.
        self.deleted = False
        # Single records to mark then, all at once: a queue deletes with every ack.
        self.marks: list[npt.NDArray[np.uint64]] = []


class Rebuild:
    """All logs that the WAL mentions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._logs: dict[int, Gathered | None] = {}
        self._gaps: list[Change] = []
        # Ids from here on were never committed to the catalog; smaller ones it does not know
        # belong to topics that were deleted since.
        self._new_from = engine.catalog.next_id()
        self.copies = Rederive(engine, self)
        self.records = 0
        self.lost_records = 0

    def apply(self, entry: Entry) -> None:
        """Apply one entry of a frame that is newer than the checkpoint."""
        if isinstance(entry, AppendEntry):
            self.append(entry)
        elif isinstance(entry, KeysEntry):
            self.keys(entry)
        elif isinstance(entry, DeleteEntry):
            self.delete(entry)
            self.copies.note_deleted(entry)
        elif isinstance(entry, LeasesEntry):
            self.leases(entry)
        elif isinstance(entry, RouteEntry):
            self.copies.follow(entry)
        elif isinstance(entry, StreamEntry):
            self.state(entry)
        else:
            self.create(entry)

    def append(self, entry: AppendEntry) -> None:
        """Apply one append, unless an earlier frame has it."""
        gathered = self.find(entry.log_id)
        if gathered is None:
            return
        log = gathered.log
        last_seq = entry.first_seq + entry.records - 1
        gathered.ceiling = max(gathered.ceiling, entry.ceiling)
        if last_seq < log.next_seq:
            return
        if entry.first_seq > log.next_seq:
            self.flush(gathered)
            self.lose(log, entry.first_seq - 1)
        if not log.resident:
            self._gather(gathered, entry)
        log.head_seq = last_seq
        log.next_seq = last_seq + 1
        if log.resident:
            log.last_write_ts = ROW.unpack_from(entry.rows, len(entry.rows) - ROW.size)[0]
        self.records += entry.records

    def keys(self, entry: KeysEntry) -> None:
        gathered = self.find(entry.log_id)
        if gathered is not None:
            for key, *written in entry.keys:
                self._engine.keys.add(gathered.log, key, (written[0], written[1], written[2]))

    def delete(self, entry: DeleteEntry) -> None:
        """Delete again what was deleted, if anything: an entry may bring floors alone.

        Its records may be marked already, and so may those of later entries: nothing is
        counted before the last entry. Caps and expiry had left fewer records than replay
        has at this point, so the floors of that time come back first.
        """
        gathered = self.find(entry.log_id)
        if gathered is None or gathered.log.resident:
            return
        gathered.deleted = True
        log = gathered.log
        # No floor is above what there is: a damaged frame may have taken records below it.
        log.cap_floor = max(log.cap_floor, min(entry.cap_floor, log.next_seq))
        log.ttl_floor = max(log.ttl_floor, min(entry.ttl_floor, log.next_seq))
        log.delete_below = max(log.delete_below, entry.before_seq)
        floor = max(entry.earliest_seq, entry.before_seq)
        log.earliest_seq = max(log.earliest_seq, min(floor, log.next_seq))
        if len(entry.seqs):
            gathered.marks.append(entry.seqs)
            if self._engine.routes.touches(log.id):
                # Copies are derived from what was there at this point.
                self._mark(gathered)

    def leases(self, entry: LeasesEntry) -> None:
        """Apply what happened to jobs; a table is compared with its log when it is used."""
        gathered = self.find(entry.log_id)
        if gathered is not None:
            self._engine.queues.replay(gathered.log, entry.events)

    def state(self, entry: StreamEntry) -> None:
        """Close a stream again, and remember its producers."""
        gathered = self.find(entry.log_id)
        if gathered is not None:
            self._engine.stream_states.apply(gathered.log, entry)

    def create(self, entry: CreateEntry) -> None:
        """Bring back a topic whose write outran its catalog row."""
        registry = self._engine.registry
        if entry.log_id < self._new_from or registry.find_by_id(entry.log_id) is not None:
            return
        registry.restore(
            CreateLog(
                id=entry.log_id,
                row=entry.row,
                name=entry.name,
                kind="topic",
                epoch=entry.epoch,
                config_json=entry.config_json,
                created_ts=entry.created_ts,
            )
        )
        self._logs.pop(entry.log_id, None)

    def finish(self, shown: Heads, *, trust_tail: bool, trust_counts: bool) -> None:
        """Write what is gathered, account for lost tails, and publish.

        `shown` are the log ids and heads that an earlier board showed. Counts are not to be
        trusted when a delete may be missing whose flag bytes are in the segments.
        """
        self.copies.finish(shown, trust_tail=trust_tail)
        for gathered in list(self._logs.values()):
            if gathered is not None:
                self._finish_log(gathered, trust_tail)
        if not trust_counts:
            self._recount()
        for log_id, head in [*self._lost_tails(shown), *self._known_tails()]:
            found = self.find(log_id)
            if found is not None and found.log.head_seq < head:
                self.lose(found.log, head)
                self._publish(found.log)
        self._engine.catalog.commit(self._gaps)
        self._engine.registry.reserve_ids(max(self._logs, default=0))

    def _recount(self) -> None:
        """Count live records anew: segments may have kept flag bytes of a lost delete."""
        engine = self._engine
        for state in list(engine.catalog.load_board()):
            log = engine.registry.find_by_id(state.state.id)
            if log is None or log.resident or not log.live:
                continue
            if self._count(log):
                self._publish(log)

    def _count(self, log: Log) -> bool:
        """Find a log's first record and its counts from the flag bytes; whether they are new."""
        engine = self._engine
        snapshot = Snapshot(engine.shelf, log.to_row(), log.session)
        known = (log.earliest_seq, log.live, log.payload_bytes)
        log.live, log.payload_bytes = snapshot.live_between(
            log.earliest_seq, log.next_seq, recount=True
        )
        log.earliest_seq = snapshot.first_visible(log.earliest_seq)
        engine.retention.park_segments(log, snapshot)
        return known != (log.earliest_seq, log.live, log.payload_bytes)

    def _lost_tails(self, shown: Heads) -> list[tuple[int, int]]:
        """Logs whose earlier board showed more than catalog and WAL have: proof of loss."""
        ids, heads = self._engine.board.heads()
        rows = min(len(ids), len(shown[0]))
        same = (ids[:rows] == shown[0][:rows]) & (ids[:rows] > 0)
        lost = np.flatnonzero(same & (shown[1][:rows] > heads[:rows]))
        return [(int(shown[0][row]), int(shown[1][row])) for row in lost]

    def _known_tails(self) -> list[tuple[int, int]]:
        """The last gap of each log that has any: a recovery cut short may have found it."""
        catalog = self._engine.catalog
        gaps = [catalog.gaps(log_id)[-1:] for log_id in self._engine.board.with_gaps()]
        return [(gap.log_id, gap.to_seq) for found in gaps for gap in found]

    def note_trim(self, log: Log, seq: int) -> None:
        """A seq of a router's destination stands for what its source lost."""
        self._gaps.append(RecordGap(log.id, seq, seq, SOURCE_TRIM, self._engine.clock.now_ms()))
        log.has_gaps = True

    def find(self, log_id: int) -> Gathered | None:
        """A log that is rebuilt, None when it is not there any more."""
        if log_id not in self._logs:
            log = self._engine.registry.find_by_id(log_id)
            self._logs[log_id] = None if log is None else Gathered(log)
            if log is not None:
                self._engine.volume_of(log).discard_after(log.spot)
        return self._logs[log_id]

    def _gather(self, gathered: Gathered, entry: AppendEntry) -> None:
        gathered.rows.append(entry.rows)
        gathered.dat.append(entry.dat)
        gathered.dat_bytes += len(entry.dat)
        gathered.records += entry.records
        log = gathered.log
        log.live += entry.records
        log.payload_bytes += entry.payload_bytes
        if gathered.dat_bytes >= GATHER_BYTES:
            self.flush(gathered)

    def flush(self, gathered: Gathered) -> None:
        """Write what is gathered of a log."""
        if not gathered.records:
            return
        engine, log = self._engine, gathered.log
        volume = engine.volume_of(log)
        before = log.spot
        spot = volume.reserve(before, gathered.records, gathered.dat_bytes)
        rows = _placed(gathered, spot.end)
        if bool((rows["deleted"] == DELETED).any()):
            # Placeholders, which were never live.
            gathered.deleted = True
        log.last_write_ts = int(rows["ts"][-1])
        log.spot = volume.write(spot, rows.tobytes(), b"".join(gathered.dat))
        if log.spot.base_seq != before.base_seq:
            # A delete among the entries has looked at the segments there were then.
            log.shelf_generation += 1
            engine.checkpoints.note_rolled(log.rolled(before))
        engine.checkpoints.note_written(log.resident, log.spot)
        gathered.rows, gathered.dat = [], []
        gathered.dat_bytes = gathered.records = 0

    def _mark(self, gathered: Gathered) -> None:
        """Flip the flags of what the entries so far deleted."""
        self.flush(gathered)
        if gathered.marks:
            log, engine = gathered.log, self._engine
            seqs = np.concatenate(gathered.marks).astype(np.int64)
            removal.mark(engine, log, Snapshot(engine.shelf, log.to_row(), log.session), seqs)
            gathered.marks = []

    def _finish_log(self, gathered: Gathered, trust_tail: bool) -> None:
        log = gathered.log
        self._mark(gathered)
        if gathered.deleted:
            self._count(log)
        if not trust_tail and log.config.durability == "disk" and gathered.ceiling > log.head_seq:
            self.lose(log, gathered.ceiling)
        self._publish(log)

    def _publish(self, log: Log) -> None:
        engine = self._engine
        if log.resident:
            log.earliest_seq = log.lost_floor = log.next_seq
            log.live = log.payload_bytes = 0
            log.spot = log.spot._replace(base_seq=log.next_seq, location=0, rows=0, end=0)
        engine.retention.enforce(log, engine.clock.now_ms())
        log.session_seq = log.head_seq
        log.shelf_generation += 1
        engine.board.write(log.row, log.to_row())
        engine.dirty[log.row] = log.id

    def lose(self, log: Log, last_seq: int, reason: str = LOST) -> None:
        """Give up the seqs from the log's next one to `last_seq`, visibly."""
        engine = self._engine
        lost_from = log.next_seq
        if not log.resident:
            self._gaps.append(RecordGap(log.id, lost_from, last_seq, reason, engine.clock.now_ms()))
            self.lost_records += last_seq - lost_from + 1
            log.has_gaps = True
            # Seqs inside a segment are dense, so what follows a gap needs a new one.
            before, volume = log.spot, engine.volume_of(log)
            log.spot = volume.roll(before, last_seq + 1)
            log.shelf_generation += 1
            # Nothing but its seal says where it ends: the next one's base does not.
            volume.seal(before)
            engine.checkpoints.note_rolled(log.rolled(before))
            if log.live == 0:
                log.earliest_seq = last_seq + 1
        log.head_seq = last_seq
        log.next_seq = last_seq + 1


def _placed(gathered: Gathered, end: int) -> npt.NDArray[np.void]:
    """All gathered rows, their positions counted from `end` instead of where they were."""
    rows = np.frombuffer(b"".join(gathered.rows), dtype=ROW_DTYPE).copy()
    counts = np.array([len(part) // ROW.size for part in gathered.rows])
    lengths = np.array([len(part) for part in gathered.dat])
    ends = rows["end"].astype(np.int64)
    began = ends[np.cumsum(counts) - 1] - lengths
    begins = end + np.cumsum(lengths) - lengths
    rows["end"] = ends + np.repeat(begins - began, counts)
    return rows

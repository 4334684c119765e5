"""Deletes (API 5, DESIGN 7): voluntary, permanent, silent, of what exists at the call.

A delete below a seq moves the floor; one by tag finds its rows through the tag index and
flips their flag bytes. Three witnesses agree: the WAL entry (with the seqs that were found,
so that replay needs no index), the flag byte in the segment, and the counts on the board.
The flag bytes are made durable before the checkpoint that lets the WAL entry go.

What was deleted is counted once: a later delete does not find it again, and a replayed entry
is applied only when the checkpoint is older than it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import DeleteRecords, RecordsDeleted
from topicsd.model.match import Match
from topicsd.storage import frame, place, segment
from topicsd.storage.fs import is_full
from topicsd.storage.shelf import Region
from topicsd.storage.tags import only_live
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

Seqs = npt.NDArray[np.int64]


class Removal(NamedTuple):
    """What a delete takes: all below `before_seq`, or single seqs."""

    before_seq: int
    seqs: Seqs
    records: int
    payload_bytes: int


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteRecords
) -> RecordsDeleted:
    """Delete by seq, by tag, or by both; nothing happens when nothing matches."""
    log = engine.registry.find(command.topic)
    engine.commits.await_catalog(outcome, command.topic)
    if log is None:
        raise errors.topic_not_found(command.topic)
    _expire(engine, log)
    bound = log.head_seq + 1
    if command.before_seq is not None:
        bound = min(bound, command.before_seq)
    if command.match is None:
        removal = plan_below(engine, log, bound)
    else:
        removal = plan_match(engine, log, command.match, bound)
    if removal.records:
        remove(engine, outcome, log, removal)
    else:
        # Whoever repeats a delete is told that it is done: that must not be too early.
        engine.commits.await_written(outcome, log)
    return RecordsDeleted(
        removal.records, log.earliest_seq, log.head_seq, log.live, log.payload_bytes
    )


def _expire(engine: Engine, log: Log) -> None:
    """Notice what has expired, and show it even if nothing is deleted then."""
    earliest_seq = log.earliest_seq
    engine.retention.expire(log, engine.clock.now_ms())
    if log.earliest_seq != earliest_seq:
        engine.board.write(log.row, log.to_row())
        engine.dirty[log.row] = log.id


def plan_below(engine: Engine, log: Log, before_seq: int) -> Removal:
    """Everything below a seq."""
    if before_seq <= log.earliest_seq:
        return Removal(0, np.empty(0, dtype=np.int64), 0, 0)
    snapshot = _snapshot(engine, log)
    records, payload = snapshot.live_between(log.earliest_seq, before_seq)
    return Removal(before_seq, np.empty(0, dtype=np.int64), records, payload)


def plan_match(engine: Engine, log: Log, match: Match, before_seq: int) -> Removal:
    """Live records below `before_seq` whose tag matches, found without reading the log."""
    snapshot = _snapshot(engine, log)
    found: list[Seqs] = []
    payload = 0
    for index in range(snapshot.find(log.earliest_seq), len(snapshot.bases())):
        region, count = snapshot.region(index)
        if region.base_seq >= before_seq:
            break
        if not count:
            continue
        rows = engine.tag_indexes.find_rows(region, count, match)
        seqs = rows + region.base_seq
        rows = only_live(region, rows[(seqs >= log.earliest_seq) & (seqs < before_seq)])
        # What is damaged is withheld from readers, and told to them: it cannot be deleted.
        rows = region.sound_rows(rows, snapshot.session_row(region, count))
        if len(rows):
            found.append(rows + region.base_seq)
            payload += _payload(region, rows)
    seqs = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    return Removal(0, seqs, len(seqs), payload)


def remove(engine: Engine, outcome: Outcome, log: Log, removal: Removal) -> None:
    """Commit a removal: WAL, flag bytes, board, in this order."""
    if not log.resident:
        floors = (log.earliest_seq, log.cap_floor, log.ttl_floor)
        parts = frame.delete_parts(log.id, removal.before_seq, floors, removal.seqs)
        shard = engine.wal.shard_of(log.id)
        gated = log.config.durability == "fsync"
        try:
            lsn = engine.wal.write(shard, parts, urgent=gated)
        except OSError as error:
            if is_full(error):
                raise errors.storage_full("the disk is full") from None
            raise
        if gated:
            outcome.need.shard, outcome.need.lsn, outcome.need.gated = shard, lsn, True
    settle(engine, log, removal)
    engine.board.write(log.row, log.to_row())
    engine.moved.add(log.row)
    engine.dirty[log.row] = log.id


def settle(engine: Engine, log: Log, removal: Removal) -> None:
    """Make a removal true in the segments and in the log's numbers."""
    log.live -= removal.records
    log.payload_bytes -= removal.payload_bytes
    engine.total_bytes -= removal.payload_bytes
    if removal.before_seq > log.delete_below:
        log.delete_below = removal.before_seq
    if len(removal.seqs):
        mark(engine, log, _snapshot(engine, log), removal.seqs)
    # A new one: a packed segment is read as a copy, and the old one has no marks.
    snapshot = _snapshot(engine, log)
    floor = max(log.earliest_seq, removal.before_seq)
    log.earliest_seq = snapshot.first_visible(floor)
    engine.retention.park_segments(log, snapshot)


def mark(engine: Engine, log: Log, snapshot: Snapshot, seqs: Seqs) -> None:
    """Flip the flag bytes of single records, wherever their segments are."""
    bases = np.array(snapshot.bases())
    volume = engine.volume_of(log)
    places = np.searchsorted(bases, seqs, side="right") - 1
    for index in np.unique(places[places >= 0]).tolist():
        base = int(bases[index])
        rows = seqs[places == index] - base
        # Behind a segment's last row there may be a gap: what was lost cannot be marked.
        rows = rows[rows < snapshot.region(index)[1]]
        active = base == log.spot.base_seq
        location = log.spot.location if active else place.OWN_FILES
        spot = log.spot._replace(base_seq=base, location=location)
        volume.mark_deleted(spot, rows.tolist())
        engine.checkpoints.note_written(log.resident, spot)


def _payload(region: Region, rows: Seqs) -> int:
    """Payload bytes of scattered rows, looking at these rows only."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    sizes = segment.scattered_sizes(region.rows[rows], region.base_seq + rows, starts)
    return int(sizes.sum())


def _snapshot(engine: Engine, log: Log) -> Snapshot:
    return Snapshot(engine.shelf, log.to_row(), log.session)

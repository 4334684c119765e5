"""Deletes (API 5, DESIGN 7): voluntary, permanent, silent, of what exists at the call.

A delete below a seq moves the floor; one by tag finds its rows through the tag index and
flips their flag bytes. Three witnesses agree: the WAL entry (with the seqs that were found,
so that replay needs no index), the flag byte in the segment, and the counts on the board.
The flag bytes are made durable before the checkpoint that lets the WAL entry go.

What was deleted is counted once: a later delete does not find it again, and a replayed entry
is applied only when the checkpoint is older than it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.engine.log import Log
from topicsd.engine.routes import marks_of
from topicsd.engine.space import refuse_when_full
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import DeleteRecords, RecordsDeleted
from topicsd.model.match import Match
from topicsd.storage import frame, place, segment
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


_NOTHING = Removal(0, np.empty(0, dtype=np.int64), 0, 0)


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteRecords
) -> RecordsDeleted:
    """Delete by seq, by tag, or by both; nothing happens when nothing matches."""
    log = engine.registry.find(command.topic)
    engine.commits.await_catalog(outcome, command.topic)
    if log is None:
        raise errors.topic_not_found(command.topic)
    engine.retention.notice(log, engine.clock.now_ms())
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


def plan_below(engine: Engine, log: Log, before_seq: int) -> Removal:
    """Everything below a seq."""
    if before_seq <= log.earliest_seq:
        return _NOTHING
    snapshot = _snapshot(engine, log)
    records, payload = snapshot.live_between(log.earliest_seq, before_seq)
    return Removal(before_seq, _NOTHING.seqs, records, payload)


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


def plan_seqs(engine: Engine, log: Log, seqs: list[int]) -> int:
    """Payload bytes of single records, given in ascending order; all of them are live."""
    snapshot = _snapshot(engine, log)
    bases = snapshot.bases()
    payload = start = 0
    while start < len(seqs):
        index = snapshot.find(seqs[start])
        stop = len(seqs)
        if index + 1 < len(bases):
            stop = bisect_left(seqs, bases[index + 1], start)
        region, _ = snapshot.region(index)
        rows = np.array(seqs[start:stop], dtype=np.int64) - region.base_seq
        payload += _payload(region, rows)
        start = stop
    return payload


def remove(engine: Engine, outcome: Outcome, log: Log, removal: Removal) -> None:
    """Commit a removal: WAL, flag bytes, board, in this order."""
    write_entry(engine, outcome, log, removal)
    settle(engine, log, removal)
    engine.board.write(log.row, log.to_row())
    engine.moved.add(log.row)
    engine.dirty[log.row] = log.id


def write_entry(engine: Engine, outcome: Outcome, log: Log, removal: Removal = _NOTHING) -> None:
    """Put a removal and the floors before it into the WAL; without one, just the floors.

    The reply waits as the log's durability class demands. Nothing has happened when the disk
    is full.
    """
    if log.resident:
        return
    floors = (log.earliest_seq, log.cap_floor, log.ttl_floor)
    parts = marks_of(engine, log, {})
    parts += frame.delete_parts(log.id, removal.before_seq, floors, removal.seqs)
    shard = engine.wal.shard_of(log.id)
    gated = log.config.durability == "fsync"
    with refuse_when_full():
        lsn = engine.wal.write(shard, parts, urgent=gated)
    if gated:
        outcome.need.add_sync(shard, lsn)
        outcome.need.gated = True


def settle(engine: Engine, log: Log, removal: Removal) -> None:
    """Make a removal true in the segments and in the log's numbers."""
    count_out(engine, log, removal.records, removal.payload_bytes)
    show(engine, log, removal)
    engine.queues.forget(log, removal.seqs)


def count_out(engine: Engine, log: Log, records: int, payload_bytes: int) -> None:
    """Take records out of the numbers of a log."""
    log.live -= records
    log.payload_bytes -= payload_bytes
    engine.total_bytes -= payload_bytes


def show(engine: Engine, log: Log, removal: Removal) -> None:
    """Make a removal true in the segments; it is counted already."""
    if removal.before_seq > log.delete_below:
        log.delete_below = removal.before_seq
    marked = mark(engine, log, _snapshot(engine, log), removal.seqs) if len(removal.seqs) else []
    # A new one: a packed segment is read as a copy, and the old one has no marks.
    snapshot = _snapshot(engine, log)
    floor = max(log.earliest_seq, removal.before_seq)
    log.earliest_seq = snapshot.first_visible(floor)
    engine.retention.park_segments(log, snapshot)
    engine.retention.park_emptied(log, snapshot, marked)


def mark(engine: Engine, log: Log, snapshot: Snapshot, seqs: Seqs) -> list[int]:
    """Flip the flag bytes of single records; return the segments, by place in the snapshot."""
    bases = snapshot.bases()
    seqs = np.sort(seqs)
    stops = [*np.searchsorted(seqs, bases[1:]).tolist(), len(seqs)]
    start = int(np.searchsorted(seqs, bases[0]))
    marked = []
    for index, (base, stop) in enumerate(zip(bases, stops, strict=True)):
        rows, start = seqs[start:stop] - base, stop
        if not len(rows):
            continue
        # Behind a segment's last row there may be a gap: what was lost cannot be marked.
        rows = rows[rows < snapshot.region(index)[1]]
        active = base == log.spot.base_seq
        location = log.spot.location if active else place.OWN_FILES
        spot = log.spot._replace(base_seq=base, location=location)
        tier = snapshot.key(index).tier
        engine.volumes[tier].mark_deleted(spot, rows)
        engine.checkpoints.note_written(tier, spot)
        engine.tiering.note_deleted(log.id, base)
        marked.append(index)
    return marked


def _payload(region: Region, rows: Seqs) -> int:
    """Payload bytes of scattered rows, looking at these rows only."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    sizes = segment.scattered_sizes(region.rows[rows], region.base_seq + rows, starts)
    return int(sizes.sum())


def _snapshot(engine: Engine, log: Log) -> Snapshot:
    return Snapshot(engine.shelf, log.to_row(), log.session)

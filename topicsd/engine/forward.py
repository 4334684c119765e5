"""Forwarding (API 6, DESIGN 8): copies follow their source, off the path of its replies.

`step` does a bounded piece of work and is called when nothing else is to be done, now and
then also when there is (`bridge.driver`). Routes that have something to do take turns.

Copies are not in the WAL: one write of a source is one frame, whatever its fan-out. They are
segment bytes and a board row, made durable by the checkpoint that also saves the cursor;
after a crash `engine.rederive` makes them again from what the WAL and the source have. That
they come out the same, each at its old seq, rests on these rules:

- only synced records are copied, so whatever a destination has shown can be copied again
- a destination's own writes carry a mark of where the copies stood (`routes.mark`), and so do
  deletes in a source or destination, so copies and writes interleave as they did
- nothing is copied behind a write of the destination's own that is not synced; when such
  writes keep coming, copies are logged like writes (`LOGGED_AFTER_MS`)
- copies of an ephemeral source are logged always: it will not be there to copy again

What a source lost before it was copied, to its caps or TTL or to a crash, is told by one seq
of the destination: a record that is deleted from the start, and a gap with the reason
`source_trim` over it. A loss right behind another one takes no further seq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topicsd.engine import append
from topicsd.engine.copies import Copier, Pick, Slice, find_live, pick, take
from topicsd.engine.hops import HOPS_MAX, Hops
from topicsd.engine.log import Log
from topicsd.engine.routes import Route, mark, mark_at
from topicsd.engine.seen import find_seen
from topicsd.engine.space import refuse_when_full
from topicsd.engine.staging import Batch, Outcome
from topicsd.engine.syncs import Syncs
from topicsd.model.commands import Append
from topicsd.model.errors import TopicsError
from topicsd.model.record import DELETED, pack_record
from topicsd.rules.floors import SOURCE_TRIM, Floors, plan_read
from topicsd.storage.catalog import RecordGap
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

# What one turn of a route copies at most, and a step of all of them.
SLICE_RECORDS: Final = 512
SLICE_BYTES: Final = 1 << 20
STEP_RECORDS: Final = 1024
# How long copies wait for their destination's own writes to be synced.
LOGGED_AFTER_MS: Final = 50
BACKOFF_US_MIN: Final = 10_000
BACKOFF_US_MAX: Final = 1_000_000

_FORM, _ROW = pack_record(b"null", None, None, None)
# A record that stands for what is lost: nobody ever reads it.
_PLACEHOLDER = Append("", 1, _FORM, _ROW[:-1] + bytes([DELETED]), 0)
_NO_SEQS: set[int] = set()


class Move(NamedTuple):
    """A step of one route that is staged: where its cursor will be, and what that adds."""

    route: Route
    dest: Log
    cursor: int
    picks: list[Pick]
    hops: int
    first_seq: int
    # What the destination was before a placeholder was staged.
    trim: tuple[int, int, bool] | None = None


class Forwarder:
    """Drives all routes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._copier = Copier()
        self.syncs = Syncs(engine)
        self.hops = Hops(engine.routes)
        # Routes that may have something to do, in the order of their turns.
        self._ready: dict[Route, None] = dict.fromkeys(engine.routes)
        # Routes that wait for a sync, and those that a destination refused, with when to retry.
        self._waiting: dict[Route, None] = {}
        self._blocked: dict[Route, int] = {}
        # Gaps of sources, which the catalog may not have yet.
        self._gaps: dict[int, list[tuple[int, int]]] = {}

    @property
    def due(self) -> bool:
        """Whether a step would find something to do."""
        return bool(self._ready)

    def wake(self, route: Route) -> None:
        if not route.paused:
            self._ready[route] = None

    def retry(self, route: Route) -> None:
        """Ask a destination again that refused, without waiting for its time."""
        if self._blocked.pop(route, None) is not None:
            self.wake(route)

    def is_stuck(self, route: Route) -> bool:
        """Whether a route goes nowhere for now: its destination refused, or it is to change."""
        return route in self._blocked or bool(route.paused)

    def note_moved(self, log: Log) -> None:
        """A log has new records, or room again."""
        for route in self._engine.routes.by_source.get(log.id, ()):
            self.wake(route)

    def forget(self, route: Route) -> None:
        for routes in (self._ready, self._waiting, self._blocked):
            routes.pop(route, None)

    def forget_log(self, log_id: int) -> None:
        """A log is gone, or no end of a route any more."""
        self.syncs.forget(log_id)
        self.hops.forget(log_id)
        self._gaps.pop(log_id, None)

    def poll(self) -> None:
        """Look again at routes that wait, for a sync or for their time."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for route in waiting:
                self.wake(route)
        if self._blocked:
            now_us = self._engine.clock.monotonic_us()
            for route in [each for each, due_us in self._blocked.items() if due_us <= now_us]:
                self.retry(route)

    def step(self) -> None:
        """Let routes take their turns until enough is copied."""
        batch, moves, left = Batch(), [], STEP_RECORDS
        for route in list(self._ready):
            if left <= 0:
                break
            del self._ready[route]
            move = self._advance(route, batch)
            if move is not None:
                moves.append(move)
                left -= sum(len(each.rows) for each in move.picks) + 1
        failed: set[Ticket] = {ticket for ticket, _ in self._engine.commits.commit(batch)}
        for move in moves:
            if move.route.dest_id in failed:
                self._take_back(move)
            else:
                self._settle(move)

    def _advance(self, route: Route, batch: Batch) -> Move | None:
        """Take one turn; None when nothing was staged."""
        engine = self._engine
        source, dest = engine.registry.find(route.source), engine.registry.find(route.dest)
        assert source is not None and dest is not None, f"a route without ends: {route.source}"
        if source in batch.chunks or dest in batch.chunks:
            # What is staged can be read only when it is committed.
            self._ready[route] = None
            return None
        stop = self.syncs.head(source, route.cursor)
        if route.cursor >= stop:
            if source.head_seq > stop:
                self._waiting[route] = None
            return None
        logged = source.resident
        if not (logged or dest.resident or self.syncs.is_clean(dest)):
            logged = self._waited(route)
            if not logged:
                self._waiting[route] = None
                return None
        route.waits_since_us = 0
        try:
            return self._stage(route, (source, dest), stop, batch, logged=logged)
        except TopicsError:
            self._block(route)
            return None

    def _waited(self, route: Route) -> bool:
        now_us = self._engine.clock.monotonic_us()
        if not route.waits_since_us:
            route.waits_since_us = now_us
        return now_us - route.waits_since_us > LOGGED_AFTER_MS * 1000

    def _block(self, route: Route) -> None:
        route.backoff_us = min(max(2 * route.backoff_us, BACKOFF_US_MIN), BACKOFF_US_MAX)
        self._blocked[route] = self._engine.clock.monotonic_us() + route.backoff_us

    def _stage(
        self, route: Route, ends: tuple[Log, Log], stop: int, batch: Batch, *, logged: bool
    ) -> Move | None:
        source, dest = ends
        engine, now_ms = self._engine, self._engine.clock.now_ms()
        engine.retention.notice(source, now_ms)
        engine.retention.notice(dest, now_ms)
        floors = Floors(
            source.head_seq,
            source.earliest_seq,
            source.cap_floor,
            source.ttl_floor,
            source.lost_floor,
        )
        plan = plan_read(route.cursor, floors, self._gaps_of(source))
        if plan.tombstone is not None:
            return self._stage_trim(route, dest, plan.start - 1, batch)
        hops, run_stop = self.hops.at(source.id, plan.start)
        stop = min(stop, plan.stop, run_stop)
        if plan.start > stop:
            # Only deleted records are in between.
            return Move(route, dest, min(plan.start - 1, source.head_seq), [], 0, 0)
        snapshot = Snapshot(engine.shelf, source.to_row(), source.session)
        rows_max = SLICE_RECORDS
        while True:
            part = take(snapshot, plan.start, stop, rows_max, SLICE_BYTES)
            if part is None:
                return Move(route, dest, stop, [], 0, 0)
            if not part.sound:
                return self._stage_trim(route, dest, part.last_seq, batch)
            if route.cyclic and hops >= HOPS_MAX:
                return Move(route, dest, part.last_seq, [], 0, 0)
            live = find_live(part, _NO_SEQS)
            picks = [self._unseen(route, part, pick(part, live, each)) for each in route.routers]
            copies = self._copier.build(source, part, picks)
            if copies is None:
                return Move(route, dest, part.last_seq, [], 0, 0)
            try:
                append.admit(engine, dest.config, copies, dest)
            except TopicsError:
                if part.stop - part.first == 1:
                    raise
                # What does not fit as a whole may fit record by record.
                rows_max = 1
                continue
            move = Move(route, dest, part.last_seq, picks, hops + route.cyclic, dest.next_seq)
            self._stage_copies(move, copies, batch, logged=logged)
            return move

    def _stage_copies(self, move: Move, copies: Append, batch: Batch, *, logged: bool) -> None:
        engine, dest = self._engine, move.dest
        outcome = Outcome(move.route.dest_id)
        outcome.appended = dest
        batch.outcomes.append(outcome)
        append.stage(engine, batch, dest, copies, engine.clock.now_ms())
        chunk = batch.chunks[dest]
        chunk.logged = logged
        if logged:
            _count(move, 1)
            chunk.after = mark_at(move.route, dest, move.cursor, dest.next_seq)
            _count(move, -1)

    def _stage_trim(self, route: Route, dest: Log, upto: int, batch: Batch) -> Move | None:
        """Let one seq of the destination stand for what its source lost, up to a seq."""
        engine = self._engine
        if route.trimming:
            # Readers find the last loss on the board, and older ones in the catalog.
            return None
        move = Move(route, dest, upto, [], 0, dest.next_seq)
        if dest.trim_seq and dest.trim_seq == dest.next_seq - 1:
            if not dest.resident:
                with refuse_when_full():
                    shard = engine.wal.shard_of(dest.id)
                    lsn = engine.wal.write(shard, mark(route, dest, upto), urgent=False)
                self.syncs.note_written(dest, shard, lsn)
            return move
        before = (dest.trim_seq, dest.earliest_seq, dest.has_gaps)
        outcome = Outcome(route.dest_id)
        outcome.appended = dest
        batch.outcomes.append(outcome)
        append.stage(engine, batch, dest, _PLACEHOLDER, engine.clock.now_ms())
        seq = dest.head_seq
        dest.live -= 1
        dest.trim_seq, dest.has_gaps = seq, True
        if not dest.live:
            dest.earliest_seq = dest.next_seq
        batch.chunks[dest].after = mark_at(route, dest, upto, dest.next_seq, trimmed=seq)
        return move._replace(trim=before)

    def _settle(self, move: Move) -> None:
        """The copies are visible: move the cursor, and say who may go on."""
        engine, route, dest = self._engine, move.route, move.dest
        route.cursor = move.cursor
        route.moved_in = engine.checkpoints.started
        route.backoff_us = 0
        engine.dirty[dest.row] = dest.id
        _count(move, 1)
        if move.hops:
            self.hops.note(dest.id, move.first_seq, dest.head_seq, move.hops)
        if move.trim is not None:
            self._note_trim(route, dest, move.first_seq)
        self.wake(route)

    def _take_back(self, move: Move) -> None:
        """The disk was full: nothing has happened."""
        if move.trim is not None:
            move.dest.trim_seq, move.dest.earliest_seq, move.dest.has_gaps = move.trim
        self._block(move.route)

    def _note_trim(self, route: Route, dest: Log, seq: int) -> None:
        engine = self._engine
        route.trimming = True
        if dest.id in self._gaps:
            self._gaps[dest.id].append((seq, seq))
        gap = RecordGap(dest.id, seq, seq, SOURCE_TRIM, engine.clock.now_ms())
        number = engine.clerk.submit([gap])

        def settle() -> None:
            route.trimming = False
            self.wake(route)

        engine.held.after_catalog(number, settle)

    def _gaps_of(self, log: Log) -> list[tuple[int, int]]:
        if not log.has_gaps:
            return []
        if log.id not in self._gaps:
            found = [(gap.from_seq, gap.to_seq) for gap in self._engine.catalog.gaps(log.id)]
            if log.trim_seq and (log.trim_seq, log.trim_seq) not in found:
                found = sorted([*found, (log.trim_seq, log.trim_seq)])
            self._gaps[log.id] = found
        return self._gaps[log.id]

    def _unseen(self, route: Route, part: Slice, picked: Pick) -> Pick:
        """Leave out what is in the destination already (exactly_once)."""
        if not picked.router.config.stamps:
            return picked
        if route.seen is None:
            route.seen = find_seen(self._engine, route)
        seqs = route.seen.get(picked.router.id)
        if not seqs:
            return picked
        known = np.isin(picked.rows + part.region.base_seq, list(seqs))
        return picked._replace(rows=picked.rows[~known])


def _count(move: Move, sign: int) -> None:
    for router, rows in move.picks:
        router.forwarded += sign * len(rows)

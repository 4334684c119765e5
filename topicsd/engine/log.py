"""The engine's own copy of a log: what the board shows, plus what only the writer knows.

A `Log` is a cache entry. Everything in it is on the board, in the catalog or in the WAL, so
an idle log costs nothing here: it is dropped from memory and loaded again when needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from topicsd.model.topic import TopicConfig
from topicsd.storage.board import (
    FLAG_CLOSED,
    FLAG_DERIVED,
    FLAG_GAPS,
    FLAG_GONE,
    FLAG_HOLES,
    FLAG_RESIDENT,
    BoardRow,
    kind_flags,
)
from topicsd.storage.catalog import BoardState, LogState
from topicsd.storage.volume import Spot


class Rolled(NamedTuple):
    """A segment that will not grow, and how many of its rows an earlier process wrote."""

    resident: bool
    spot: Spot
    unverified: int


class Log(msgspec.Struct, eq=False):
    """One log. Fields before `spot` are its watermarks; see `storage.board`."""

    id: int
    row: int
    name: str
    config: TopicConfig
    epoch: int = 1
    generation: int = 1
    head_seq: int = 0
    next_seq: int = 1
    earliest_seq: int = 1
    cap_floor: int = 1
    ttl_floor: int = 1
    lost_floor: int = 1
    delete_below: int = 0
    live: int = 0
    payload_bytes: int = 0
    last_write_ts: int = 0
    spot: Spot = Spot(0, 1, 0, 0, 0)
    shelf_generation: int = 1
    has_gaps: bool = False
    # Whether a router copies into this log, and the last seq that stands for what its source
    # lost before it was copied.
    derived: bool = False
    trim_seq: int = 0
    # A stream that takes no more entries; one that is deleted but kept for its forks.
    closed: bool = False
    gone: bool = False
    created_ts: int = 0
    session: int = 0
    session_seq: int = 0
    # Seqs up to `ceiling` may be acknowledged before their frame is synced, because a frame
    # that carries it is (`ceiling_lsn`) synced; see engine.commit.
    ceiling: int = 0
    ceiling_next: int = 0
    ceiling_lsn: int = 0
    ceiling_checkpoint: int = -1
    # Changes on their way to the catalog; see engine.registry.
    changes: int = 0
    dropped: bool = False
    # Segments up to this base are below the floor and on their way out.
    parked_base: int = 0
    # Files on the volume that a change of durability class leaves, until it is committed.
    leaving: list[Path] | None = None

    @property
    def resident(self) -> bool:
        """Whether records live in memory only (durability class ephemeral)."""
        return self.config.durability == "ephemeral"

    def rolled(self, spot: Spot) -> Rolled:
        """What to seal of a segment that this log has left."""
        unverified = min(max(self.session_seq - spot.base_seq + 1, 0), spot.rows)
        return Rolled(self.resident, spot, unverified)

    def to_row(self) -> BoardRow:
        spot = self.spot
        return BoardRow(
            self.id,
            self.generation,
            self.head_seq,
            self.next_seq,
            self.earliest_seq,
            self.cap_floor,
            self.ttl_floor,
            self.lost_floor,
            self.delete_below,
            self.live,
            self.payload_bytes,
            self.config.ttl_ms,
            spot.base_seq,
            spot.rows,
            spot.end,
            spot.location,
            self._flags(),
            self.last_write_ts,
            self.session,
            self.session_seq,
            self.shelf_generation,
            self.epoch,
            0,
            self.trim_seq,
        )

    def _flags(self) -> int:
        # Fewer live records than seqs: some are deleted, or lie in a gap.
        holes = self.live != self.next_seq - self.earliest_seq
        kind = kind_flags(self.config.durability, self.config.type) | FLAG_DERIVED * self.derived
        kind |= FLAG_CLOSED * self.closed | FLAG_GONE * self.gone
        return kind | FLAG_RESIDENT * self.resident | FLAG_GAPS * self.has_gaps | FLAG_HOLES * holes

    def load_row(self, row: BoardRow, session: int) -> None:
        """Take over what the board shows."""
        self.generation = row.generation
        self.head_seq = row.head_seq
        self.next_seq = row.next_seq
        self.earliest_seq = row.earliest_seq
        self.cap_floor = row.cap_floor
        self.ttl_floor = row.ttl_floor
        self.lost_floor = row.lost_floor
        self.delete_below = row.delete_below
        self.live = row.live
        self.payload_bytes = row.payload_bytes
        self.last_write_ts = row.last_write_ts
        self.spot = Spot(self.id, row.active_base, row.location, row.active_rows, row.active_end)
        self.shelf_generation = row.shelf_generation
        self.has_gaps = bool(row.flags & FLAG_GAPS)
        self.derived = bool(row.flags & FLAG_DERIVED)
        self.closed = bool(row.flags & FLAG_CLOSED)
        self.gone = bool(row.flags & FLAG_GONE)
        self.trim_seq = row.trim_seq
        self.session = session
        self.session_seq = row.session_seq if row.session == session else row.head_seq


def row_of_state(found: BoardState) -> BoardRow:
    """The board row of a log as the last checkpoint saw it."""
    state = found.state
    row = BoardRow(
        log_id=state.id,
        generation=1,
        ttl_ms=found.ttl_ms,
        flags=kind_flags(found.durability, found.kind)
        | FLAG_GAPS * found.has_gaps
        | FLAG_CLOSED * found.closed
        | FLAG_GONE * found.gone,
        shelf_generation=1,
        epoch=found.epoch,
    )
    if state.next_seq == 0:
        return row
    # As in `Log._flags`: a reader looks for deleted records only when told that there are any.
    holes = state.count != state.next_seq - state.earliest_seq
    return row._replace(
        flags=row.flags | FLAG_HOLES * holes,
        head_seq=state.head_seq,
        next_seq=state.next_seq,
        earliest_seq=state.earliest_seq,
        cap_floor=state.cap_floor,
        ttl_floor=state.ttl_floor,
        lost_floor=state.lost_floor,
        delete_below=state.delete_below,
        live=state.count,
        payload_bytes=state.bytes,
        active_base=state.active_base,
        active_rows=state.active_rows,
        active_end=state.active_end,
        location=state.location,
        last_write_ts=state.last_write_ts,
    )


def state_of_row(row: BoardRow, last_read_ts: int) -> LogState:
    """What a checkpoint stores of a board row; an ephemeral log keeps only its numbers."""
    resident = bool(row.flags & FLAG_RESIDENT)
    return LogState(
        row.log_id,
        head_seq=row.head_seq,
        next_seq=row.next_seq,
        earliest_seq=row.next_seq if resident else row.earliest_seq,
        cap_floor=row.cap_floor,
        ttl_floor=row.ttl_floor,
        lost_floor=row.next_seq if resident and row.live else row.lost_floor,
        delete_below=row.delete_below,
        count=0 if resident else row.live,
        bytes=0 if resident else row.payload_bytes,
        last_write_ts=row.last_write_ts,
        last_read_ts=last_read_ts,
        active_base=row.next_seq if resident else row.active_base,
        active_rows=0 if resident else row.active_rows,
        active_end=0 if resident else row.active_end,
        location=0 if resident else row.location,
    )

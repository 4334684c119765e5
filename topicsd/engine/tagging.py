"""Which rows are put in the order of their tags before their segment is sealed, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.engine.log import Log
from topicsd.storage import place, tag_pieces
from topicsd.storage.view import Snapshot
from topicsd.storage.volume import Spot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def note_written(engine: Engine, log: Log, before: Spot) -> None:
    """Have rows put in order when a piece is full, and when a segment has ended."""
    spot, piece_rows = log.spot, tag_pieces.PIECE_ROWS
    if spot.location != place.OWN_FILES:
        return
    # What was added of the segment so far ends where this piece begins.
    first = before.rows // piece_rows * piece_rows
    if spot.base_seq != before.base_seq:
        if before.rows > first:
            _add(engine, log, before.base_seq, first, before.rows)
        first = 0
    stop = spot.rows // piece_rows * piece_rows
    if stop > first:
        _add(engine, log, spot.base_seq, first, stop)


def _add(engine: Engine, log: Log, base_seq: int, first: int, stop: int) -> None:
    snapshot = Snapshot(engine.shelf, log.to_row(), log.session)
    region, _ = snapshot.region(snapshot.find(base_seq))
    engine.tag_indexes.pieces.add(region, first, stop)

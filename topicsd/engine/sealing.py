"""When a segment ends by age, and what happens to one that will not grow any more.

A segment that is full ends where the next record would go (`storage.volume`). One that is
merely old ends here, so that a slow topic's records are sealed too.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from topicsd.engine.log import Log, Rolled
from topicsd.engine.pace import Pace
from topicsd.model.record import DELETED
from topicsd.storage import place, segment, tags
from topicsd.storage.catalog import SaveSegment, Segment
from topicsd.storage.shelf import Region, SegmentKey, Shelf
from topicsd.storage.view import payload_sizes

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


class Ages:
    """Active segments with files of their own, oldest first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._began: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def note(self, log: Log, now_ms: int) -> None:
        """Remember when a log's active segment began, as far as this process knows."""
        if log.spot.location != place.OWN_FILES:
            return
        known = self._began.get(log.id)
        if known is None or known[0] != log.spot.base_seq:
            self._began[log.id] = (log.spot.base_seq, now_ms)
            self._began.move_to_end(log.id)

    def roll_old(self, now_ms: int) -> None:
        """End every segment older than TOPICS_SEGMENT_MAX_AGE_MS."""
        age_max = self._engine.settings.segment_max_age_ms
        while age_max and self._began:
            log_id, (base_seq, began_ms) = next(iter(self._began.items()))
            if now_ms - began_ms < age_max:
                return
            del self._began[log_id]
            log = self._engine.registry.find_by_id(log_id)
            if log is not None and log.spot.base_seq == base_seq and log.spot.rows:
                self._roll(log)

    def _roll(self, log: Log) -> None:
        engine, before = self._engine, log.spot
        log.spot = engine.volume_of(log).roll(before, log.next_seq)
        log.shelf_generation += 1
        engine.checkpoints.note_rolled(log.rolled(before))
        engine.board.write(log.row, log.to_row())
        engine.dirty[log.row] = log.id


def seal_segment(engine: Engine, rolled: Rolled, pace: Pace) -> SaveSegment | None:
    """Seal one segment; None when its log was deleted meanwhile.

    A seal vouches for every byte. Rows that this process did not write itself may have
    rotted since, so they are verified first.
    """
    resident, spot, unverified = rolled
    root = engine.volumes[resident].root
    # A shelf of its own: this runs beside the engine thread, which has another.
    shelf = Shelf(engine.files, (root,), maps_max=1)
    key = SegmentKey(place.DISK, spot.log_id, spot.base_seq)
    try:
        vouch = not any(shelf.open(key).check_rows(0, unverified))
        counts = (spot.rows, spot.end)
        segment.seal(engine.files, root, spot.log_id, spot.base_seq, counts, vouch=vouch, pace=pace)
        shelf.forget()
        region = shelf.open(key)
        if vouch:
            _write_tags(engine, root, region)
            pace()
    except FileNotFoundError:
        return None
    if resident:
        return None
    rows = region.rows[: spot.rows]
    live = rows["deleted"] != DELETED
    # What the seal was made from need not be added up again.
    seal = region.seal if vouch else None
    if seal is not None and live.all():
        payload_bytes = seal.payload_bytes
    else:
        payload_bytes = int(payload_sizes(region, 0, spot.rows)[live].sum())
    return SaveSegment(
        Segment(
            log_id=spot.log_id,
            base_seq=spot.base_seq,
            rows=spot.rows,
            bytes=spot.end,
            payload_bytes=payload_bytes,
            live_rows=int(np.count_nonzero(live)),
            first_ts=int(rows["ts"][0]),
            last_ts=int(rows["ts"][-1]),
            sealed_ts=engine.clock.now_ms(),
            checksum=segment.rows_sum(rows) if seal is None else seal.rows_sum,
            state="sealed",
        )
    )


def _write_tags(engine: Engine, root: Path, region: Region) -> None:
    """Put the tag index beside a sealed segment, if any of its records has a tag."""
    index = tags.build_index(region, len(region.rows))
    if index:
        path = place.tag_path(root, region.key.log_id, region.key.base_seq)
        engine.files.write_whole(path, index)

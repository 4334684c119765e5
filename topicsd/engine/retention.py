"""Caps and expiry (DESIGN 5): move the floors, and drop segments that fell below them.

Floors and counts are exact and move at once. Files go later and whole: a segment entirely
below the floor is dropped after the next checkpoint, because until then a crash would
bring the old floor back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from topicsd.engine.log import Log
from topicsd.storage import place
from topicsd.storage.shelf import Region
from topicsd.storage.tags import only_live
from topicsd.storage.view import WINDOW_ROWS, Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


# What moving its floors changes in a log.
_MOVED = ("earliest_seq", "cap_floor", "ttl_floor", "live", "payload_bytes", "parked_base")


class Retention:
    """Applies a log's caps and TTL to its floors."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Segments below their log's floor: (resident, log id, base seq).
        self.droppable: list[tuple[bool, int, int]] = []
        # Segments above it with nothing but deleted records: (log id, base seq).
        self.emptied: list[tuple[int, int]] = []

    def enforce(self, log: Log, now_ms: int) -> None:
        """Bring a log back within its limits after an append (discard "old")."""
        config = log.config
        self.expire(log, now_ms)
        if config.discard != "old":
            return
        over_records = max(log.live - config.cap_records, 0) if config.cap_records else 0
        over_bytes = max(log.payload_bytes - config.cap_bytes, 0) if config.cap_bytes else 0
        if not (over_records or over_bytes):
            return
        snapshot = self._snapshot(log)
        eviction = snapshot.plan_eviction(over_records, over_bytes)
        log.cap_floor = eviction.last_seq + 1
        log.earliest_seq = snapshot.first_visible(log.cap_floor)
        self._subtract(log, eviction.records, eviction.payload_bytes)
        self.park_segments(log, snapshot)

    def expire(self, log: Log, now_ms: int) -> None:
        """Move the floor above records older than the topic's TTL."""
        if not log.config.ttl_ms or not log.live:
            return
        snapshot = self._snapshot(log)
        floor = snapshot.expired_below(now_ms)
        if floor <= log.earliest_seq:
            return
        records, payload = snapshot.live_between(log.earliest_seq, floor)
        log.ttl_floor = floor
        log.earliest_seq = snapshot.first_visible(floor)
        self._subtract(log, records, payload)
        self.park_segments(log, snapshot)

    def notice(self, log: Log, now_ms: int) -> None:
        """Expire, and show it at once: the command may be refused, and the log forgotten.

        It need not be in the WAL: expiry is a function of the clock, which readers and replay
        apply again. That takes the same TTL, so a change of it writes the floors down.
        """
        earliest_seq = log.earliest_seq
        self.expire(log, now_ms)
        if log.earliest_seq != earliest_seq:
            self._engine.board.write(log.row, log.to_row())
            self._engine.dirty[log.row] = log.id

    def remember(self, log: Log) -> Callable[[], None]:
        """A function that takes back what happens to a log's floors from now on."""
        values = {field: getattr(log, field) for field in _MOVED}
        total_bytes, droppable = self._engine.total_bytes, len(self.droppable)

        def take_back() -> None:
            for field, value in values.items():
                setattr(log, field, value)
            self._engine.total_bytes = total_bytes
            del self.droppable[droppable:]

        return take_back

    def take_droppable(self) -> list[tuple[bool, int, int]]:
        taken, self.droppable = self.droppable, []
        return taken

    def take_emptied(self) -> list[tuple[int, int]]:
        taken, self.emptied = self.emptied, []
        return taken

    def park_emptied(self, log: Log, snapshot: Snapshot, indexes: list[int]) -> None:
        """Note sealed segments of which a delete left nothing (DESIGN 7.4)."""
        # What is below may be dropped already, though it is still in the list.
        first = snapshot.find(log.earliest_seq)
        for index in indexes:
            if index <= first or snapshot.bases()[index] == log.spot.base_seq:
                continue
            region, rows = snapshot.region(index)
            # Where an unsealed segment ends is known from the next one, which must stay then.
            ended = snapshot.region(index - 1)[0].seal is not None
            if region.seal is None or not ended:
                continue
            if not _has_live(region, rows):
                self.emptied.append((log.id, region.base_seq))

    def drop_emptied(self, emptied: list[tuple[int, int]]) -> None:
        """Take segments out of the list that readers see; a checkpoint has their deletes."""
        engine = self._engine
        for log_id, base in emptied:
            log = engine.registry.find_by_id(log_id)
            if log is None:
                continue
            for volume in engine.volumes_of(resident=log.resident):
                volume.drop_segment(log_id, base)
            log.shelf_generation += 1
            engine.board.write(log.row, log.to_row())

    def _snapshot(self, log: Log) -> Snapshot:
        return Snapshot(self._engine.shelf, log.to_row(), log.session)

    def _subtract(self, log: Log, records: int, payload: int) -> None:
        log.live -= records
        log.payload_bytes -= payload
        self._engine.total_bytes -= payload

    def park_segments(self, log: Log, snapshot: Snapshot) -> None:
        """Note segments that are entirely below the floor, to be dropped."""
        if log.spot.location != place.OWN_FILES:
            return
        bases = snapshot.bases()
        for base, following in pairwise(bases):
            if following <= log.earliest_seq and base > log.parked_base:
                self.droppable.append((log.resident, log.id, base))
                log.parked_base = base


def _has_live(region: Region, rows: int) -> bool:
    """Whether any record is left; from the end, which deletes mostly reach last."""
    return any(
        only_live(region, np.arange(max(stop - WINDOW_ROWS, 0), stop)).size
        for stop in range(rows, 0, -WINDOW_ROWS)
    )

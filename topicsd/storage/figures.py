"""What the engine tells every process about itself, in the header of the board.

The cells start at byte 512 of the header: a version, odd while the engine writes, then one
u64 for each field of `Figures`, then one for each bucket of the fsync histogram, the last
one open-ended. Only the engine writes them, after every batch and on every tick; all of
them count from the engine's start.

A reader takes what it finds after a bounded number of attempts, because an engine that died
inside `write` leaves the version odd and numbers for people need not wait for the next one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from topicsd.storage.wal import FSYNC_BUCKETS_US

POSITION: Final = 512
ATTEMPTS_MAX: Final = 1000
_BUCKETS: Final = len(FSYNC_BUCKETS_US) + 1


class Figures(NamedTuple):
    """One engine's counters and gauges, all from one instant."""

    frames: int = 0
    batches: int = 0
    fsync_us_total: int = 0
    bytes_written: int = 0
    rotations: int = 0
    # Replies that wait for a sync or for the catalog.
    queue_depth: int = 0
    queue_depth_peak: int = 0
    # 1 while the last attempt to write a frame failed for want of space.
    read_only: int = 0
    records_appended: int = 0
    checkpoints: int = 0
    checkpoint_running: int = 0
    watch_sessions: int = 0
    leases_in_flight: int = 0
    routers: int = 0
    # Syncs by the bucket their duration falls into, not cumulated.
    fsync_buckets: tuple[int, ...] = (0,) * _BUCKETS

    @property
    def fsyncs(self) -> int:
        return sum(self.fsync_buckets)


_VERSION = struct.Struct("<Q")
_CELLS = struct.Struct("<" + "Q" * (len(Figures._fields) - 1 + _BUCKETS))
_START: Final = POSITION + _VERSION.size
END: Final = _START + _CELLS.size


def write(view: memoryview, figures: Figures) -> None:
    """Store `figures` in a board's header."""
    version = _VERSION.unpack_from(view, POSITION)[0] | 1
    _VERSION.pack_into(view, POSITION, version)
    _CELLS.pack_into(view, _START, *figures[:-1], *figures.fsync_buckets)
    _VERSION.pack_into(view, POSITION, version + 1)


def read(view: memoryview) -> Figures:
    """The figures in a board's header."""
    for _ in range(ATTEMPTS_MAX):
        before = _VERSION.unpack_from(view, POSITION)[0]
        cells = _CELLS.unpack_from(view, _START)
        if not before & 1 and _VERSION.unpack_from(view, POSITION)[0] == before:
            break
    return Figures._make((*cells[:-_BUCKETS], cells[-_BUCKETS:]))

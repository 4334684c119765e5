"""The tally: what the worker processes count, in memory they share.

The main process makes the map before it forks, so every worker, also one that replaces a
dead one, has the same pages; nothing of it reaches a disk. One column a worker:

    0 pid, 1 requests in flight, 2 connections, 3 open streams, then requests in flight by
    key, open streams by key, then counters: records read, submits refused, wakeup lag,
    request latencies

All cells are u64. A process writes only its own column, each cell with one aligned store,
so readers never see half a number. Columns of processes that are gone do not count for what
is there *now* (in flight, connections) and are emptied when a successor takes them over.
Counters say what the server did since it started, whoever did it, so they stay.

A latency is counted by series (a route), by status class (1xx to 5xx) and by bucket.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.storage.fs import Files

REQUEST_BUCKETS_US: Final = (
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    30_000_000,
)
LAG_BUCKETS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000)
STATUS_CLASSES: Final = 5

_CELL_BYTES = 8
_PID, _IN_FLIGHT, _CONNECTIONS, _STREAMS, _KEYS = 0, 1, 2, 3, 4
# A histogram: one cell a bucket, one above the last bound, and the sum.
_LAG_CELLS = len(LAG_BUCKETS_MS) + 2
_REQUEST_CELLS = len(REQUEST_BUCKETS_US) + 2


class Histogram(NamedTuple):
    """Observations by bucket, not cumulated; the last bucket is open-ended."""

    buckets: list[int]
    sum: int


class Now(NamedTuple):
    """What living workers have open at this moment."""

    in_flight: int
    connections: int
    streams: int


class Tally:
    """All columns: sums for readers, one column for each writer."""

    def __init__(self, files: Files, *, columns: int, keys: int, series: int) -> None:
        self._files = files
        self.columns = columns
        self.stream_cell = _KEYS + keys
        self.read_cell = self.stream_cell + keys
        self.full_cell = self.read_cell + 1
        self.lag_cell = self.full_cell + 1
        self.request_cell = self.lag_cell + _LAG_CELLS
        self._series = series
        width = self.request_cell + series * STATUS_CLASSES * _REQUEST_CELLS
        self._width = width
        self._map = files.map_shared(columns * width * _CELL_BYTES)
        self._cells = memoryview(self._map).cast("Q")

    def take(self, number: int) -> Column:
        """The column of this process; what its last owner had open is closed."""
        start = number * self._width
        cells = self._cells[start : start + self._width]
        for place in range(_IN_FLIGHT, self.read_cell):
            cells[place] = 0
        cells[_PID] = os.getpid()
        return Column(self, cells)

    def in_flight_of(self, key: int) -> int:
        """Requests of one key inside, over all columns, also those of dead workers."""
        return sum(self._cells[_KEYS + key :: self._width])

    def living_in_flight_of(self, key: int) -> int:
        """Like `in_flight_of`, without workers that are gone; costs a system call each."""
        return sum(column[_KEYS + key] for column in self._living())

    def streams_of(self, key: int | None) -> int:
        """Open streams of one key, or of all, also those of dead workers."""
        return sum(self._cells[self._stream_place(key) :: self._width])

    def living_streams_of(self, key: int | None) -> int:
        """Like `streams_of`, without workers that are gone."""
        return sum(column[self._stream_place(key)] for column in self._living())

    def _stream_place(self, key: int | None) -> int:
        return _STREAMS if key is None else self.stream_cell + key

    def pids(self) -> list[int]:
        return [column[_PID] for column in self._living()]

    def now(self) -> Now:
        living = self._living()
        return Now(
            sum(column[_IN_FLIGHT] for column in living),
            sum(column[_CONNECTIONS] for column in living),
            sum(column[_STREAMS] for column in living),
        )

    @property
    def records_read(self) -> int:
        return sum(self._cells[self.read_cell :: self._width])

    @property
    def submits_refused(self) -> int:
        return sum(self._cells[self.full_cell :: self._width])

    def wakeup_lag(self) -> Histogram:
        """Milliseconds from a record's time to the answer of the reader it woke."""
        cells = self._sums()[self.lag_cell : self.request_cell].tolist()
        return Histogram(cells[:-1], cells[-1])

    def requests(self) -> dict[tuple[int, int], Histogram]:
        """Microseconds of requests, by series and status class; those that happened."""
        shape = (self._series, STATUS_CLASSES, _REQUEST_CELLS)
        cells = self._sums()[self.request_cell :].reshape(shape)
        seen = np.argwhere(cells[:, :, :-1].any(axis=2)).tolist()
        return {
            (series, index + 1): Histogram(
                cells[series, index, :-1].tolist(), int(cells[series, index, -1])
            )
            for series, index in seen
        }

    def _sums(self) -> npt.NDArray[np.uint64]:
        table = np.frombuffer(self._map, dtype="<u8").reshape(self.columns, self._width)
        sums: npt.NDArray[np.uint64] = table.sum(axis=0, dtype=np.uint64)
        return sums

    def _living(self) -> list[memoryview]:
        width = self._width
        columns = (self._cells[at : at + width] for at in range(0, len(self._cells), width))
        return [column for column in columns if _is_alive(column[_PID])]


class Column:
    """One process's cells; only that process, and in it only one thread, changes them."""

    __slots__ = ("_cells", "_full", "_lag", "_read", "_requests", "_streams", "tally")

    def __init__(self, tally: Tally, cells: memoryview) -> None:
        self.tally = tally
        self._cells = cells
        self._streams = tally.stream_cell
        self._read = tally.read_cell
        self._full = tally.full_cell
        self._lag = tally.lag_cell
        self._requests = tally.request_cell

    def set_in_flight(self, count: int) -> None:
        self._cells[_IN_FLIGHT] = count

    def count_connection(self, change: int) -> None:
        self._cells[_CONNECTIONS] += change

    def count_key(self, key: int, change: int) -> None:
        self._cells[_KEYS + key] += change

    def count_stream(self, key: int | None, change: int) -> None:
        self._cells[_STREAMS] += change
        if key is not None:
            self._cells[self._streams + key] += change

    def count_read(self, records: int) -> None:
        self._cells[self._read] += records

    def count_refused_submit(self) -> None:
        self._cells[self._full] += 1

    def observe_lag(self, elapsed_ms: int) -> None:
        cells, start = self._cells, self._lag
        cells[start + bisect_left(LAG_BUCKETS_MS, elapsed_ms)] += 1
        cells[start + _LAG_CELLS - 1] += elapsed_ms

    def observe_request(self, series: int, status: int, elapsed_us: int) -> None:
        cells = self._cells
        place = series * STATUS_CLASSES + status // 100 - 1
        start = self._requests + place * _REQUEST_CELLS
        cells[start + bisect_left(REQUEST_BUCKETS_US, elapsed_us)] += 1
        cells[start + _REQUEST_CELLS - 1] += elapsed_us


def _is_alive(pid: int) -> bool:
    if pid == 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

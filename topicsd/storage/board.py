"""The board: one shared row of watermarks a log, and the instant of visibility.

`board.mmap` is a header page followed by rows of 256 bytes. The engine is the only writer
of a row, apart from `last_read_ts`, which any process stores with one aligned 8-byte write
(the latest reader wins, which is what a recency clock wants). A row is guarded by a
seqlock: `version` is odd while the row changes, and a reader that saw an odd or changed
version reads again. Without it 19 of 100 reads under a writer were torn.

    header, u64 each: 0 magic, 8 layout, 16 instance, 24 rows, 40 engine state,
    48 replay progress in millionths, 64 session, 72 topics, 80 engine pid, 88 clean stop,
    96 xxh3_64 of all rows without their last 8 bytes, set with the clean stop,
    from 512 the engine's figures (storage.figures)

The file is a cache of the catalog plus the WAL, never the truth: it is rebuilt whenever it
is missing, damaged, or older than the running kernel.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from topicsd.model import errors
from topicsd.storage import figures
from topicsd.storage.figures import Figures
from topicsd.storage.fs import Files

MAGIC: Final = 0x31302D4452414F42
LAYOUT: Final = 3
HEADER_BYTES: Final = 4096
ROW_BYTES: Final = 256
ROWS_MIN: Final = 4096
ZEROS_BYTES: Final = 1 << 20
SPINS_MAX: Final = 1200
SPINS_BUSY: Final = 1000
PAUSE_S: Final = 0.0005

STATES: Final = ("starting", "replaying", "ready", "draining", "stopped")

_U64 = struct.Struct("<Q")
_MAGIC, _LAYOUT, _INSTANCE, _CAPACITY, _STATE = 0, 8, 16, 24, 40
_REPLAY, _SESSION, _TOPICS, _PID, _CLEAN, _SUM = 48, 64, 72, 80, 88, 96

_LAST_READ: Final = ROW_BYTES - 8


class BoardRow(NamedTuple):
    """The watermarks of one log, all from one instant."""

    log_id: int = 0
    generation: int = 0
    head_seq: int = 0
    next_seq: int = 1
    earliest_seq: int = 1
    cap_floor: int = 1
    ttl_floor: int = 1
    lost_floor: int = 1
    delete_below: int = 0
    live: int = 0
    payload_bytes: int = 0
    ttl_ms: int = 0
    # Rows of segment `active_base` that are visible, and the .dat bytes they span.
    active_base: int = 1
    active_rows: int = 0
    active_end: int = 0
    location: int = 0
    flags: int = 0
    last_write_ts: int = 0
    # Rows up to `session_seq` were written before engine session `session` and are
    # verified when read; all of them when the running session is another one.
    session: int = 0
    session_seq: int = 0
    # Bumped when the list of segments, gaps or files changes.
    shelf_generation: int = 0
    epoch: int = 0
    # A head shown before a recovery that has not accounted for it yet.
    shown_seq: int = 0
    # The last seq that stands for records a router's source lost; the catalog has the others.
    trim_seq: int = 0


# Among the rows that moved: a topic was created.
NAMES: Final = 2**32 - 1

FLAG_RESIDENT: Final = 1
FLAG_GAPS: Final = 2
# Some record between the floor and the head may be deleted.
FLAG_HOLES: Final = 4
FLAG_QUEUE: Final = 8
# Two bits of the flags: the place of the durability class in `CLASSES`.
CLASSES: Final = ("ephemeral", "memory", "disk", "fsync")
CLASS_SHIFT: Final = 4
# A router copies into this log: whoever reads it lets the copies catch up first.
FLAG_DERIVED: Final = 256
# A stream that takes no more entries, and one that is deleted but kept for its forks.
FLAG_CLOSED: Final = 512
FLAG_GONE: Final = 1024

_ROW = struct.Struct("<" + "Q" * len(BoardRow._fields))
_FIELDS = 8


_TABLE = np.dtype(
    {
        "names": ["version", *BoardRow._fields],
        "formats": ["<u8"] * (1 + len(BoardRow._fields)),
        "offsets": [8 * place for place in range(1 + len(BoardRow._fields))],
        "itemsize": ROW_BYTES,
    }
)


class Totals(NamedTuple):
    """What all rows sum up to."""

    records: int
    payload_bytes: int
    by_class: dict[str, int]
    queues: int


def kind_flags(durability: str, kind: str) -> int:
    """The flags that say what sort of log a row belongs to."""
    return CLASSES.index(durability) << CLASS_SHIFT | FLAG_QUEUE * (kind == "queue")


class BoardMissing(Exception):
    """There is no usable board file (the engine has not made one yet)."""


class Board:
    """A mapped board."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._rows_mapped = 0
        self._open()

    @classmethod
    def create(cls, files: Files, path: Path, instance: int, rows: int) -> Board:
        """Make an empty board for `instance`, over whatever is there.

        The file is kept, never replaced or shrunk: running workers have it mapped. Its
        magic is written last, so a half-made board is not taken for one.
        """
        fd = files.open(path, create=True)
        try:
            size = HEADER_BYTES + max(rows, ROWS_MIN) * ROW_BYTES
            size = max(size, files.size(fd))
            files.allocate(fd, 0, size)
            for position in range(0, size, ZEROS_BYTES):
                files.write_at(fd, bytes(min(ZEROS_BYTES, size - position)), position)
            capacity = (size - HEADER_BYTES) // ROW_BYTES
            files.write_at(fd, struct.pack("<QQQ", LAYOUT, instance, capacity), 8)
            files.write_at(fd, _U64.pack(MAGIC), 0)
        finally:
            files.close(fd)
        return cls(files, path)

    def _open(self) -> None:
        try:
            self._fd = self._files.open(self._path)
        except FileNotFoundError:
            raise BoardMissing(str(self._path)) from None
        size = self._files.size(self._fd)
        if size < HEADER_BYTES:
            self._files.close(self._fd)
            raise BoardMissing(f"{self._path} is too short")
        self._map = self._files.map(self._fd, size, write=True)
        self._view = memoryview(self._map)
        self._rows_mapped = (size - HEADER_BYTES) // ROW_BYTES
        if self._get(_MAGIC) != MAGIC or self._get(_LAYOUT) != LAYOUT:
            self.close()
            raise BoardMissing(f"{self._path} has another layout")

    def close(self) -> None:
        self._view.release()
        self._view = memoryview(b"")
        if self._map is not None:
            self._map.close()
            self._map = None
            self._files.close(self._fd)

    def flush(self) -> None:
        if self._map is not None:
            self._files.flush(self._map)

    def _get(self, position: int) -> int:
        value: int = _U64.unpack_from(self._view, position)[0]
        return value

    def _set(self, position: int, value: int) -> None:
        _U64.pack_into(self._view, position, value)

    @property
    def instance(self) -> int:
        return self._get(_INSTANCE)

    @property
    def state(self) -> str:
        return STATES[self._get(_STATE)]

    @state.setter
    def state(self, name: str) -> None:
        self._set(_STATE, STATES.index(name))

    @property
    def replay_progress(self) -> float:
        return self._get(_REPLAY) / 1_000_000

    @replay_progress.setter
    def replay_progress(self, fraction: float) -> None:
        self._set(_REPLAY, int(fraction * 1_000_000))

    @property
    def session(self) -> int:
        """Changes with every start of the engine."""
        return self._get(_SESSION)

    @session.setter
    def session(self, value: int) -> None:
        self._set(_SESSION, value)

    @property
    def topics(self) -> int:
        return self._get(_TOPICS)

    @topics.setter
    def topics(self, value: int) -> None:
        self._set(_TOPICS, value)

    @property
    def engine_pid(self) -> int:
        return self._get(_PID)

    @engine_pid.setter
    def engine_pid(self, value: int) -> None:
        self._set(_PID, value)

    @property
    def clean(self) -> bool:
        """Whether the last engine stopped after a final checkpoint."""
        return self._get(_CLEAN) == 1

    def mark_dirty(self) -> None:
        self._set(_CLEAN, 0)

    def mark_clean(self) -> None:
        """Say that the rows are complete, and what they sum up to."""
        self._set(_SUM, self._rows_sum())
        self._set(_CLEAN, 1)

    @property
    def intact(self) -> bool:
        """Whether the rows of a clean board are those that `mark_clean` saw."""
        return self._get(_SUM) == self._rows_sum()

    def _rows_sum(self) -> int:
        rows = np.frombuffer(self._rows(), dtype=np.uint8).reshape(-1, ROW_BYTES)
        # Without `last_read_ts`, which readers go on to write.
        return xxhash.xxh3_64_intdigest(rows[:, :_LAST_READ].tobytes())

    def ensure_rows(self, rows: int) -> None:
        """Grow the file so that `rows` rows exist, by doubling."""
        capacity = self._rows_mapped
        if rows <= capacity:
            return
        capacity = max(capacity, ROWS_MIN)
        while capacity < rows:
            capacity *= 2
        self._files.allocate(self._fd, 0, HEADER_BYTES + capacity * ROW_BYTES)
        self._set(_CAPACITY, capacity)
        self._remap()

    def _remap(self) -> None:
        self.close()
        self._open()

    def read(self, row: int) -> BoardRow:
        """One consistent row."""
        if row >= self._rows_mapped:
            self._remap()
        start = HEADER_BYTES + row * ROW_BYTES
        view = self._view
        for spin in range(SPINS_MAX):
            before = _U64.unpack_from(view, start)[0]
            values = _ROW.unpack_from(view, start + _FIELDS)
            if not before & 1 and _U64.unpack_from(view, start)[0] == before:
                return BoardRow._make(values)
            if spin >= SPINS_BUSY:
                # The writer lost its processor in mid-write: let it have ours.
                time.sleep(PAUSE_S)
        # Only an engine that died inside `write` leaves a row odd; recovery rewrites it.
        raise errors.not_ready(self.replay_progress)

    def write(self, row: int, values: BoardRow) -> None:
        """Publish a row: the instant at which its records become visible."""
        start = HEADER_BYTES + row * ROW_BYTES
        view = self._view
        version = _U64.unpack_from(view, start)[0] | 1
        _U64.pack_into(view, start, version)
        _ROW.pack_into(view, start + _FIELDS, *values)
        _U64.pack_into(view, start, version + 1)

    def clear_rows(self, kept: set[int]) -> None:
        """Forget all logs but those in rows `kept`, and finish writes a dead engine began.

        The rows' versions go on, so that no reader is misled.
        """
        rows = self._table()
        for row in np.flatnonzero((rows["log_id"] > 0) | (rows["version"] & 1 == 1)).tolist():
            if row not in kept:
                self.write(row, BoardRow())

    def heads(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Log ids and heads of all rows; the id is 0 for rows unused or caught in a write."""
        rows = self._table()
        intact = rows["version"] & 1 == 0
        return np.where(intact, rows["log_id"], 0), rows["head_seq"]

    def shown(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Like `heads`, but the highest head that was shown before recovery began."""
        ids, heads = self.heads()
        return ids, np.maximum(heads, self._table()["shown_seq"])

    def with_gaps(self) -> list[int]:
        """Ids of the logs that lost records in the middle."""
        rows = self._table()
        found: list[int] = rows["log_id"][rows["flags"] & FLAG_GAPS > 0].tolist()
        return found

    def total_payload_bytes(self) -> int:
        """Payload bytes over all logs."""
        rows = self._table()
        return int(rows["payload_bytes"][rows["log_id"] > 0].sum())

    def totals(self) -> Totals:
        """Sums over all logs; every cell is whole, the rows are from about the same time."""
        if self._get(_CAPACITY) > self._rows_mapped:
            self._remap()
        rows = np.frombuffer(self._rows(), dtype=_TABLE)
        used = np.flatnonzero(rows["log_id"])
        flags = rows["flags"][used]
        classes = np.bincount((flags >> CLASS_SHIFT & 3).astype(np.intp), minlength=len(CLASSES))
        return Totals(
            int(rows["live"][used].sum()),
            int(rows["payload_bytes"][used].sum()),
            dict(zip(CLASSES, classes.tolist(), strict=True)),
            int(np.count_nonzero(flags & FLAG_QUEUE)),
        )

    @property
    def figures(self) -> Figures:
        """What the engine says of itself."""
        return figures.read(self._view)

    @figures.setter
    def figures(self, values: Figures) -> None:
        figures.write(self._view, values)

    def _table(self) -> npt.NDArray[np.void]:
        """A copy of all rows, each one at some instant."""
        return np.frombuffer(self._rows(), dtype=_TABLE).copy()

    def _rows(self) -> memoryview:
        return self._view[HEADER_BYTES : HEADER_BYTES + self._rows_mapped * ROW_BYTES]

    def last_read(self, row: int) -> int:
        if row >= self._rows_mapped:
            self._remap()
        return self._get(HEADER_BYTES + row * ROW_BYTES + _LAST_READ)

    def set_last_read(self, row: int, ts: int) -> None:
        """Any process may store this cell; see the module's text."""
        if row >= self._rows_mapped:
            self._remap()
        self._set(HEADER_BYTES + row * ROW_BYTES + _LAST_READ, ts)

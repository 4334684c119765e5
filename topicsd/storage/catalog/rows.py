"""What the catalog hands out and takes in: one type a kind of row.

All numbers are plain `int`; SQLite holds 64 bits with sign. Checksums are unsigned 64-bit
numbers here and sixteen hex digits in the file, where people read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LogRecord(NamedTuple):
    """A log's identity and configuration, without its state."""

    id: int
    row: int
    name: str
    kind: str
    epoch: int
    config_json: str
    created_ts: int


class LogState(NamedTuple):
    """A log's state at a checkpoint; 0 stands for none."""

    id: int
    head_seq: int = 0
    next_seq: int = 0
    earliest_seq: int = 0
    cap_floor: int = 0
    ttl_floor: int = 0
    lost_floor: int = 0
    delete_below: int = 0
    # Shadows a method of tuple that nobody calls on a state; the column's name is worth more.
    count: int = 0  # type: ignore[assignment]
    bytes: int = 0
    last_write_ts: int = 0
    last_read_ts: int = 0
    active_base: int = 0
    active_rows: int = 0
    active_end: int = 0
    location: int = 0


class BoardState(NamedTuple):
    """A log's checkpointed state with what else its board row shows."""

    row: int
    ttl_ms: int
    has_gaps: bool
    durability: str
    kind: str
    closed: bool
    gone: bool
    epoch: int
    state: LogState


STATE_COLUMNS = LogState._fields[1:]
# The order of the plain tuples of `load_states`, all numbers, ready for a numpy array.
BOOT_COLUMNS = ("id", "row", "epoch", *STATE_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment file pair of a log."""

    log_id: int
    base_seq: int
    rows: int
    bytes: int
    payload_bytes: int
    live_rows: int
    first_ts: int
    last_ts: int
    sealed_ts: int
    checksum: int
    state: str


class Gap(NamedTuple):
    """Seqs lost involuntarily, both ends included."""

    log_id: int
    from_seq: int
    to_seq: int
    reason: str
    noticed_ts: int


class KeyRecord(NamedTuple):
    """An idempotency key and the seqs that its first write got."""

    log_id: int
    key: str
    first_seq: int
    last_seq: int
    ts: int


class QueueRecord(NamedTuple):
    """Where a queue goes on with new jobs, and how many it gave up."""

    log_id: int
    cursor: int
    dead_lettered: int


class WatchRecord(NamedTuple):
    """A watch session; the three texts are JSON that the engine writes and reads."""

    wid: str
    key: str
    spec: str
    cursors: str
    openings: str
    generation: int
    # One of the `WATCH_` numbers below.
    open: int
    created_ts: int
    last_access_ts: int


# Given back with its cursors; has a stream; lost its stream, which may have sent more.
WATCH_IDLE, WATCH_OPEN, WATCH_INTERRUPTED = 0, 1, 2


class QuarantinedBytes(NamedTuple):
    """A piece of a file that recovery set aside because it was corrupt."""

    file: str
    position: int
    bytes: int
    reason: str
    noticed_ts: int

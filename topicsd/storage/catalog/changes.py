"""The changes a commit may hold, and the table from each to the function that makes it.

A new change is a dataclass, a function and a row of `APPLY`. Changes apply in the order
given. The bulk ones, `SaveState`, `SaveKeys` and `SaveLeases`, skip logs that are gone, because a
checkpoint is collected while logs are dropped; the others insist on their log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from topicsd.storage.catalog.leases import SaveLeases, save_leases
from topicsd.storage.catalog.routers import APPLY_ROUTERS, RouterChange
from topicsd.storage.catalog.rows import (
    STATE_COLUMNS,
    WATCH_INTERRUPTED,
    WATCH_OPEN,
    LogState,
    Segment,
    WatchRecord,
)
from topicsd.storage.catalog.streams import APPLY_STREAMS, AddStream, StreamChange, add_stream
from topicsd.storage.catalog.subscriptions import APPLY_SUBSCRIPTIONS, SubscriptionChange

EPOCH_FLOOR = "epoch_floor"


@dataclass(frozen=True, slots=True)
class CreateLog:
    id: int
    row: int
    name: str
    kind: str
    epoch: int
    config_json: str
    created_ts: int
    # For a log that does not begin with seq 1.
    state: LogState | None = None
    stream: AddStream | None = None


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    id: int
    config_json: str


@dataclass(frozen=True, slots=True)
class DropLog:
    """Forget a log with its segments, gaps and keys; nothing happens when it is gone."""

    id: int


@dataclass(frozen=True, slots=True)
class SaveSegment:
    """Insert or replace one segment."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class DropSegment:
    log_id: int
    base_seq: int


@dataclass(frozen=True, slots=True)
class MarkCold:
    """Note that segments are in the cold directory now; those that are gone stay gone."""

    log_id: int
    bases: Sequence[int]


@dataclass(frozen=True, slots=True)
class RecordGap:
    """Record lost seqs; a repeated recovery may record the same gap again, or a longer one."""

    log_id: int
    from_seq: int
    to_seq: int
    reason: str
    noticed_ts: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Record corrupt bytes that were set aside; repeating it changes nothing."""

    file: str
    position: int
    bytes: int
    reason: str
    noticed_ts: int


@dataclass(frozen=True, slots=True)
class SetMeta:
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SaveState:
    states: Sequence[LogState]


@dataclass(frozen=True, slots=True)
class SaveKeys:
    """Insert or replace idempotency keys: (log_id, key, first_seq, last_seq, ts, expires_ts)."""

    keys: Sequence[tuple[int, str, int, int, int, int]]


@dataclass(frozen=True, slots=True)
class ForgetKeys:
    """Delete keys that have expired, of all logs, the oldest first and at most `limit`."""

    now_ms: int
    limit: int


@dataclass(frozen=True, slots=True)
class AddWatch:
    watch: WatchRecord


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Note a new stream of a watch session, and the cursors it begins with."""

    wid: str
    generation: int
    cursors: str
    openings: str
    ts: int


@dataclass(frozen=True, slots=True)
class SaveWatches:
    """How far sessions got: (wid, cursors, open, ts); cursors None keeps those there are."""

    saves: Sequence[tuple[str, str | None, int, int]]


@dataclass(frozen=True, slots=True)
class DropWatches:
    wids: Sequence[str]


@dataclass(frozen=True, slots=True)
class InterruptWatches:
    """No session has a stream any more; those that had one are kept from now on."""

    ts: int


Change = (
    CreateLog
    | UpdateConfig
    | DropLog
    | SaveSegment
    | DropSegment
    | MarkCold
    | RecordGap
    | Quarantine
    | SetMeta
    | SaveState
    | SaveKeys
    | ForgetKeys
    | SaveLeases
    | AddWatch
    | OpenWatch
    | SaveWatches
    | DropWatches
    | InterruptWatches
    | RouterChange
    | StreamChange
    | SubscriptionChange
)

_CREATE_LOG = """
INSERT INTO logs (id, row, name, kind, epoch, config, created_ts) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
# The floor of all dropped logs together, not an epoch a name: it stays one row for ever.
_RAISE_EPOCH_FLOOR = f"""
INSERT INTO meta (key, value) SELECT '{EPOCH_FLOOR}', epoch FROM logs WHERE id = ?
ON CONFLICT (key) DO UPDATE
SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))
"""
_SAVE_SEGMENT = "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_RECORD_GAP = """
INSERT INTO gaps (log_id, from_seq, to_seq, reason, noticed_ts) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (log_id, from_seq) DO UPDATE SET to_seq = max(to_seq, excluded.to_seq)
"""
_QUARANTINE = """
INSERT INTO quarantine (file, position, bytes, reason, noticed_ts) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (file, position) DO UPDATE SET bytes = max(bytes, excluded.bytes)
"""
_SET_META = """
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""
_SAVE_STATE = "UPDATE logs SET {} WHERE id = ?1".format(
    ", ".join(f"{column} = ?{place}" for place, column in enumerate(STATE_COLUMNS, 2))
)
_SAVE_KEY = """
INSERT INTO idempotency (log_id, key, first_seq, last_seq, ts, expires_ts)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)
ON CONFLICT (log_id, key) DO UPDATE
SET first_seq = excluded.first_seq, last_seq = excluded.last_seq, ts = excluded.ts,
    expires_ts = excluded.expires_ts
"""
FORGET_KEYS = """
DELETE FROM idempotency WHERE (log_id, key) IN (
    SELECT log_id, key FROM idempotency WHERE expires_ts < ? ORDER BY expires_ts LIMIT ?
)
"""
_ADD_WATCH = "INSERT INTO watch_sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_OPEN_WATCH = f"""
UPDATE watch_sessions
SET generation = ?2, cursors = ?3, openings = ?4, last_access_ts = ?5, open = {WATCH_OPEN}
WHERE wid = ?1
"""
_SAVE_WATCH = """
UPDATE watch_sessions SET cursors = coalesce(?2, cursors), open = ?3, last_access_ts = ?4
WHERE wid = ?1
"""
_INTERRUPT_WATCHES = f"""
UPDATE watch_sessions SET open = {WATCH_INTERRUPTED}, last_access_ts = ?
WHERE open = {WATCH_OPEN}
"""


def _create_log(connection: apsw.Connection, change: CreateLog) -> None:
    connection.execute(
        _CREATE_LOG,
        (
            change.id,
            change.row,
            change.name,
            change.kind,
            change.epoch,
            change.config_json,
            change.created_ts,
        ),
    )
    if change.state is not None:
        connection.execute(_SAVE_STATE, change.state)
    if change.stream is not None:
        add_stream(connection, change.id, change.stream)


def _update_config(connection: apsw.Connection, change: UpdateConfig) -> None:
    connection.execute("UPDATE logs SET config = ? WHERE id = ?", (change.config_json, change.id))
    if connection.changes() != 1:
        raise LookupError(f"log {change.id} is not in the catalog")


def _drop_log(connection: apsw.Connection, change: DropLog) -> None:
    connection.execute(_RAISE_EPOCH_FLOOR, (change.id,))
    connection.execute("DELETE FROM logs WHERE id = ?", (change.id,))


def _save_segment(connection: apsw.Connection, change: SaveSegment) -> None:
    segment = change.segment
    connection.execute(
        _SAVE_SEGMENT,
        (
            segment.log_id,
            segment.base_seq,
            segment.rows,
            segment.bytes,
            segment.payload_bytes,
            segment.live_rows,
            segment.first_ts,
            segment.last_ts,
            segment.sealed_ts,
            f"{segment.checksum:016x}",
            segment.state,
        ),
    )


def _drop_segment(connection: apsw.Connection, change: DropSegment) -> None:
    connection.execute(
        "DELETE FROM segments WHERE log_id = ? AND base_seq = ?", (change.log_id, change.base_seq)
    )


def _mark_cold(connection: apsw.Connection, change: MarkCold) -> None:
    connection.executemany(
        "UPDATE segments SET state = 'cold' WHERE log_id = ? AND base_seq = ?",
        [(change.log_id, base) for base in change.bases],
    )


def _record_gap(connection: apsw.Connection, change: RecordGap) -> None:
    connection.execute(
        _RECORD_GAP,
        (change.log_id, change.from_seq, change.to_seq, change.reason, change.noticed_ts),
    )


def _quarantine(connection: apsw.Connection, change: Quarantine) -> None:
    connection.execute(
        _QUARANTINE,
        (change.file, change.position, change.bytes, change.reason, change.noticed_ts),
    )


def _set_meta(connection: apsw.Connection, change: SetMeta) -> None:
    connection.execute(_SET_META, (change.key, change.value))


def _save_state(connection: apsw.Connection, change: SaveState) -> None:
    connection.executemany(_SAVE_STATE, change.states)


def _save_keys(connection: apsw.Connection, change: SaveKeys) -> None:
    connection.executemany(_SAVE_KEY, change.keys)


def _forget_keys(connection: apsw.Connection, change: ForgetKeys) -> None:
    connection.execute(FORGET_KEYS, (change.now_ms, change.limit))


def _add_watch(connection: apsw.Connection, change: AddWatch) -> None:
    connection.execute(_ADD_WATCH, change.watch)


def _open_watch(connection: apsw.Connection, change: OpenWatch) -> None:
    connection.execute(
        _OPEN_WATCH, (change.wid, change.generation, change.cursors, change.openings, change.ts)
    )


def _save_watches(connection: apsw.Connection, change: SaveWatches) -> None:
    connection.executemany(_SAVE_WATCH, change.saves)


def _drop_watches(connection: apsw.Connection, change: DropWatches) -> None:
    connection.executemany(
        "DELETE FROM watch_sessions WHERE wid = ?", [(wid,) for wid in change.wids]
    )


def _interrupt_watches(connection: apsw.Connection, change: InterruptWatches) -> None:
    connection.execute(_INTERRUPT_WATCHES, (change.ts,))


APPLY: dict[type, Callable[[apsw.Connection, Any], None]] = {
    CreateLog: _create_log,
    UpdateConfig: _update_config,
    DropLog: _drop_log,
    SaveSegment: _save_segment,
    DropSegment: _drop_segment,
    MarkCold: _mark_cold,
    RecordGap: _record_gap,
    Quarantine: _quarantine,
    SetMeta: _set_meta,
    SaveState: _save_state,
    SaveKeys: _save_keys,
    ForgetKeys: _forget_keys,
    SaveLeases: save_leases,
    AddWatch: _add_watch,
    OpenWatch: _open_watch,
    SaveWatches: _save_watches,
    DropWatches: _drop_watches,
    InterruptWatches: _interrupt_watches,
    **APPLY_ROUTERS,
    **APPLY_STREAMS,
    **APPLY_SUBSCRIPTIONS,
}

"""Streams in the catalog: how one is created, soft-deleted and checkpointed, and is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

# What a checkpoint saves of a stream: log id, closed, last seq, closer.
SavedState = tuple[int, int, str | None, str | None]
# And of a producer: log id, id, epoch, seq.
SavedProducer = tuple[int, str, int, int]

_ADD_STREAM = "INSERT INTO streams (log_id, source_id, ttl_ms, expires_ts) VALUES (?, ?, ?, ?)"
_SAVE_STATE = """
INSERT INTO stream_states (log_id, closed, last_seq, closer)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)
ON CONFLICT (log_id) DO UPDATE
SET closed = excluded.closed, last_seq = excluded.last_seq, closer = excluded.closer
"""
_SAVE_PRODUCER = """
INSERT INTO producers (log_id, producer, epoch, seq)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)
ON CONFLICT (log_id, producer) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq
"""

FIND_STATE = "SELECT closed, last_seq, closer FROM stream_states WHERE log_id = ?"
FIND_PRODUCER = "SELECT epoch, seq FROM producers WHERE log_id = ? AND producer = ?"
LIST_FORKS = "SELECT source_id, log_id FROM streams WHERE source_id IS NOT NULL"
# Spelled like the index, which SQLite uses for nothing else.
LIST_MORTAL = """
SELECT log_id FROM streams
WHERE (ttl_ms IS NOT NULL OR expires_ts IS NOT NULL) AND log_id > ? ORDER BY log_id LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class AddStream:
    """Part of the `CreateLog` of a stream: what is looked up by something else than its name."""

    source_id: int | None
    ttl_ms: int | None
    expires_ts: int | None


@dataclass(frozen=True, slots=True)
class KeepForForks:
    """A deleted stream that forks still read."""

    log_id: int


@dataclass(frozen=True, slots=True)
class SaveStreams:
    """What appends changed in streams; logs that are gone are skipped."""

    states: Sequence[SavedState]
    producers: Sequence[SavedProducer]


StreamChange = KeepForForks | SaveStreams


def add_stream(connection: apsw.Connection, log_id: int, stream: AddStream) -> None:
    connection.execute(_ADD_STREAM, (log_id, stream.source_id, stream.ttl_ms, stream.expires_ts))


def _keep_for_forks(connection: apsw.Connection, change: KeepForForks) -> None:
    connection.execute("UPDATE streams SET gone = 1 WHERE log_id = ?", (change.log_id,))


def _save_streams(connection: apsw.Connection, change: SaveStreams) -> None:
    connection.executemany(_SAVE_STATE, change.states)
    connection.executemany(_SAVE_PRODUCER, change.producers)


APPLY_STREAMS: dict[type, Callable[[apsw.Connection, Any], None]] = {
    KeepForForks: _keep_for_forks,
    SaveStreams: _save_streams,
}

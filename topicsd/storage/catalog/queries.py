"""Every question the catalog answers, shared by its writer and its readers.

Each answer is one snapshot. Answers that are lists are read to their end before they are
returned: an open statement would hold the journal and let it grow. The three iterators
(`load_states`, `free_rows`, `used_locations`) stream instead, for use at boot and in checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from topicsd.storage.catalog.changes import EPOCH_FLOOR
from topicsd.storage.catalog.ranges import after_prefix, plan_prefixes
from topicsd.storage.catalog.refusals import translated
from topicsd.storage.catalog.routers import LIST_ROUTERS, RouterRecord
from topicsd.storage.catalog.rows import (
    BOOT_COLUMNS,
    BoardState,
    Gap,
    KeyRecord,
    LogRecord,
    LogState,
    QuarantinedBytes,
    QueueRecord,
    Segment,
    WatchRecord,
)
from topicsd.storage.catalog.streams import FIND_PRODUCER, FIND_STATE, LIST_FORKS, LIST_MORTAL
from topicsd.storage.catalog.subscriptions import (
    LIST_LINKS,
    LIST_SUBSCRIPTIONS,
    LinkRecord,
    SubscriptionRecord,
)

_LOG = "SELECT id, row, name, kind, epoch, config, created_ts FROM logs"
_PAGE_FROM = f"{_LOG} WHERE kind = ? AND name >= ? AND name < ? ORDER BY name LIMIT ?"
_PAGE_AFTER = f"{_LOG} WHERE kind = ? AND name > ? AND name < ? ORDER BY name LIMIT ?"
_SEGMENTS = """
SELECT log_id, base_seq, rows, bytes, payload_bytes, live_rows,
       first_ts, last_ts, sealed_ts, checksum, state
FROM segments WHERE log_id = ? ORDER BY base_seq
"""
_GAPS = """
SELECT log_id, from_seq, to_seq, reason, noticed_ts FROM gaps WHERE log_id = ? ORDER BY from_seq
"""
_KEY = """
SELECT log_id, key, first_seq, last_seq, ts FROM idempotency WHERE log_id = ? AND key = ?
"""
_QUARANTINE = """
SELECT file, position, bytes, reason, noticed_ts FROM quarantine ORDER BY file, position
"""
_STATES = f"SELECT {', '.join(BOOT_COLUMNS)} FROM logs WHERE id > ? ORDER BY id LIMIT ?"
# `->` gives the number's text: as a value, SQLite would round one above 2**63 to a float.
_BOARD = """
SELECT row, config -> '$.ttl_ms',
       EXISTS (SELECT 1 FROM gaps WHERE log_id = logs.id),
       json_extract(config, '$.durability'), json_extract(config, '$.type'),
       coalesce((SELECT closed FROM stream_states WHERE log_id = logs.id), 0),
       coalesce((SELECT gone FROM streams WHERE log_id = logs.id), 0), {}
FROM logs WHERE id >= ? ORDER BY id LIMIT ?
""".format(", ".join(BOOT_COLUMNS))
_FREE_ROWS = """
SELECT previous + 1, row
FROM (SELECT row, lag(row, 1, ?1 - 1) OVER (ORDER BY row) AS previous FROM logs WHERE row >= ?1)
WHERE row > previous + 1
"""
_LEASES = "SELECT seq, free_at, lease, node, deliveries FROM leases WHERE log_id = ?"
_WATCH = """
SELECT wid, key, spec, cursors, openings, generation, open, created_ts, last_access_ts
FROM watch_sessions WHERE wid = ?
"""
# Without a stream: spelled like the index, which SQLite uses for nothing else.
_OLD_WATCHES = """
SELECT wid FROM watch_sessions WHERE open <> 1 AND last_access_ts < ?
ORDER BY last_access_ts LIMIT ?
"""
_LAST_EPOCH = f"""
SELECT max(
    coalesce((SELECT epoch FROM logs WHERE name = ?), 0),
    coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = '{EPOCH_FLOOR}'), 0)
)
"""


class Queries:
    """The reading half of a catalog; one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def _reading(self) -> apsw.Connection:
        """The connection to read from."""
        raise NotImplementedError

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with translated(self.path):
            return self._reading().execute(sql, values).fetchall()

    def _stream(self, sql: str, *values: Any) -> Iterator[Any]:
        with translated(self.path):
            yield from self._reading().execute(sql, values)

    def find_log(self, name: str) -> LogRecord | None:
        rows = self._rows(f"{_LOG} WHERE name = ?", name)
        return LogRecord._make(rows[0]) if rows else None

    def find_log_by_id(self, log_id: int) -> LogRecord | None:
        rows = self._rows(f"{_LOG} WHERE id = ?", log_id)
        return LogRecord._make(rows[0]) if rows else None

    def logs_after(self, log_id: int) -> list[LogRecord]:
        """Topics with a greater id, ascending."""
        rows = self._rows(f"{_LOG} WHERE id > ? AND kind = 'topic' ORDER BY id", log_id)
        return [LogRecord._make(row) for row in rows]

    def get_log(self, log_id: int) -> LogRecord:
        """The log with this id; a missing one is a bug of the caller."""
        log = self.find_log_by_id(log_id)
        if log is None:
            raise LookupError(f"log {log_id} is not in the catalog")
        return log

    def list_logs(
        self,
        prefix: str,
        after: str,
        limit: int,
        allow: tuple[str, ...] = (),
        *,
        kind: str = "topic",
    ) -> list[LogRecord]:
        """Up to `limit` logs of a kind named after `after`, in byte order of their names.

        Names start with `prefix` and with one of `allow`; an empty `allow` allows all. The
        cost is that of the page and of the prefixes, not of the number of logs.
        """
        page: list[LogRecord] = []
        for start in plan_prefixes(prefix, allow or ("",)):
            if len(page) >= limit:
                break
            page += self._page(kind, start, after, limit - len(page))
        return page

    def _page(self, kind: str, prefix: str, after: str, limit: int) -> list[LogRecord]:
        # One lower bound, chosen here: given two, SQLite may seek by the worse one.
        sql, low = (_PAGE_AFTER, after) if after >= prefix else (_PAGE_FROM, prefix)
        rows = self._rows(sql, kind, low, after_prefix(prefix), limit)
        return [LogRecord._make(row) for row in rows]

    def count_logs(self, kind: str | None = None) -> int:
        """All logs, or those of one kind."""
        if kind is None:
            return int(self._rows("SELECT count(*) FROM logs")[0][0])
        return int(self._rows("SELECT count(*) FROM logs WHERE kind = ?", kind)[0][0])

    def list_segments(self, log_id: int) -> list[Segment]:
        """All segments of a log, oldest first."""
        return [_segment(row) for row in self._rows(_SEGMENTS, log_id)]

    def gaps(self, log_id: int) -> list[Gap]:
        """What a log lost involuntarily, in order."""
        return [Gap._make(row) for row in self._rows(_GAPS, log_id)]

    def list_quarantine(self) -> list[QuarantinedBytes]:
        """What recovery ever set aside, by file and position."""
        return [QuarantinedBytes._make(row) for row in self._rows(_QUARANTINE)]

    def find_key(self, log_id: int, key: str) -> KeyRecord | None:
        rows = self._rows(_KEY, log_id, key)
        return KeyRecord._make(rows[0]) if rows else None

    def find_watch(self, wid: str) -> WatchRecord | None:
        rows = self._rows(_WATCH, wid)
        return WatchRecord._make(rows[0]) if rows else None

    def count_watches(self) -> int:
        return int(self._rows("SELECT count(*) FROM watch_sessions")[0][0])

    def list_old_watches(self, before_ts: int, limit: int) -> list[str]:
        """Sessions without a stream that were last used before a time, oldest first."""
        return [row[0] for row in self._rows(_OLD_WATCHES, before_ts, limit)]

    def find_queue(self, log_id: int) -> QueueRecord | None:
        rows = self._rows(
            "SELECT log_id, cursor, dead_lettered FROM queues WHERE log_id = ?", log_id
        )
        return QueueRecord._make(rows[0]) if rows else None

    def list_leases(self, log_id: int) -> list[tuple[int, int, int, str, int]]:
        """Jobs a queue knows of: (seq, free_at, lease, node, deliveries)."""
        return self._rows(_LEASES, log_id)

    def list_routers(self) -> list[RouterRecord]:
        """Every router, the oldest first."""
        return [RouterRecord._make(row) for row in self._rows(LIST_ROUTERS)]

    def find_stream_state(self, log_id: int) -> tuple[int, str | None, str | None] | None:
        """Whether a log is closed, its last `Stream-Seq` and its closer, as JSON."""
        rows = self._rows(FIND_STATE, log_id)
        return rows[0] if rows else None

    def find_producer(self, log_id: int, producer: str) -> tuple[int, int] | None:
        """Epoch and seq of a producer's last append."""
        rows = self._rows(FIND_PRODUCER, log_id, producer)
        return rows[0] if rows else None

    def list_forks(self) -> list[tuple[int, int]]:
        """Every fork: (source log id, log id)."""
        return self._rows(LIST_FORKS)

    def list_mortal(self, after_id: int, limit: int) -> list[int]:
        """Ids of streams that end by themselves, in order."""
        return [row[0] for row in self._rows(LIST_MORTAL, after_id, limit)]

    def next_router_id(self) -> int:
        """Greater than the id of any router there ever was."""
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'routers'")
        return int(rows[0][0]) + 1 if rows else 1

    def count_segments(self, state: str | None = None) -> int:
        """Segments that are sealed, or just those in one state."""
        if state is None:
            return int(self._rows("SELECT count(*) FROM segments")[0][0])
        return int(self._rows("SELECT count(*) FROM segments WHERE state = ?", state)[0][0])

    def logs_with_segments(self) -> list[int]:
        """Ids of the logs that have any sealed segment."""
        return [row[0] for row in self._rows("SELECT DISTINCT log_id FROM segments")]

    def list_subscriptions(self) -> list[SubscriptionRecord]:
        return [SubscriptionRecord._make(row) for row in self._rows(LIST_SUBSCRIPTIONS)]

    def list_links(self) -> list[LinkRecord]:
        return [LinkRecord._make(row) for row in self._rows(LIST_LINKS)]

    def meta(self, key: str) -> str | None:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def last_epoch(self, name: str) -> int:
        """A number no smaller than any epoch this name ever had; 0 in a new catalog.

        The next log of this name takes a larger one.
        """
        return int(self._rows(_LAST_EPOCH, name)[0][0])

    def next_id(self) -> int:
        """Greater than any id ever used, also by logs that are dropped."""
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'logs'")
        return int(rows[0][0]) + 1 if rows else 1

    def max_row(self) -> int:
        """The greatest board row in use, or -1."""
        return int(self._rows("SELECT coalesce(max(row), -1) FROM logs")[0][0])

    def free_rows(self, first_row: int = 0) -> Iterator[int]:
        """Board rows from `first_row` up to `max_row()` that no log uses, ascending."""
        for start, stop in self._stream(_FREE_ROWS, first_row):
            yield from range(start, stop)

    def load_states(self, after_id: int = 0, limit: int = -1) -> Iterator[tuple[int, ...]]:
        """Stream `BOOT_COLUMNS` of the logs above `after_id` by id; limit -1 is all."""
        return self._stream(_STATES, after_id, limit)

    def load_board(self, first_id: int = 0, limit: int = -1) -> Iterator[BoardState]:
        """Stream what the board shows of each log, as the last checkpoint left it."""
        for found in self._stream(_BOARD, first_id, limit):
            row, ttl_ms, has_gaps, durability, kind, closed, gone, log_id, _, epoch, *state = found
            yield BoardState(
                row,
                int(ttl_ms),
                bool(has_gaps),
                durability,
                kind,
                bool(closed),
                bool(gone),
                epoch,
                LogState(log_id, *state),
            )

    def find_board_state(self, log_id: int) -> BoardState | None:
        """The checkpointed state of one log."""
        for found in self.load_board(log_id, 1):
            return found if found.state.id == log_id else None
        return None

    def ephemeral_logs(self) -> list[int]:
        """Ids of the logs whose records live in memory only, from an index of just them."""
        return [
            row[0]
            for row in self._rows(
                "SELECT id FROM logs WHERE json_extract(config, '$.durability') = 'ephemeral'"
            )
        ]

    def used_locations(self) -> Iterator[int]:
        """Stream every location in use, in no order."""
        for (location,) in self._stream("SELECT location FROM logs WHERE location != 0"):
            yield location

    def find_damage(self) -> list[str]:
        """What SQLite itself finds wrong with the file: pages, indexes, foreign keys."""
        found = [str(row[0]) for row in self._rows("PRAGMA integrity_check")]
        orphans = self._rows("PRAGMA foreign_key_check")
        return [line for line in found if line != "ok"] + [
            f"a row of {table} refers to a missing row of {parent}"
            for table, _, parent, _ in orphans
        ]


def _segment(row: tuple[Any, ...]) -> Segment:
    return Segment(
        log_id=row[0],
        base_seq=row[1],
        rows=row[2],
        bytes=row[3],
        payload_bytes=row[4],
        live_rows=row[5],
        first_ts=row[6],
        last_ts=row[7],
        sealed_ts=row[8],
        checksum=int(row[9], 16),
        state=row[10],
    )

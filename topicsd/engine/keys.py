"""Idempotency keys (API 0.8): which seqs a keyed write got, for as long as its window.

A key rides in the same WAL frame as its records and is folded into the catalog at the next
checkpoint; until then it is in `_recent`. So a retry finds it at any time, also after a
crash, and the append path never waits for the catalog.
"""

from __future__ import annotations

from topicsd.engine.log import Log
from topicsd.storage.catalog import CatalogWriter

Written = tuple[int, int, int]


class Keys:
    """Keys of all logs."""

    def __init__(self, catalog: CatalogWriter) -> None:
        self._catalog = catalog
        self._recent: dict[tuple[int, str], Written] = {}
        self._windows: dict[int, int] = {}

    def find(self, log: Log, key: str, now_ms: int) -> tuple[int, int] | None:
        """First and last seq of the write that used `key` inside the window, if any."""
        found = self._recent.get((log.id, key))
        if found is None:
            record = self._catalog.find_key(log.id, key)
            if record is None:
                return None
            found = (record.first_seq, record.last_seq, record.ts)
        first_seq, last_seq, ts = found
        window = log.config.idempotency_window_ms
        return (first_seq, last_seq) if window and now_ms - ts <= window else None

    def add(self, log: Log, key: str, written: Written) -> None:
        self._recent[log.id, key] = written
        self._windows[log.id] = log.config.idempotency_window_ms

    def remove(self, log_id: int, key: str) -> None:
        """Take back a key whose write did not commit."""
        self._recent.pop((log_id, key), None)

    def to_save(self) -> list[tuple[int, str, int, int, int]]:
        """Everything not yet in the catalog."""
        return [(log_id, key, *written) for (log_id, key), written in self._recent.items()]

    def to_forget(self, now_ms: int) -> list[tuple[int, int]]:
        """For each log with recent keys, the time before which its keys are out of window."""
        return [(log_id, now_ms - window) for log_id, window in self._windows.items()]

    def saved(self, keys: list[tuple[int, str, int, int, int]]) -> None:
        """Note that these are in the catalog now; newer uses of a key stay."""
        for log_id, key, *written in keys:
            if self._recent.get((log_id, key)) == tuple(written):
                del self._recent[log_id, key]

"""Idempotency keys (API 0.8): which seqs a keyed write got, for as long as its window.

A key rides in the same WAL frame as its records and is folded into the catalog at the next
checkpoint; until then it is in `_recent`. So a retry finds it at any time, also after a
crash, and the append path never waits for the catalog. It is saved together with the end
of the window it was written in; checkpoints forget what has expired, by that time alone,
so that a log which is not written any more needs no attention.
"""

from __future__ import annotations

from typing import Final

from topicsd.engine.log import Log
from topicsd.storage.catalog import CatalogWriter

Written = tuple[int, int, int]
# What a checkpoint saves: log id, key, first seq, last seq, ts, and when it expires.
SavedKey = tuple[int, str, int, int, int, int]
# The largest time the catalog can hold; windows may be larger.
EXPIRES_MAX: Final = 2**63 - 1


class Keys:
    """Keys of all logs."""

    def __init__(self, catalog: CatalogWriter) -> None:
        self._catalog = catalog
        # First seq, last seq, ts and expiry.
        self._recent: dict[tuple[int, str], tuple[int, int, int, int]] = {}

    def find(self, log: Log, key: str, now_ms: int) -> tuple[int, int] | None:
        """First and last seq of the write that used `key` inside the window, if any."""
        found = self._recent.get((log.id, key))
        if found is None:
            record = self._catalog.find_key(log.id, key)
            if record is None:
                return None
            first_seq, last_seq, ts = record.first_seq, record.last_seq, record.ts
        else:
            first_seq, last_seq, ts, _ = found
        window = log.config.idempotency_window_ms
        return (first_seq, last_seq) if window and now_ms - ts <= window else None

    def add(self, log: Log, key: str, written: Written) -> None:
        expires_ts = min(written[2] + log.config.idempotency_window_ms, EXPIRES_MAX)
        self._recent[log.id, key] = (*written, expires_ts)

    def remove(self, log_id: int, key: str) -> None:
        """Take back a key whose write did not commit."""
        self._recent.pop((log_id, key), None)

    def to_save(self) -> list[SavedKey]:
        """Everything not yet in the catalog."""
        return [(log_id, key, *written) for (log_id, key), written in self._recent.items()]

    def saved(self, keys: list[SavedKey]) -> None:
        """Note that these are in the catalog now; newer uses of a key stay."""
        for log_id, key, *written in keys:
            if self._recent.get((log_id, key)) == tuple(written):
                del self._recent[log_id, key]

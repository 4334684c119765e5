"""What a checkpoint saves of queues: a change of the catalog, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from topicsd.storage.catalog.rows import QueueRecord

_SAVE_QUEUE = """
INSERT INTO queues (log_id, cursor, dead_lettered)
SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)
ON CONFLICT (log_id) DO UPDATE
SET cursor = excluded.cursor, dead_lettered = excluded.dead_lettered
"""
_SAVE_LEASE = """
INSERT OR REPLACE INTO leases (log_id, seq, free_at, lease, node, deliveries)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM logs WHERE id = ?1)
"""


@dataclass(frozen=True, slots=True)
class SaveLeases:
    """Queues and the jobs they know of: (log_id, seq, free_at, lease, node, deliveries)."""

    queues: list[QueueRecord]
    jobs: list[tuple[int, int, int, int, str, int]]
    # Jobs they know of no more: (log_id, seq).
    gone: list[tuple[int, int]]


def save_leases(connection: apsw.Connection, change: SaveLeases) -> None:
    """Save all of a change; logs that are gone are skipped."""
    connection.executemany(_SAVE_QUEUE, change.queues)
    connection.executemany("DELETE FROM leases WHERE log_id = ? AND seq = ?", change.gone)
    connection.executemany(_SAVE_LEASE, change.jobs)

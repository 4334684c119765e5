"""Routers in the catalog: their rows, and the changes that make, move and forget them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw


class RouterRecord(NamedTuple):
    """A router with its endpoints, and how far it was at the last checkpoint."""

    id: int
    name: str
    source_id: int
    dest_id: int
    config_json: str
    # Source seqs up to here were there before the router.
    start_seq: int
    cursor: int
    forwarded_total: int
    created_ts: int


@dataclass(frozen=True, slots=True)
class SaveRouter:
    """Insert a router, or replace the one of that id."""

    router: RouterRecord


@dataclass(frozen=True, slots=True)
class DropRouter:
    """Forget a router; nothing happens when it is gone."""

    id: int


@dataclass(frozen=True, slots=True)
class SaveRoutes:
    """How far routers got: (id, cursor, forwarded_total); those that are gone stay gone."""

    states: Sequence[tuple[int, int, int]]


RouterChange = SaveRouter | DropRouter | SaveRoutes

_SAVE_ROUTER = """
INSERT INTO routers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET source_id = excluded.source_id, dest_id = excluded.dest_id, config = excluded.config,
    start_seq = excluded.start_seq, cursor = excluded.cursor,
    forwarded_total = excluded.forwarded_total
"""
LIST_ROUTERS = """
SELECT id, name, source_id, dest_id, config, start_seq, cursor, forwarded_total, created_ts
FROM routers ORDER BY id
"""


def _save_router(connection: apsw.Connection, change: SaveRouter) -> None:
    connection.execute(_SAVE_ROUTER, change.router)


def _drop_router(connection: apsw.Connection, change: DropRouter) -> None:
    connection.execute("DELETE FROM routers WHERE id = ?", (change.id,))


def _save_routes(connection: apsw.Connection, change: SaveRoutes) -> None:
    connection.executemany(
        "UPDATE routers SET cursor = ?2, forwarded_total = ?3 WHERE id = ?1", change.states
    )


APPLY_ROUTERS: dict[type, Callable[[apsw.Connection, Any], None]] = {
    SaveRouter: _save_router,
    DropRouter: _drop_router,
    SaveRoutes: _save_routes,
}

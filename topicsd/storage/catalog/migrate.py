"""Bring a catalog to the schema of this program, or refuse it with the reason.

Each migration runs in one transaction together with its row in `migrations(name, checksum,
applied_ts)`, so a crash leaves it applied or not, never half. What is recorded must be a
leading part of what the program knows, byte for byte: a name it does not know means a
newer program was here, a different checksum means that somebody edited history.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import xxhash

from topicsd.storage.catalog.refusals import CatalogChanged, CatalogMissing, CatalogTooNew

Migration = tuple[str, str]

_CREATE = """
CREATE TABLE IF NOT EXISTS migrations (
    name       TEXT NOT NULL PRIMARY KEY,
    checksum   TEXT NOT NULL,
    applied_ts INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
# For people only, so SQLite's clock is good enough.
_RECORD = """
INSERT INTO migrations (name, checksum, applied_ts)
VALUES (?, ?, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
"""


def checksum(sql: str) -> str:
    return xxhash.xxh3_128_hexdigest(sql.encode())


def migrate(connection: apsw.Connection, known: Sequence[Migration]) -> list[str]:
    """Apply what is missing and return its names; raise when the catalog does not fit."""
    names = []
    for migration in plan_migrations(connection, known):
        _apply(connection, migration)
        names.append(migration[0])
    return names


def check_current(connection: apsw.Connection, known: Sequence[Migration]) -> None:
    """Raise unless every known migration, and no other, is applied."""
    pending = plan_migrations(connection, known)
    if pending:
        raise CatalogMissing(
            f"{connection.filename} is not ready: migration {pending[0][0]} is not applied yet"
        )


def plan_migrations(connection: apsw.Connection, known: Sequence[Migration]) -> list[Migration]:
    """The migrations still to apply, after checking those that are recorded."""
    applied = _applied(connection)
    _refuse_unknown(connection.filename, applied, known)
    for name, sql in known[: len(applied)]:
        _refuse_changed(connection.filename, applied.get(name), name, sql)
    return list(known[len(applied) :])


def _applied(connection: apsw.Connection) -> dict[str, str]:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    if ("migrations",) in tables:
        rows = connection.execute("SELECT name, checksum FROM migrations").fetchall()
        return {str(name): str(recorded) for name, recorded in rows}
    if tables:
        raise CatalogChanged(
            f"{connection.filename} is a database of another program: it has no migrations table"
        )
    return {}


def _refuse_unknown(path: str, applied: dict[str, str], known: Sequence[Migration]) -> None:
    unknown = sorted(applied.keys() - {name for name, _ in known})
    if unknown:
        raise CatalogTooNew(
            f"{path} was written by a newer version: it has migration {unknown[-1]}, "
            f"which this version does not know; start that version or a later one"
        )


def _refuse_changed(path: str, recorded: str | None, name: str, sql: str) -> None:
    if recorded is None:
        raise CatalogChanged(f"{path} lacks migration {name} but has a later one")
    if recorded != checksum(sql):
        raise CatalogChanged(
            f"{path} was made with another text of migration {name}: "
            f"checksum {recorded} is recorded, {checksum(sql)} is expected"
        )


def _apply(connection: apsw.Connection, migration: Migration) -> None:
    name, sql = migration
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_CREATE)
        connection.execute(sql)
        connection.execute(_RECORD, (name, checksum(sql)))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise

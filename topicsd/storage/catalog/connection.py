"""Open connections to the catalog, each pragma a function that says why.

A connection must not cross a fork, and serves one thread at a time.
"""

from __future__ import annotations

import apsw

from topicsd.storage.catalog.refusals import CatalogError, CatalogMissing, translated

BUSY_TIMEOUT_MS = 5000
JOURNAL_BYTES_MAX = 64 * 1024 * 1024
# At a clean stop a reader in mid-query may hold the journal; it is not worth a long wait.
CLOSE_TIMEOUT_MS = 200


def use_wal_journal(connection: apsw.Connection) -> None:
    """Let readers work on their snapshot while the writer commits, neither waiting."""
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        raise CatalogError(
            f"{connection.filename} cannot use a WAL journal ({mode} instead): "
            "the data directory must be on a local file system"
        )


def enforce_foreign_keys(connection: apsw.Connection) -> None:
    """Make dropping a log drop its segments, gaps and keys; SQLite's default is not to."""
    connection.pragma("foreign_keys", True)


def wait_when_busy(connection: apsw.Connection) -> None:
    """Wait for the moments when another process holds a lock: recovery, a shell, a backup."""
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)


def sync_every_commit(connection: apsw.Connection) -> None:
    """Make a commit survive power loss, not only a crash: a created topic is a promise."""
    connection.pragma("synchronous", "full")


def bound_journal(connection: apsw.Connection) -> None:
    """Give disk space back after a large checkpoint, which otherwise keeps its journal."""
    connection.pragma("journal_size_limit", JOURNAL_BYTES_MAX)


def distrust_schema(connection: apsw.Connection) -> None:
    """Keep a tampered file from running functions with side effects from its views."""
    connection.pragma("trusted_schema", False)


def refuse_writes(connection: apsw.Connection) -> None:
    """Make a write through a reader an error, even where the file would permit it."""
    connection.pragma("query_only", True)


def open_writer(path: str) -> apsw.Connection:
    """Open or create the catalog for the one writer; the caller closes it."""
    with translated(path):
        try:
            connection = apsw.Connection(path)
        except apsw.CantOpenError as error:
            raise CatalogError(f"{path} cannot be opened: {error}") from error
        try:
            _prepare_writer(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare_writer(connection: apsw.Connection) -> None:
    wait_when_busy(connection)
    distrust_schema(connection)
    use_wal_journal(connection)
    sync_every_commit(connection)
    enforce_foreign_keys(connection)
    bound_journal(connection)


def open_reader(path: str) -> apsw.Connection:
    """Open an existing catalog for reading only, or raise `CatalogMissing`."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.CantOpenError as error:
        raise CatalogMissing(f"there is no catalog at {path}") from error
    wait_when_busy(connection)
    distrust_schema(connection)
    refuse_writes(connection)
    return connection


def close_writer(connection: apsw.Connection) -> None:
    """Fold the journal into the main file, so that a copy of that file is complete."""
    connection.set_busy_timeout(CLOSE_TIMEOUT_MS)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        # A reader is in the way. Nothing is lost: the next open reads the journal.
        pass
    finally:
        connection.close()

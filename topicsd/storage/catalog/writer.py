"""The engine's side of the catalog: opens, migrates, commits.

Two connections: `commit` has one to itself, so that a thread may commit while another
asks questions, which are answered from the last commit. Each of the two halves serves one
thread at a time. After a failed commit nothing of it is visible; after a device error it is
not known whether it would survive a crash, so the engine must stop and recover.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import apsw

from topicsd.model.resources import migration_files
from topicsd.storage.catalog import migrate
from topicsd.storage.catalog.changes import APPLY, Change
from topicsd.storage.catalog.connection import close_writer, open_reader, open_writer
from topicsd.storage.catalog.queries import Queries
from topicsd.storage.catalog.refusals import translated


class CatalogWriter(Queries):
    """The one writer of a catalog; opening it creates and migrates the file."""

    def __init__(
        self, path: str | os.PathLike[str], migrations: Sequence[migrate.Migration] | None = None
    ) -> None:
        super().__init__(os.fspath(path))
        known = migration_files() if migrations is None else migrations
        self._writing = open_writer(self.path)
        try:
            with translated(self.path):
                self.migrated = migrate.migrate(self._writing, known)
            self._snapshot = open_reader(self.path)
        except BaseException:
            self._writing.close()
            raise

    def _reading(self) -> apsw.Connection:
        return self._snapshot

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all changes, in order, in one durable transaction, or none of them."""
        connection = self._writing
        with translated(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                for change in changes:
                    APPLY[type(change)](connection, change)
                connection.execute("COMMIT")
            except BaseException:
                # SQLite has already rolled back by itself after some failures.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close both connections; the writing one last, because it tidies the journal."""
        self._snapshot.close()
        with translated(self.path):
            close_writer(self._writing)

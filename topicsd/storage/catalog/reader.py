"""The catalog as workers and `topicsd check` see it: read-only, opened on first use.

It never blocks the writer and never creates or changes the catalog. Until the engine has
created and migrated the file every call raises `CatalogMissing`; the next call tries again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import apsw

from topicsd.model.resources import migration_files
from topicsd.storage.catalog import migrate
from topicsd.storage.catalog.connection import open_reader
from topicsd.storage.catalog.queries import Queries
from topicsd.storage.catalog.refusals import CatalogMissing, translated


class CatalogReader(Queries):
    """A read-only view of the catalog; one thread at a time, safe to make before a fork."""

    def __init__(
        self, path: str | os.PathLike[str], migrations: Sequence[migrate.Migration] | None = None
    ) -> None:
        super().__init__(os.fspath(path))
        self._known = migration_files() if migrations is None else migrations
        self._connection: apsw.Connection | None = None
        self._owner = 0
        self._inherited: list[apsw.Connection] = []

    def _reading(self) -> apsw.Connection:
        if self._connection is None or self._owner != os.getpid():
            self._open()
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        if self._connection is not None:
            # Opened before a fork: even closing it here would drop the parent's locks.
            self._inherited.append(self._connection)
            self._connection = None
        connection = open_reader(self.path)
        try:
            with translated(self.path):
                migrate.check_current(connection, self._known)
        except apsw.CantOpenError as error:
            connection.close()
            raise CatalogMissing(f"{self.path} cannot be read: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._connection, self._owner = connection, os.getpid()

    def close(self) -> None:
        """Close the connection, if this process opened one."""
        if self._connection is not None and self._owner == os.getpid():
            self._connection.close()
            self._connection = None

"""Why a catalog does not open, and what SQLite's own failures become above this package.

A `CatalogError` is for the person who starts the server: its text is the whole message.
Failures while running become what every other file's failures are: `storage_full`,
`storage_corrupt`, or an `OSError`. Any other SQLite exception is a bug and passes through.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from topicsd.model import errors


class CatalogError(Exception):
    """The catalog cannot be opened; the message says why and what to do."""


class CatalogMissing(CatalogError):
    """There is no catalog yet, or the engine has not finished preparing it."""


class CatalogTooNew(CatalogError):
    """A newer version of the program has migrated this catalog."""


class CatalogChanged(CatalogError):
    """What is recorded in the file is not what this program applied."""


def _corrupt(path: str, error: apsw.Error) -> Exception:
    return errors.storage_corrupt(path, 0, str(error))


def _full(path: str, error: apsw.Error) -> Exception:
    return errors.storage_full(f"no space left to write {path}")


def _device(path: str, error: apsw.Error) -> Exception:
    return OSError(errno.EIO, str(error), path)


_MEANING: dict[type[apsw.Error], Callable[[str, apsw.Error], Exception]] = {
    apsw.CorruptError: _corrupt,
    apsw.NotADBError: _corrupt,
    apsw.FullError: _full,
    apsw.IOError: _device,
}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn SQLite's storage failures into the product's, and leave bugs as they are."""
    try:
        yield
    except tuple(_MEANING) as error:
        raise _MEANING[type(error)](path, error) from error

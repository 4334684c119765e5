"""Reasons not to start that a restart will not cure, each one line for people."""

from __future__ import annotations

from topicsd.bridge.address import UnsafeSocketDirectory
from topicsd.model.settings import SettingsError
from topicsd.storage.catalog import CatalogChanged, CatalogTooNew
from topicsd.storage.fs import DirectoryLocked

# What an engine exits with: refused to start, or met a bug and must recover.
EXIT_REFUSED = 3
EXIT_FAULT = 70


class StartRefused(Exception):
    """The server cannot start; the text says why and what to do."""


INCURABLE = (
    DirectoryLocked,
    CatalogTooNew,
    CatalogChanged,
    SettingsError,
    UnsafeSocketDirectory,
    StartRefused,
)


def explain(error: Exception) -> str:
    """One line for people, without a traceback."""
    if isinstance(error, DirectoryLocked):
        return f"another server is running: {error}"
    return " ".join(str(error).split())

"""Where things are inside a data directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from topicsd.model.settings import Settings

__all__ = [
    "Path",
    "board",
    "catalog",
    "cold",
    "lock",
    "quarantine",
    "resident",
    "roots",
    "segments",
    "wal",
]


def lock(data_dir: Path) -> Path:
    return data_dir / "lock"


def catalog(data_dir: Path) -> Path:
    return data_dir / "catalog.sqlite"


def board(data_dir: Path) -> Path:
    return data_dir / "board.mmap"


def wal(data_dir: Path) -> Path:
    return data_dir / "wal"


def segments(data_dir: Path) -> Path:
    return data_dir / "segments"


def resident(ephemeral_dir: Path, data_dir: Path) -> Path:
    """This data directory's own place for records that live in memory only.

    It is removed at every start and stop, so it must never be a directory somebody chose.
    """
    owner = hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:16]
    return ephemeral_dir / f"topicsd-{owner}"


def cold(cold_dir: Path, instance: int) -> Path:
    """This data directory's own place in a cold directory that others may use, too."""
    return cold_dir / f"topicsd-{instance:016x}"


def roots(settings: Settings, instance: int) -> tuple[Path, ...]:
    """Where segments are, in the order of `place.DISK`, `RAM` and, when there is one, `COLD`."""
    found = (segments(settings.data_dir), resident(settings.ephemeral_dir, settings.data_dir))
    return found if settings.cold_dir is None else (*found, cold(settings.cold_dir, instance))


def quarantine(data_dir: Path) -> Path:
    return data_dir / "quarantine"

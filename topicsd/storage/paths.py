"""Where things are inside a data directory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["Path", "board", "catalog", "lock", "quarantine", "resident", "segments", "wal"]


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


def quarantine(data_dir: Path) -> Path:
    return data_dir / "quarantine"

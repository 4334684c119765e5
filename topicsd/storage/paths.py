"""Where things are inside a data directory."""

from __future__ import annotations

from pathlib import Path

__all__ = ["Path", "board", "catalog", "lock", "quarantine", "segments", "wal"]


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


def quarantine(data_dir: Path) -> Path:
    return data_dir / "quarantine"

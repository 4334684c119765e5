"""Looking at, and damaging, the bytes of a data directory that no engine uses."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from topicsd.storage import frame, paths, wal
from topicsd.storage.fs import Files


class Place(NamedTuple):
    """Where a frame is, and which seqs it holds: 0 and 0 when it adds none."""

    path: Path
    start: int
    end: int
    first_seq: int
    last_seq: int


def list_frames(data_dir: Path) -> list[Place]:
    """Every frame, in the order of its shard's files."""
    found = []
    for file in wal.list_files(Files(), paths.wal(data_dir)):
        data, position = memoryview(file.path.read_bytes()), wal.FILE_HEADER.size
        while True:
            try:
                read = frame.read(data, position)
            except frame.BadFrame:
                break
            found.append(_place(file.path, position, read))
            position = read.end
    return found


def _place(path: Path, start: int, read: frame.Frame) -> Place:
    entries = [each for each in frame.entries(read.body) if isinstance(each, frame.AppendEntry)]
    if not entries:
        return Place(path, start, read.end, 0, 0)
    first_seq = entries[0].first_seq
    return Place(path, start, read.end, first_seq, first_seq + entries[0].records - 1)


def flip(path: Path, position: int) -> None:
    """Change one byte."""
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x41]))


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)

"""Reads the WAL back after a crash, and tells a torn tail from a corrupt middle.

Frames come in the order of their lsn, over all shards and files. Where bytes are not an
intact frame, one question decides what that means: does the shard go on after them, in the
same file or in a later one? If it does not, the process died while writing its last frame,
which nobody was promised: the tail is torn and gets cut off. If it does, an acknowledged
frame was damaged afterwards: the file is copied aside, the damage reported, and reading
goes on with the next intact frame. Nothing after the damage is dropped.
"""

from __future__ import annotations

import heapq
import logging
import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

from topicsd.storage import frame, wal
from topicsd.storage.fs import Files

_log = logging.getLogger("topicsd.replay")
_MAGIC_BYTES: Final = struct.pack("<I", frame.MAGIC)


class Damage(NamedTuple):
    """Bytes of a WAL file that are not a frame."""

    path: Path
    position: int
    length: int
    torn: bool
    problem: str


class WalReader:
    """One pass over all WAL files of a data directory."""

    def __init__(self, files: Files, root: Path, progress: Callable[[float], None]) -> None:
        self._files = files
        self._found = wal.list_files(files, root)
        self._progress = progress
        self._bytes_total = 0
        self._bytes_read = 0
        self.damage: list[Damage] = []
        self.frames = 0
        self.last_lsn = 0

    def __iter__(self) -> Iterator[frame.Frame]:
        """All intact frames in lsn order."""
        by_shard: dict[int, list[wal.WalFile]] = {}
        for file in self._found:
            by_shard.setdefault(file.shard, []).append(file)
        views = {file: self._map(file.path) for file in self._found}
        self._bytes_total = sum(map(len, views.values()))
        streams = [self._shard(files, views) for files in by_shard.values()]
        for found in heapq.merge(*streams, key=lambda each: each.lsn):
            self.frames += 1
            self.last_lsn = max(self.last_lsn, found.lsn)
            if self.frames % 1024 == 0:
                self._progress(min(self._bytes_read / max(self._bytes_total, 1), 1.0))
            yield found

    def _shard(
        self, files: list[wal.WalFile], views: dict[wal.WalFile, memoryview]
    ) -> Iterator[frame.Frame]:
        for index, file in enumerate(files):
            goes_on = any(_has_frame(views[later]) for later in files[index + 1 :])
            yield from self._file(file, views[file], goes_on)

    def _file(self, file: wal.WalFile, data: memoryview, goes_on: bool) -> Iterator[frame.Frame]:
        problem = check_file_header(data, file.number)
        position = wal.FILE_HEADER.size
        if problem is not None:
            position = _next_frame(data, 0)
            if position < 0 and not _is_zero(data, 0):
                self._note(file, 0, len(data), torn=not goes_on, problem=problem)
            elif position >= 0:
                self._note(file, 0, position, torn=False, problem=problem)
        while 0 <= position < len(data):
            try:
                found = frame.read(data, position)
            except frame.BadFrame as bad:
                position = self._resume(file, data, position, str(bad), goes_on)
                continue
            self._bytes_read += found.end - position
            position = found.end
            yield found

    def _resume(
        self, file: wal.WalFile, data: memoryview, position: int, problem: str, goes_on: bool
    ) -> int:
        """Where reading continues after a bad frame; -1 at the end of the file."""
        if _is_zero(data, position):
            return -1
        following = _next_frame(data, position + frame.ALIGN)
        if following >= 0:
            self._note(file, position, following - position, torn=False, problem=problem)
        else:
            self._note(file, position, len(data) - position, torn=not goes_on, problem=problem)
        return following

    def _note(
        self, file: wal.WalFile, position: int, length: int, *, torn: bool, problem: str
    ) -> None:
        self.damage.append(Damage(file.path, position, length, torn, problem))
        level = logging.WARNING if torn else logging.ERROR
        kind = "torn tail cut" if torn else "corrupt frame set aside"
        _log.log(level, "%s file=%s position=%d problem=%s", kind, file.path, position, problem)

    def _map(self, path: Path) -> memoryview:
        fd = self._files.open_readonly(path)
        try:
            size = self._files.size(fd)
            return memoryview(self._files.map(fd, size)) if size else memoryview(b"")
        finally:
            self._files.close(fd)


def check_file_header(data: memoryview, number: int) -> str | None:
    """What is wrong with a WAL file's header, or None."""
    if len(data) < wal.FILE_HEADER.size:
        return "the file is shorter than its header"
    magic, version, found, _, expected = wal.FILE_HEADER.unpack_from(data)
    if magic != wal.MAGIC:
        return "no WAL magic"
    if version != wal.VERSION:
        return f"version {version} is not known"
    if xxhash.xxh3_64_intdigest(bytes(data[:24])) != expected:
        return "header checksum mismatch"
    return None if found == number else f"carries the number {found}"


def set_aside(files: Files, damage: Damage, quarantine: Path) -> Path | None:
    """Cut a torn tail off; copy a file with a corrupt middle and return the copy's path."""
    if damage.torn:
        fd = files.open(damage.path)
        try:
            files.truncate(fd, damage.position)
            files.sync(fd)
        finally:
            files.close(fd)
        return None
    files.make_directory(quarantine)
    content = files.read(damage.path)
    # Numbers start again once all files are gone, so the content is part of the name.
    shard, stem = damage.path.parent.name, damage.path.stem
    copy = quarantine / f"wal-{shard}-{stem}-{xxhash.xxh3_64_hexdigest(content)}{wal.SUFFIX}"
    if not files.exists(copy):
        files.write_whole(copy, content)
    return copy


def _has_frame(data: memoryview) -> bool:
    return _next_frame(data, 0) >= 0


def _next_frame(data: memoryview, position: int) -> int:
    """Position of the next intact frame at or after `position`, or -1."""
    raw = data.obj
    if not isinstance(raw, bytes | mmap.mmap):
        return -1
    while True:
        position = raw.find(_MAGIC_BYTES, position)
        if position < 0:
            return -1
        try:
            frame.read(data, position)
        except frame.BadFrame:
            position += 1
            continue
        return position


def _is_zero(data: memoryview, position: int) -> bool:
    """Whether nothing was ever written from `position` on."""
    step = 1 << 20
    for start in range(position, len(data), step):
        part = bytes(data[start : start + step])
        if part.count(0) != len(part):
            return False
    return True

"""A file system whose n-th change fails, and that can die like a process.

Calls that change something are counted in the order in which they happen, over all
threads. The n-th one raises; a write may first put half of its bytes into the file. A dead
file system refuses every further change, as a killed process makes none.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

from tests.faults.tracked import TrackedFiles
from topicsd.storage.fs import Buffer


class FaultyFiles(TrackedFiles):
    """Real files, with one failure at a chosen call."""

    def __init__(self, fail_at: int = 0, error: int = errno.EIO, *, torn: bool = False) -> None:
        super().__init__()
        self._fail_at = fail_at
        self._error = error
        self._torn = torn
        self._lock = threading.Lock()
        self._refused: dict[str, int] = {}
        self.calls: list[str] = []
        self.failed: str | None = None

    def fail_in(self, calls: int) -> None:
        """Let the changing call fail that many calls from now, 1 being the next one."""
        self._fail_at = len(self.calls) + calls

    def refuse(self, name: str, error: int = errno.ENOSPC) -> None:
        """Let every call of one kind fail until `allow`."""
        self._refused[name] = error

    def allow(self) -> None:
        self._refused.clear()

    def count(self, name: str) -> int:
        return self.calls.count(name)

    def _step(self, name: str) -> None:
        with self._lock:
            if self.dead:
                raise OSError(errno.EIO, "the process is dead")
            self.calls.append(name)
            if len(self.calls) == self._fail_at:
                self.failed = name
                raise OSError(self._error, os.strerror(self._error))
            if name in self._refused:
                raise OSError(self._refused[name], os.strerror(self._refused[name]))

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            self._step("create")
        return super().open(path, create=create)

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        try:
            self._step("write_at")
        except OSError:
            if self._torn and not self.dead:
                super().write_at(fd, bytes(data)[: len(data) // 2], position)
            raise
        super().write_at(fd, data, position)

    def allocate(self, fd: int, position: int, length: int) -> None:
        self._step("allocate")
        super().allocate(fd, position, length)

    def truncate(self, fd: int, length: int) -> None:
        self._step("truncate")
        super().truncate(fd, length)

    def sync(self, fd: int) -> None:
        self._step("sync")
        super().sync(fd)

    def sync_directory(self, path: Path) -> None:
        self._step("sync_directory")
        super().sync_directory(path)

    def sync_volume(self, fd: int) -> None:
        self._step("sync_volume")
        super().sync_volume(fd)

    def flush(self, mapping: mmap.mmap) -> None:
        self._step("flush")
        super().flush(mapping)

    def make_directory(self, path: Path) -> None:
        self._step("make_directory")
        super().make_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename")
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step("remove")
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        self._step("remove_directory")
        super().remove_directory(path)

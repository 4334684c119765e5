"""A file system that loses power: what was not synced is gone.

Each write is remembered with the bytes it replaced until its file is synced. `crash` puts
those bytes back, newest first, which is what a disk shows whose cache never got there.
Sizes, names and removals count as durable at once; the product must not rely on that, and
nothing here checks it.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

from tests.faults.tracked import TrackedFiles
from topicsd.storage.fs import Buffer


class LossyFiles(TrackedFiles):
    """Real files, with a power switch."""

    def __init__(self, boot: str = "first boot") -> None:
        super().__init__()
        self._boot = boot
        self._lock = threading.Lock()
        self._unsynced: list[tuple[Path, int, bytes]] = []

    def boot_id(self) -> str:
        return self._boot

    def crash(self) -> None:
        """Lose power: nothing more is written, and unsynced bytes are as they were."""
        with self._lock:
            self.die()
            for path, position, before in reversed(self._unsynced):
                if path.exists():
                    with path.open("r+b") as file:
                        file.seek(position)
                        file.write(before)

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        with self._lock:
            self._check()
            # Beyond the end a file reads as zeros.
            before = super().read_at(fd, len(data), position).ljust(len(data), b"\0")
            self._unsynced.append((self._open[fd], position, before))
            super().write_at(fd, data, position)

    def sync(self, fd: int) -> None:
        with self._lock:
            self._check()
            super().sync(fd)
            path = self._open[fd]
            self._unsynced = [each for each in self._unsynced if each[0] != path]

    def sync_volume(self, fd: int) -> None:
        with self._lock:
            super().sync_volume(fd)
            self._unsynced = []

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            super().rename(source, target)
            self._unsynced = [
                (target if path == source else path, position, before)
                for path, position, before in self._unsynced
            ]

    def remove(self, path: Path) -> None:
        self._check()
        super().remove(path)

    def _check(self) -> None:
        if self.dead:
            raise OSError(errno.EIO, "there is no power")

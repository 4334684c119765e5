"""Files that know what is open, so that a dead process's descriptors can be closed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from topicsd.storage.fs import Files


class TrackedFiles(Files):
    """Real files and a list of open descriptors."""

    def __init__(self) -> None:
        self._open: dict[int, Path] = {}
        self.dead = False

    def bury(self) -> None:
        """Close everything a dead process left open, its lock included."""
        for fd in list(self._open):
            with contextlib.suppress(OSError):  # closed behind our back
                self.close(fd)

    def open(self, path: Path, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self._open[fd] = path
        return fd

    def open_readonly(self, path: Path) -> int:
        fd = super().open_readonly(path)
        self._open[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        os.close(fd)

    def die(self) -> None:
        """Change nothing from now on."""
        self.dead = True

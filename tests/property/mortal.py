"""A file system whose process can die at a chosen call, and a clock that stands still.

Death is final: every later call that would change a file fails, on every thread, so nothing
of an abandoned engine reaches the disk any more. What was written before stays, as it does
in the page cache when a process is killed.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from topicsd.storage.fs import Files

CHANGING = (
    "write_at",
    "allocate",
    "truncate",
    "sync",
    "sync_directory",
    "sync_volume",
    "flush",
    "make_directory",
    "rename",
    "remove",
    "remove_directory",
)
CHECKPOINT = "checkpoint"


class StillClock:
    """Wall time moves only when told to."""

    def __init__(self, now_ms: int) -> None:
        self.now = now_ms
        self._ticks = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        self._ticks += 1
        return self._ticks


class MortalFiles(Files):
    """Counts the changing calls of one thread, and stops or dies at one of them."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._fuse: tuple[str, int] | None = None
        self._gate: tuple[int, threading.Event] | None = None
        self.at_gate = threading.Event()
        self.dead = False

    def die_at(self, thread: str, calls: int) -> None:
        """Die at the changing call number `calls`, from now on, of the thread so named."""
        self._fuse = (thread, calls)

    def stop_checkpoint_at(self, calls: int) -> None:
        """Let the next checkpoint's thread wait at its changing call number `calls`."""
        self.at_gate.clear()
        self._gate = (calls, threading.Event())

    def let_checkpoint_go(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate[1].set()

    def kill(self) -> None:
        self.dead = True
        self.let_checkpoint_go()

    def bury(self) -> None:
        """Close what a dead process left open, its lock included."""
        for fd in list(self._open):
            self.close(fd)

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            self.before_change()
        return self._keep(super().open(path, create=create))

    def open_readonly(self, path: Path) -> int:
        return self._keep(super().open_readonly(path))

    def close(self, fd: int) -> None:
        self._open.discard(fd)
        os.close(fd)

    def before_change(self) -> None:
        """Wait, die or fail, as arranged."""
        thread = threading.current_thread().name
        if self._gate is not None and thread == CHECKPOINT:
            self._wait_at_gate(*self._gate)
        if self._fuse is not None and self._fuse[0] == thread:
            self._fuse = (thread, self._fuse[1] - 1)
            self.dead = self.dead or self._fuse[1] <= 0
        if self.dead:
            raise OSError(errno.EIO, "the process is dead")

    def _wait_at_gate(self, calls: int, opened: threading.Event) -> None:
        if calls > 1:
            self._gate = (calls - 1, opened)
            return
        self.at_gate.set()
        opened.wait()

    def _keep(self, fd: int) -> int:
        self._open.add(fd)
        return fd


def _guarded(name: str) -> Callable[..., Any]:
    real = getattr(Files, name)

    def call(self: MortalFiles, *values: Any, **named: Any) -> Any:
        self.before_change()
        return real(self, *values, **named)

    return call


for _name in CHANGING:
    setattr(MortalFiles, _name, _guarded(_name))

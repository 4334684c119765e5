"""The only place that touches files, and therefore the seam where faults are injected.

Everything the product does to its data directory is a method of `Files`. Tests replace it
by a subclass that fails the n-th call, drops unsynced writes or runs out of space; nothing
else in the product imports `os` for file work, which a law test checks.

Positions are bytes in a file. Methods either do all of what they promise or raise OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import Final

Buffer = bytes | bytearray | memoryview

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DirectoryLocked(Exception):
    """Another process holds the data directory."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path.parent} is in use by process {holder or 'unknown'}")
        self.holder = holder


class Files:
    """The real file system."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; with `create`, make the file when it is absent."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, FILE_MODE)

    def open_readonly(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(fd, data, position)
        while written < len(data):
            view = memoryview(data)[written:]
            count = os.pwrite(fd, view, position + written)
            if count == 0:
                raise OSError(errno.EIO, "write made no progress")
            written += count

    def read_at(self, fd: int, length: int, position: int) -> bytes:
        """Read `length` bytes at `position`; fewer only at the end of the file."""
        return os.pread(fd, length, position)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def size_of(self, path: Path) -> int:
        """The size of a file that need not be open."""
        return path.stat().st_size

    def allocate(self, fd: int, position: int, length: int) -> None:
        """Reserve blocks now, so that a later write inside them cannot run out of space."""
        os.posix_fallocate(fd, position, length)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def sync(self, fd: int) -> None:
        """Make the file's bytes durable."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals inside `path` durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_volume(self, fd: int) -> None:
        """Make every file of the volume that holds `fd` durable, in one call."""
        if _libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def map(self, fd: int, length: int, *, write: bool = False) -> mmap.mmap:
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        return mmap.mmap(fd, length, access=access)

    def map_shared(self, length: int) -> mmap.mmap:
        """Zeroed memory that this process shares with the children it forks from now on."""
        return mmap.mmap(-1, length)

    def flush(self, mapping: mmap.mmap) -> None:
        """Make a shared mapping's bytes durable."""
        mapping.flush()

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)

    def list_directory(self, path: Path) -> list[str]:
        """Names inside `path`; none when it does not exist."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file; absence is fine, so that a removal can be repeated."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        """Remove a directory and the files directly in it; absence is fine."""
        for name in self.list_directory(path):
            self.remove(path / name)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything below it; absence is fine."""
        for name in self.list_directory(path):
            child = path / name
            if child.is_dir() and not child.is_symlink():
                self.remove_tree(child)
            else:
                self.remove(child)
        self.remove_directory(path)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Replace a small file atomically and durably."""
        temporary = path.with_name(path.name + ".new")
        fd = self.open(temporary, create=True)
        try:
            self.truncate(fd, 0)
            self.write_at(fd, data, 0)
            self.sync(fd)
        finally:
            self.close(fd)
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def lock(self, path: Path) -> int:
        """Hold `path` exclusively until the process ends, or raise DirectoryLocked."""
        fd = self.open(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip("\0\n ")
            os.close(fd)
            raise DirectoryLocked(path, holder) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return fd

    def boot_id(self) -> str:
        """Identity of the running kernel: a page cache survives a process, not a boot."""
        try:
            return BOOT_ID.read_text().strip()
        except OSError:
            return ""


_libc = ctypes.CDLL(None, use_errno=True)


def is_full(error: OSError) -> bool:
    """Whether an error means that the volume or a quota has no room left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)

"""The write-ahead log: sharded, preallocated, group-committed.

A shard is a directory of numbered files. Each file starts with a 32-byte header and holds
frames until it is full or a checkpoint starts the next one:

    0   magic    u32  "TWAL"
    4   version  u32  1
    8   number   u64  the file's own number
    16  base_lsn u64  no frame in the file has a smaller lsn
    24  checksum u64  xxh3_64 of the first 24 bytes

`write` puts a frame into the page cache, which is enough to survive the death of the
process. One thread a shard makes frames durable: at once when somebody waits for it, and
within `sync_interval_ms` otherwise. While it syncs, further frames gather, and the next
sync covers them all: that is the whole group commit.

A failed sync is final. The kernel may have dropped the dirty pages, so a retry that
succeeds would lie; the shard reports the failure and the engine stops and recovers.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

from topicsd.storage import frame
from topicsd.storage.fs import Files

MAGIC: Final = 0x4C415754
VERSION: Final = 1
FILE_HEADER = struct.Struct("<IIQQQ")
SUFFIX: Final = ".wal"

FSYNC_BUCKETS_US: Final = (50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000)


class WalFile(NamedTuple):
    shard: int
    number: int
    path: Path


class Counters:
    """What the shards did since start; read by metrics."""

    def __init__(self) -> None:
        self.frames = 0
        self.batches = 0
        self.fsyncs = 0
        self.fsync_us_total = 0
        self.bytes_written = 0
        self.rotations = 0
        self.read_only = False
        self.fsync_buckets = [0] * (len(FSYNC_BUCKETS_US) + 1)

    def count_sync(self, elapsed_us: int) -> None:
        self.fsyncs += 1
        self.fsync_us_total += elapsed_us
        place = sum(elapsed_us > bound for bound in FSYNC_BUCKETS_US)
        self.fsync_buckets[place] += 1


def file_header(number: int, base_lsn: int) -> bytes:
    head = FILE_HEADER.pack(MAGIC, VERSION, number, base_lsn, 0)[:24]
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head))


def list_files(files: Files, root: Path) -> list[WalFile]:
    """Every WAL file on disk, by shard and number, whatever the present shard count."""
    found = []
    for name in files.list_directory(root):
        if not name.isdigit():
            continue
        for entry in files.list_directory(root / name):
            stem = entry.removesuffix(SUFFIX)
            if entry.endswith(SUFFIX) and stem.isdigit():
                found.append(WalFile(int(name), int(stem), root / name / entry))
    return sorted(found)


class Shard:
    """One directory of files, written by the engine thread, synced by its own thread."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        number: int,
        file_bytes: int,
        sync_interval_ms: int,
        counters: Counters,
        notify: Callable[[], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._number = number
        self._file_bytes = file_bytes
        self._interval_s = sync_interval_ms / 1000
        self._counters = counters
        self._notify = notify
        self._fd = -1
        self._position = 0
        self._capacity = 0
        self._path = directory
        self._filled: list[WalFile] = []
        self._rotated: list[int] = []
        self._wake = threading.Condition()
        self._written_lsn = 0
        self._urgent = False
        self._closing = False
        self.synced_lsn = 0
        self.failure: OSError | None = None
        files.make_directory(directory)
        self._thread = threading.Thread(target=self._sync_loop, daemon=True, name="wal-sync")
        self._thread.start()

    def write(self, lsn: int, parts: list[bytes], *, urgent: bool) -> None:
        """Append one frame; `urgent` when a reply waits for its sync."""
        data = frame.build(lsn, parts)
        if self._position + len(data) > self._capacity:
            self._start_file(lsn, len(data))
        try:
            self._files.write_at(self._fd, data, self._position)
        except OSError:
            # Half a frame in the middle of a shard would read as corruption later.
            self._files.truncate(self._fd, self._position)
            self._capacity = self._position
            raise
        self._position += len(data)
        self._counters.frames += 1
        self._counters.bytes_written += len(data)
        with self._wake:
            idle = not self._behind()
            self._written_lsn = lsn
            if idle or (urgent and not self._urgent):
                self._urgent = self._urgent or urgent
                self._wake.notify()

    @property
    def written_lsn(self) -> int:
        """The lsn of the shard's last frame, synced or not."""
        return self._written_lsn

    def hurry(self) -> None:
        """Sync now what is written: a reply waits for it."""
        with self._wake:
            if self._behind() and not self._urgent:
                self._urgent = True
                self._wake.notify()

    def rotate(self) -> list[WalFile]:
        """Stop writing to the current file; return every file that no longer grows."""
        if self._position > FILE_HEADER.size:
            self._retire_current()
        filled, self._filled = self._filled, []
        return filled

    def close(self) -> None:
        """Sync what is written and stop the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _retire_current(self) -> None:
        """Leave the current file to the sync thread, which closes it once it is durable."""
        self._filled.append(WalFile(int(self._directory.name), self._number - 1, self._path))
        with self._wake:
            # Together, or the sync thread could sync the descriptor after closing it.
            self._rotated.append(self._fd)
            self._fd = -1
        self._position = self._capacity = 0

    def _start_file(self, lsn: int, needed: int) -> None:
        """Preallocate and open the next file, so that frames inside it cannot hit ENOSPC."""
        path = self._directory / f"{self._number:012d}{SUFFIX}"
        capacity = max(self._file_bytes, FILE_HEADER.size + needed)
        fd = self._files.open(path, create=True)
        try:
            self._files.allocate(fd, 0, capacity)
            self._files.write_at(fd, file_header(self._number, lsn), 0)
            self._files.sync_directory(self._directory)
        except OSError:
            self._files.close(fd)
            self._files.remove(path)
            raise
        if self._fd >= 0:
            self._retire_current()
        self._fd, self._path = fd, path
        self._position, self._capacity = FILE_HEADER.size, capacity
        self._number += 1
        self._counters.rotations += 1

    def _sync_loop(self) -> None:
        while True:
            with self._wake:
                self._await_work()
                if self._closing and not self._behind():
                    self._close_rotated()
                    return
                self._urgent = False
                target, fd = self._written_lsn, self._fd
                rotated, self._rotated = self._rotated, []
            if not self._sync(rotated, fd):
                return
            with self._wake:
                self.synced_lsn = target
            self._notify()

    def _await_work(self) -> None:
        """Return at once for a waiting reply, after the interval for any other frame."""
        while not (self._behind() or self._closing):
            self._wake.wait()
        if not (self._urgent or self._closing):
            self._wake.wait_for(lambda: self._urgent or self._closing, self._interval_s)

    def _behind(self) -> bool:
        return self._written_lsn > self.synced_lsn

    def _sync(self, rotated: list[int], fd: int) -> bool:
        started = time.perf_counter()
        try:
            for old in rotated:
                self._files.sync(old)
                self._files.close(old)
            if fd >= 0:
                self._files.sync(fd)
        except OSError as error:
            self.failure = error
            self._notify()
            return False
        self._counters.batches += 1
        self._counters.count_sync(int((time.perf_counter() - started) * 1e6))
        return True

    def _close_rotated(self) -> None:
        for fd in self._rotated:
            self._files.close(fd)
        self._rotated = []


class Wal:
    """All shards, and the one counter that orders their frames."""

    def __init__(
        self,
        files: Files,
        root: Path,
        *,
        shards: int,
        file_bytes: int,
        sync_interval_ms: int,
        first_lsn: int,
        notify: Callable[[], None],
    ) -> None:
        self._files = files
        self.counters = Counters()
        self.lsn = first_lsn
        existing = list_files(files, root)
        # New numbers follow every old one, so replay order by number is write order.
        number = max((file.number for file in existing), default=0) + 1
        self.shards = [
            Shard(
                files,
                root / str(index),
                number=number,
                file_bytes=file_bytes,
                sync_interval_ms=sync_interval_ms,
                counters=self.counters,
                notify=notify,
            )
            for index in range(shards)
        ]
        # The directories' own entries, or a power loss could take synced files with them.
        files.sync_directory(root)
        files.sync_directory(root.parent)
        self._retired = existing

    def shard_of(self, log_id: int) -> int:
        return log_id % len(self.shards)

    def write(self, shard: int, parts: list[bytes], *, urgent: bool) -> int:
        """Append a frame to a shard and return its lsn."""
        self.lsn += 1
        # Stays set when the write fails, until one succeeds.
        self.counters.read_only = True
        self.shards[shard].write(self.lsn, parts, urgent=urgent)
        self.counters.read_only = False
        return self.lsn

    def check(self) -> None:
        """Raise the error of a failed sync, if any shard had one."""
        for shard in self.shards:
            if shard.failure is not None:
                raise shard.failure

    def rotate(self) -> list[WalFile]:
        """Start new files everywhere; return every file that a checkpoint now replaces."""
        for shard in self.shards:
            self._retired.extend(shard.rotate())
        return list(self._retired)

    def forget(self, retired: list[WalFile]) -> None:
        """Note that `remove` has removed these files."""
        gone = set(retired)
        self._retired = [file for file in self._retired if file not in gone]

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


def remove(files: Files, retired: list[WalFile]) -> None:
    """Remove files whose content a durable checkpoint holds."""
    for file in retired:
        files.remove(file.path)

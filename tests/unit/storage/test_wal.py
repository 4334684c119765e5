"""The write-ahead log: rotation, group commit, and failures that surface."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.faulty import FaultyFiles
from topicsd.storage import replay, wal

FILE_BYTES = 4096


class Ring:
    """Counts what the sync threads report and lets a test wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 10), "the WAL did not get there"


class GatedFiles(FaultyFiles):
    """Syncs wait at a gate, so that a test decides when they happen."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.arrived = threading.Event()

    def sync(self, fd: int) -> None:
        self.arrived.set()
        assert self.gate.wait(10)
        super().sync(fd)


@pytest.fixture
def ring() -> Ring:
    return Ring()


@pytest.fixture
def open_wal(tmp_path: Path, ring: Ring) -> Iterator[Callable[..., wal.Wal]]:
    opened: list[wal.Wal] = []

    def build(files: FaultyFiles, shards: int = 1, interval_ms: int = 1) -> wal.Wal:
        log = wal.Wal(
            files,
            tmp_path / "wal",
            shards=shards,
            file_bytes=FILE_BYTES,
            sync_interval_ms=interval_ms,
            first_lsn=opened[-1].lsn if opened else 0,
            notify=ring,
        )
        opened.append(log)
        return log

    yield build
    for log in opened:
        log.close()


def _read(root: Path) -> tuple[list[tuple[int, bytes]], list[replay.Damage]]:
    reader = replay.WalReader(FaultyFiles(), root, lambda fraction: None)
    return [(found.lsn, bytes(found.body)) for found in reader], reader.damage


def test_frames_come_back_in_the_order_of_all_shards(
    tmp_path: Path, open_wal: Callable[..., wal.Wal]
) -> None:
    """One number orders the frames of every shard and file."""
    log = open_wal(FaultyFiles(), shards=3)
    for number in range(1, 40):
        assert log.write(number % 3, [b"%300d" % number], urgent=False) == number
    log.close()
    assert _read(tmp_path / "wal") == ([(n, b"%300d" % n) for n in range(1, 40)], [])


def test_a_full_file_is_followed_by_the_next(
    tmp_path: Path, open_wal: Callable[..., wal.Wal]
) -> None:
    """Frames do not cross files; one larger than a file gets a file of its size."""
    log = open_wal(FaultyFiles())
    for size in (3000, 3000, 9000, 10):
        log.write(0, [bytes(size)], urgent=False)
    assert log.counters.rotations == 4
    assert [file.number for file in wal.list_files(FaultyFiles(), tmp_path / "wal")] == [1, 2, 3, 4]
    assert [len(body) for _, body in _read(tmp_path / "wal")[0]] == [3000, 3000, 9000, 10]


def test_rotating_names_every_file_that_a_checkpoint_replaces(
    tmp_path: Path, open_wal: Callable[..., wal.Wal]
) -> None:
    """Old files, filled ones and the present ones; removing them leaves the new frames."""
    log = open_wal(FaultyFiles(), shards=2)
    log.write(0, [b"before"], urgent=False)
    log.close()
    log = open_wal(FaultyFiles(), shards=2)
    log.write(0, [bytes(4050)], urgent=False)
    log.write(0, [b"next"], urgent=False)
    log.write(1, [b"other"], urgent=False)
    retired = log.rotate()
    assert [(file.shard, file.number) for file in sorted(retired)] == [
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 2),
    ]
    log.write(1, [b"after"], urgent=False)
    wal.remove(FaultyFiles(), retired)
    log.forget(retired)
    assert [body for _, body in _read(tmp_path / "wal")[0]] == [b"after"]
    assert [file.number for file in log.rotate()] == [3]


def test_an_urgent_frame_is_synced_at_once(open_wal: Callable[..., wal.Wal], ring: Ring) -> None:
    """Somebody waits, so the interval does not matter."""
    log = open_wal(FaultyFiles(), interval_ms=60_000)
    lsn = log.write(0, [b"now"], urgent=True)
    ring.wait_until(lambda: log.shards[0].synced_lsn >= lsn)


def test_an_urgent_frame_takes_a_patient_one_along(
    open_wal: Callable[..., wal.Wal], ring: Ring
) -> None:
    """A frame that nobody waits for is covered by the next urgent one."""
    log = open_wal(FaultyFiles(), interval_ms=60_000)
    log.write(0, [b"later"], urgent=False)
    assert log.shards[0].synced_lsn == 0
    lsn = log.write(0, [b"now"], urgent=True)
    ring.wait_until(lambda: log.shards[0].synced_lsn == lsn)


def test_a_patient_frame_is_synced_after_the_interval(
    open_wal: Callable[..., wal.Wal], ring: Ring
) -> None:
    """Disk-class records reach the disk by themselves."""
    log = open_wal(FaultyFiles(), interval_ms=1)
    lsn = log.write(0, [b"later"], urgent=False)
    ring.wait_until(lambda: log.shards[0].synced_lsn == lsn)


def test_many_waiting_writes_share_one_sync(open_wal: Callable[..., wal.Wal], ring: Ring) -> None:
    """What gathers during one sync is covered by the next: that is the group commit."""
    files = GatedFiles()
    log = open_wal(files)
    log.write(0, [b"first"], urgent=True)
    assert files.arrived.wait(10)
    for _ in range(30):
        lsn = log.write(0, [b"more"], urgent=True)
    assert log.shards[0].written_lsn == lsn > log.shards[0].synced_lsn
    files.gate.set()
    ring.wait_until(lambda: log.shards[0].synced_lsn == lsn)
    assert files.count("sync") == 2
    assert log.counters.frames == 31 and sum(log.counters.fsync_buckets) == 2


def test_files_left_behind_are_synced_before_their_frames_count(
    open_wal: Callable[..., wal.Wal], ring: Ring
) -> None:
    """A rotation while a sync runs does not let a frame slip through."""
    files = GatedFiles()
    log = open_wal(files)
    log.write(0, [bytes(3000)], urgent=True)
    assert files.arrived.wait(10)
    log.write(0, [bytes(3000)], urgent=True)
    lsn = log.write(0, [bytes(3000)], urgent=True)
    files.gate.set()
    ring.wait_until(lambda: log.shards[0].synced_lsn == lsn)
    assert files.count("sync") == 4


def test_a_failed_sync_surfaces_and_is_final(open_wal: Callable[..., wal.Wal], ring: Ring) -> None:
    """A retry that succeeds would lie: the shard stays failed."""
    files = FaultyFiles()
    log = open_wal(files)
    files.refuse("sync", errno.EIO)
    log.write(0, [b"lost"], urgent=True)
    ring.wait_until(lambda: log.shards[0].failure is not None)
    files.allow()
    with pytest.raises(OSError, match="Input/output error"):
        log.check()
    assert log.shards[0].synced_lsn == 0


@pytest.mark.parametrize("call", ["create", "allocate", "sync_directory"])
def test_no_space_for_the_next_file_refuses_one_frame(
    tmp_path: Path, open_wal: Callable[..., wal.Wal], call: str
) -> None:
    """Nothing of it stays behind, and the next frame finds its way."""
    files = FaultyFiles()
    log = open_wal(files)
    files.refuse(call)
    with pytest.raises(OSError, match="No space left"):
        log.write(0, [b"refused"], urgent=False)
    files.allow()
    assert wal.list_files(files, tmp_path / "wal") == []
    log.write(0, [b"kept"], urgent=False)
    assert _read(tmp_path / "wal") == ([(2, b"kept")], [])


def test_a_frame_written_by_half_leaves_no_damage(
    tmp_path: Path, open_wal: Callable[..., wal.Wal]
) -> None:
    """Later frames follow in a new file, and replay has nothing to report."""
    files = FaultyFiles(torn=True)
    log = open_wal(files)
    log.write(0, [b"one"], urgent=False)
    files.refuse("write_at")
    with pytest.raises(OSError, match="No space left"):
        log.write(0, [b"two" * 100], urgent=False)
    files.allow()
    log.write(0, [b"three"], urgent=False)
    assert _read(tmp_path / "wal") == ([(1, b"one"), (3, b"three")], [])

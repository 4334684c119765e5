"""Reading the WAL back: a torn tail is cut off, a corrupt middle is set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.bytes import flip, overwrite
from topicsd.storage import frame, wal
from topicsd.storage.fs import Files
from topicsd.storage.replay import Damage, WalReader, check_file_header, set_aside


def _file(root: Path, number: int, *lsns: int, size: int = 4096) -> Path:
    """A preallocated WAL file of shard 0 with small frames."""
    path = root / "0" / f"{number:012d}.wal"
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = b"".join(frame.build(lsn, [b"frame %d" % lsn]) for lsn in lsns)
    path.write_bytes((wal.file_header(number, lsns[0] if lsns else 0) + frames).ljust(size, b"\0"))
    return path


def _read(root: Path) -> tuple[list[int], list[Damage]]:
    reader = WalReader(Files(), root, lambda fraction: None)
    return [found.lsn for found in reader], reader.damage


def test_an_empty_directory_has_no_frames(tmp_path: Path) -> None:
    """No directory, no files, no frames."""
    assert _read(tmp_path / "absent") == ([], [])


def test_preallocated_zeros_are_no_damage(tmp_path: Path) -> None:
    """A file ends where nothing was ever written, even right after its header."""
    _file(tmp_path, 1, 1, 2)
    _file(tmp_path, 2)
    (tmp_path / "0" / "000000000003.wal").write_bytes(b"")
    assert _read(tmp_path) == ([1, 2], [])


def test_a_bad_last_frame_is_a_torn_tail(tmp_path: Path) -> None:
    """Nothing follows it in its shard."""
    path = _file(tmp_path, 1, 1, 2, 3)
    flip(path, 32 + 2 * 32 + 26)
    lsns, (damage,) = _read(tmp_path)
    assert lsns == [1, 2]
    assert damage.torn and damage.position == 32 + 2 * 32


def test_a_bad_frame_before_another_is_corrupt(tmp_path: Path) -> None:
    """What follows in the same file is not dropped."""
    path = _file(tmp_path, 1, 1, 2, 3)
    flip(path, 32 + 32 + 26)
    lsns, (damage,) = _read(tmp_path)
    assert lsns == [1, 3]
    assert not damage.torn and (damage.position, damage.length) == (64, 32)


def test_a_bad_last_frame_of_an_older_file_is_corrupt(tmp_path: Path) -> None:
    """The shard goes on in a later file."""
    path = _file(tmp_path, 1, 1, 2)
    _file(tmp_path, 2, 3)
    flip(path, 32 + 32 + 26)
    lsns, (damage,) = _read(tmp_path)
    assert lsns == [1, 3] and not damage.torn


def test_frames_behind_a_damaged_file_header_are_read(tmp_path: Path) -> None:
    """The header is reported, the frames count."""
    flip(_file(tmp_path, 1, 1, 2), 9)
    lsns, (damage,) = _read(tmp_path)
    assert lsns == [1, 2] and damage.problem == "header checksum mismatch"


def test_a_magic_inside_a_payload_is_not_a_frame(tmp_path: Path) -> None:
    """Looking for the next frame skips what only begins like one."""
    path = _file(tmp_path, 1, 1, 2, 3)
    overwrite(path, 64 + 24, b"TWF1")
    assert _read(tmp_path)[0] == [1, 3]


@pytest.mark.parametrize(
    ("position", "problem"),
    [
        (0, "no WAL magic"),
        (4, "version 64 is not known"),
        (16, "header checksum mismatch"),
        (None, "carries the number 7"),
    ],
)
def test_a_file_header_is_asked_in_order(
    tmp_path: Path, position: int | None, problem: str
) -> None:
    """Magic, version, checksum, number."""
    data = bytearray(wal.file_header(7, 1))
    if position is not None:
        data[position] ^= 0x41
    assert check_file_header(memoryview(data), 8) == problem


def test_setting_a_torn_tail_aside_cuts_it_off(tmp_path: Path) -> None:
    """Afterwards the file is sound."""
    path = _file(tmp_path / "wal", 1, 1, 2)
    flip(path, 32 + 32 + 26)
    (damage,) = _read(tmp_path / "wal")[1]
    assert set_aside(Files(), damage, tmp_path / "kept") is None
    assert path.stat().st_size == 64
    assert _read(tmp_path / "wal") == ([1], [])


def test_setting_a_corrupt_file_aside_copies_it_once(tmp_path: Path) -> None:
    """The original stays as it is; doing it again changes nothing."""
    path = _file(tmp_path / "wal", 1, 1, 2)
    flip(path, 32 + 26)
    (damage,) = _read(tmp_path / "wal")[1]
    copies = [set_aside(Files(), damage, tmp_path / "kept") for _ in range(2)]
    assert copies[0] is not None and copies[0] == copies[1]
    assert copies[0].read_bytes() == path.read_bytes()


def test_progress_is_reported_on_the_way(tmp_path: Path) -> None:
    """Thousands of frames: the reader hears several rising fractions."""
    _file(tmp_path, 1, *range(1, 4000), size=1 << 18)
    heard: list[float] = []
    assert len(list(WalReader(Files(), tmp_path, heard.append))) == 3999
    assert heard == sorted(heard) and len(heard) == 3 and 0 < heard[0] < heard[-1] <= 1

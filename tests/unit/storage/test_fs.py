"""The file door: all of a promise, or an OSError."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from topicsd.storage import fs
from topicsd.storage.fs import DirectoryLocked, Files, is_full


@pytest.fixture
def files() -> Files:
    return Files()


def test_a_short_write_is_continued(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may take less than it is given."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    fd = files.open(tmp_path / "file", create=True)
    files.write_at(fd, b"0123456789", 2)
    files.close(fd)
    assert (tmp_path / "file").read_bytes() == b"\0\x000123456789"


def test_a_write_that_makes_no_progress_fails(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than going round for ever."""
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    fd = files.open(tmp_path / "file", create=True)
    with pytest.raises(OSError, match="no progress"):
        files.write_at(fd, b"0123", 0)
    files.close(fd)


def test_opening_creates_only_when_asked_to(files: Files, tmp_path: Path) -> None:
    """Data is for its owner alone."""
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "file")
    files.close(files.open(tmp_path / "file", create=True))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_whole_file_is_replaced_or_left(files: Files, tmp_path: Path) -> None:
    """A longer old content leaves no trace, and neither does the temporary file."""
    path = tmp_path / "file"
    files.write_whole(path, b"a longer content")
    files.write_whole(path, b"short")
    assert path.read_bytes() == b"short"
    assert files.list_directory(tmp_path) == ["file"]


def test_removals_can_be_repeated(files: Files, tmp_path: Path) -> None:
    """Absence is what they want."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    for _ in range(2):
        files.remove(tmp_path / "absent")
        files.remove_directory(tmp_path / "absent")
        files.remove_tree(tmp_path / "a")
    assert tmp_path.exists() and files.list_directory(tmp_path) == []
    assert files.list_directory(tmp_path / "absent") == []


def test_a_lock_is_held_once_and_names_its_holder(files: Files, tmp_path: Path) -> None:
    """The second one is refused, until the first is closed."""
    held = files.lock(tmp_path / "lock")
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        files.lock(tmp_path / "lock")
    files.close(held)
    files.close(files.lock(tmp_path / "lock"))


def test_maps_show_the_file(files: Files, tmp_path: Path) -> None:
    """A shared map writes through; a length of 0 maps whatever there is."""
    fd = files.open(tmp_path / "file", create=True)
    files.allocate(fd, 0, 4096)
    shared = files.map(fd, 4096, write=True)
    shared[:3] = b"abc"
    files.flush(shared)
    seen = files.map(fd, 0)
    assert (len(seen), seen[:3], files.read_at(fd, 3, 0)) == (4096, b"abc", b"abc")
    files.sync_volume(fd)
    files.close(fd)


def test_a_kernel_without_a_boot_id_has_none(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then two boots look the same, which is the best that can be said."""
    assert files.boot_id() == files.boot_id() != ""
    monkeypatch.setattr(fs, "BOOT_ID", tmp_path / "absent")
    assert files.boot_id() == ""


@pytest.mark.parametrize(
    ("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_full_is_told_from_broken(number: int, full: bool) -> None:
    """A quota counts as a full disk."""
    assert is_full(OSError(number, "")) is full

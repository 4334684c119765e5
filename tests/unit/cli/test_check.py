"""`topicsd check`: exit codes and the lines people read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import topicsd.check
from topicsd.cli.main import run
from topicsd.storage.fs import Files


class Damage(NamedTuple):
    file: str
    position: int
    message: str


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that finds one problem."""

    def find(path: Path, report: Callable[[str], None], cold_dir: Path | None) -> list[Damage]:
        report(f"looked at {path.name}")
        return [Damage("wal/0/1.wal", 512, "checksum mismatch")]

    monkeypatch.setattr(topicsd.check, "check_data_dir", find)


def test_an_empty_directory_is_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing stored, nothing wrong, nothing left behind."""
    assert run(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "clean"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("damaged")
def test_a_problem_is_named_by_file_and_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was checked goes to stdout, problems to stderr, exit code 1."""
    assert run(["check", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [f"looked at {tmp_path.name}", "1 problem"]
    assert captured.err == "wal/0/1.wal:512: checksum mismatch\n"


def test_a_missing_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2: there was nothing to check."""
    assert run(["check", str(tmp_path / "absent")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running server's half-written state is not damage."""
    files = Files()
    held = files.lock(tmp_path / "lock")
    try:
        assert run(["check", str(tmp_path)]) == 2
    finally:
        files.close(held)
    assert "is in use by process" in capsys.readouterr().err

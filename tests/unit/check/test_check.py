"""The check: silent about sound directories, whatever state they are in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.driver import Driver, fast_directory, problems, small_settings
from topicsd.check import check_data_dir
from topicsd.model.commands import DeleteTopic
from topicsd.model.settings import Settings
from topicsd.storage.catalog import CatalogWriter, SaveState
from topicsd.storage.paths import board, catalog


@pytest.fixture
def settings() -> Iterator[Settings]:
    with fast_directory() as home:
        yield small_settings(home)


def _fill(settings: Settings) -> Driver:
    driver = Driver(settings)
    for name, durability in (("a", "disk"), ("b", "fsync"), ("c", "ephemeral")):
        driver.put(name, durability=durability, cap_records=500)
        driver.append(name, b"1", b"2", tag="t", node="n", meta=b"{}")
    driver.checkpoint()
    for _ in range(10):
        driver.append("a", *[b"3"] * 90)
    driver.append("gone", *[b"4"] * 400)
    driver.run(DeleteTopic("gone", False))
    return driver


def test_a_cleanly_stopped_directory_is_sound(settings: Settings) -> None:
    """And the report says what was looked at."""
    _fill(settings).stop()
    lines: list[str] = []
    assert check_data_dir(settings.data_dir, lines.append) == []
    assert lines[0] == "catalog: 3 logs"
    assert lines[-2:] == ["wal: 0 frames", "board: clean"]


def test_a_crashed_directory_is_sound(settings: Settings) -> None:
    """The WAL continues where the catalog ends; leftovers are mentioned, not blamed."""
    _fill(settings).abandon()
    lines: list[str] = []
    assert check_data_dir(settings.data_dir, lines.append) == []
    assert "board: not used, after a crash" in lines
    Driver(settings).abandon()
    assert problems(settings.data_dir) == []


def test_a_check_changes_nothing(settings: Settings) -> None:
    """Every file is as it was."""
    _fill(settings).abandon()

    def state() -> dict[str, bytes]:
        found = settings.data_dir.rglob("*")
        return {str(p): p.read_bytes() for p in found if p.is_file() and "catalog" not in p.name}

    before = state()
    problems(settings.data_dir)
    assert state() == before


def _spoil(settings: Settings, **changes: int) -> list[str]:
    """Stop cleanly, falsify the first log's state, and check."""
    _fill(settings).stop()
    writer = CatalogWriter(catalog(settings.data_dir))
    found = next(iter(writer.load_board()))
    writer.commit([SaveState([found.state._replace(**changes)])])
    writer.close()
    board(settings.data_dir).unlink()
    return problems(settings.data_dir)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 7}, "live records of"),
        ({"bytes": 7}, "live records of"),
        ({"earliest_seq": 404}, "499 live records"),
        ({"cap_floor": 900}, "involuntary floor 900 above"),
        ({"head_seq": 5}, "head 5"),
        ({"active_base": 2}, "a segment file is missing"),
    ],
)
def test_numbers_that_do_not_fit_are_reported(
    settings: Settings, changes: dict[str, int], message: str
) -> None:
    """The catalog is compared with what the segments hold."""
    found = _spoil(settings, **changes)
    assert any(message in line for line in found), found


def test_two_logs_in_one_block_are_reported(settings: Settings) -> None:
    """With the block's place in the pack file."""
    driver = Driver(settings)
    driver.append("a", b"1")
    driver.append("b", b"1")
    driver.stop()
    writer = CatalogWriter(catalog(settings.data_dir))
    first, second = (found.state for found in writer.load_board())
    writer.commit([SaveState([second._replace(location=first.location)])])
    writer.close()
    assert any("share a block" in line for line in problems(settings.data_dir))


def test_a_board_that_contradicts_the_catalog_is_reported(settings: Settings) -> None:
    """A clean board must show what the catalog knows."""
    _fill(settings).stop()
    writer = CatalogWriter(catalog(settings.data_dir))
    found = next(iter(writer.load_board()))
    writer.commit([SaveState([found.state._replace(head_seq=3)])])
    writer.close()
    path = board(settings.data_dir)
    assert any(line.startswith(f"{path}:") for line in problems(settings.data_dir))

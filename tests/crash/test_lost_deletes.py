"""Frames that rot around a delete: counts stay true, and loss is told past any delete."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bytes import flip, list_frames
from tests.faults.driver import Driver, append, fast_directory, small_settings
from tests.faults.dump import dump, open_reader, read_page
from topicsd.model.commands import DeleteRecords
from topicsd.model.match import Match
from topicsd.storage import frame


@pytest.fixture
def home() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("count", [10, 700])
def test_a_rotten_delete_frame_leaves_counts_that_agree_with_the_flags(
    home: Path, count: int
) -> None:
    """The process died, not the machine: the flag bytes of the delete are in the segments."""
    settings = small_settings(home, wal_shards=1)
    driver = Driver(settings)
    for start in range(0, count, 100):
        tags = [
            "even" if number % 2 == 0 else "odd" for number in range(start, min(start + 100, count))
        ]
        driver.run(*[append("topic", b"1", tag=tag) for tag in tags])
    driver.append("other", b"1", tag="even")
    driver.checkpoint()
    driver.run(DeleteRecords("topic", None, Match("even", False)))
    driver.append("other", b"2")
    before = dump(settings)
    assert before["topic"].count == count // 2
    driver.abandon()
    (damaged,) = [place for place in list_frames(settings.data_dir) if not place.first_seq]
    flip(damaged.path, damaged.start + frame.HEADER.size + 1)
    driver = Driver(settings)
    assert driver.summary.corrupt_frames == 1
    assert dump(settings) == before
    assert driver.engine.total_bytes == sum(topic.size for topic in before.values())
    driver.close()
    driver = Driver(settings)
    assert dump(settings) == before
    driver.close()


@pytest.mark.parametrize("by_tag", [True, False])
def test_a_delete_around_lost_records_does_not_hide_their_loss(home: Path, by_tag: bool) -> None:
    """A rotten append frame, then a delete of everything before and after it."""
    settings = small_settings(home, wal_shards=1)
    driver = Driver(settings)
    driver.checkpoint()
    for number in range(1, 7):
        driver.append("topic", b"%d" % number, b"%d" % number, tag="t")
    driver.append("topic", b"7", b"8", tag="last")
    driver.abandon()
    damaged = list_frames(settings.data_dir)[2]
    assert (damaged.first_seq, damaged.last_seq) == (5, 6)
    flip(damaged.path, damaged.start + 100)
    driver = Driver(settings)
    delete = DeleteRecords("topic", None, Match("t", False)) if by_tag else None
    driver.run(delete or DeleteRecords("topic", 13, None))
    for _ in range(2):
        found = dump(settings)["topic"]
        assert (found.earliest_seq, found.lost) == (13, [(5, 6, "lost")])
        assert found.records == {13: b"7", 14: b"8"}
        with open_reader(settings) as reader:
            told = read_page(reader, "topic", 5).tombstone
            assert told is not None and told[:3] == (6, 6, "lost")
            assert read_page(reader, "topic", 6).tombstone is None
        driver.close()
        driver = Driver(settings)
    driver.close()

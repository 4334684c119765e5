"""Recovery: what a start finds, and what it makes of it."""

from __future__ import annotations

import pytest

from tests.faults.driver import Driver, append, small_settings
from tests.faults.dump import dump
from tests.faults.faulty import FaultyFiles
from topicsd.engine.recover import RecoverySummary
from topicsd.model.commands import DeleteTopic, PutTopic
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig
from topicsd.storage.fs import DirectoryLocked


def test_an_empty_directory_becomes_ready(settings: Settings) -> None:
    """Nothing to replay, nothing lost."""
    driver = Driver(settings)
    assert driver.summary._replace(elapsed_ms=0) == RecoverySummary(False, 0, 0, 0, 0, 0, 0)
    assert driver.engine.board.state == "ready" and driver.engine.board.replay_progress == 1.0
    driver.close()


def test_a_second_engine_is_refused(settings: Settings) -> None:
    """The directory has one owner."""
    driver = Driver(settings)
    with pytest.raises(DirectoryLocked, match="in use by process"):
        Driver(settings)
    driver.append("topic", b"1")
    driver.close()


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_the_number_of_shards_may_change(settings: Settings, shards: int) -> None:
    """Every file on disk is replayed, whatever the present number."""
    home = settings.data_dir.parent
    driver = Driver(small_settings(home, wal_shards=3))
    for turn in range(3):
        driver.run(*[append(f"topic{number}", b"%d" % turn) for number in range(7)])
    seen = dump(settings)
    driver.abandon()
    driver = Driver(small_settings(home, wal_shards=shards))
    assert dump(settings) == seen
    driver.append("topic3", b"9")
    driver.abandon()
    driver = Driver(small_settings(home, wal_shards=2))
    assert dump(settings)["topic3"].records[4] == b"9"
    driver.close()


def test_limits_may_change(settings: Settings) -> None:
    """Segments written under other limits are read and continued."""
    home = settings.data_dir.parent
    driver = Driver(small_settings(home, segment_max_events=300))
    for _ in range(10):
        driver.append("topic", *[b"1"] * 70)
    driver.abandon()
    driver = Driver(small_settings(home, segment_max_events=10_000, wal_file_bytes=1 << 20))
    driver.append("topic", *[b"2"] * 700)
    assert len(dump(settings)["topic"].records) == 1400
    driver.close()


def test_frames_of_topics_that_are_gone_are_skipped(settings: Settings) -> None:
    """A deleted topic's name is free, its id is not used again."""
    driver = Driver(settings)
    driver.checkpoint()
    driver.append("gone", b"1")
    log = driver.engine.registry.find("gone")
    assert log is not None
    driver.run(DeleteTopic("gone", False))
    driver.abandon()
    driver = Driver(settings)
    assert driver.summary.frames == 1 and driver.summary.records == 0
    assert dump(settings) == {}
    driver.append("gone", b"2")
    again = driver.engine.registry.find("gone")
    assert again is not None and again.id > log.id
    assert dump(settings)["gone"].records == {1: b"2"}
    driver.close()


def test_many_small_frames_are_written_as_few_large_ones(settings: Settings) -> None:
    """A thousand frames of one topic replay in a handful of writes."""
    driver = Driver(settings)
    driver.checkpoint()
    for number in range(1000):
        driver.append("topic", b"%d" % number)
    seen = dump(settings)
    driver.abandon()
    files = FaultyFiles()
    driver = Driver(settings, files)
    assert driver.summary.records == 1000
    assert files.count("write_at") < 20
    assert dump(settings) == seen
    driver.close()


def test_recency_survives(settings: Settings) -> None:
    """A read leaves its mark on the board only, and a crash does not wipe it."""
    driver = Driver(settings)
    driver.append("topic", b"1")
    log = driver.engine.registry.find("topic")
    assert log is not None
    driver.engine.board.set_last_read(log.row, 777)
    driver.abandon()
    driver = Driver(settings)
    assert driver.engine.board.last_read(log.row) == 777
    driver.close()
    driver = Driver(settings)
    assert driver.engine.board.last_read(log.row) == 777
    driver.close()


def test_a_batch_over_many_topics_survives_whole(settings: Settings) -> None:
    """Different classes, new topics and old ones, in one apply."""
    driver = Driver(settings)
    puts = [PutTopic(f"old{n}", TopicConfig(), True) for n in range(5)]
    driver.run(*puts)
    driver.run(
        *[append(f"old{number}", *[b"1"] * (number * 60 + 1)) for number in range(5)],
        *[append(f"new{number}", b"2", idempotency_key="k") for number in range(5)],
    )
    seen = dump(settings)
    assert len(seen) == 10
    driver.abandon()
    driver = Driver(settings)
    assert dump(settings) == seen
    driver.close()

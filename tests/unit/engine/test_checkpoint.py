"""Checkpoints: when they happen, and what they leave behind."""

from __future__ import annotations

import pytest

from tests.faults.driver import Driver, append, small_settings
from tests.faults.dump import dump
from tests.faults.faulty import FaultyFiles
from topicsd.model.commands import DeleteTopic
from topicsd.model.settings import Settings
from topicsd.storage import paths, wal
from topicsd.storage.fs import Files


def _wal_files(driver: Driver) -> int:
    return len(wal.list_files(Files(), paths.wal(driver.settings.data_dir)))


def test_a_checkpoint_replaces_the_wal(driver: Driver) -> None:
    """Afterwards the catalog knows everything and no WAL file is left."""
    for number in range(5):
        driver.append(f"topic{number}", *[b"1"] * 10)
    assert _wal_files(driver) == 2
    driver.checkpoint()
    assert _wal_files(driver) == 0
    driver.append("topic0", b"2")
    assert _wal_files(driver) == 1


def test_sealed_segments_are_in_the_catalog(driver: Driver) -> None:
    """With their counts, sums and times, for people and for later tools."""
    driver.append("topic", *[b'"12"'] * 300)
    driver.clock.advance(5)
    driver.append("topic", b"1")
    driver.checkpoint()
    log = driver.engine.registry.find("topic")
    assert log is not None
    (segment,) = driver.engine.catalog.list_segments(log.id)
    assert (segment.base_seq, segment.rows, segment.live_rows) == (1, 300, 300)
    assert (segment.payload_bytes, segment.state) == (1200, "sealed")
    assert segment.first_ts == segment.last_ts == driver.clock.now - 5


def test_time_makes_a_checkpoint_due(settings: Settings) -> None:
    """Counted from the start, and only while there is something to save."""
    driver = Driver(small_settings(settings.data_dir.parent, checkpoint_interval_ms=1000))
    driver.checkpoint()
    driver.close()
    driver = Driver(driver.settings)
    assert driver.engine.checkpoints.started == 0
    driver.clock.advance(5000)
    driver.engine.tick()
    assert driver.engine.checkpoints.started == 0
    driver.append("topic", b"1")
    assert driver.engine.checkpoints.started == 1
    driver.checkpoint()
    driver.append("topic", b"1")
    before = driver.engine.checkpoints.started
    driver.clock.advance(900)
    driver.engine.tick()
    assert driver.engine.checkpoints.started == before
    driver.clock.advance(200)
    driver.engine.tick()
    assert driver.engine.checkpoints.started == before + 1
    driver.close()


def test_bytes_make_a_checkpoint_due(settings: Settings) -> None:
    """Counted from the last one."""
    driver = Driver(small_settings(settings.data_dir.parent, checkpoint_bytes=1 << 16))
    driver.checkpoint()
    before = driver.engine.checkpoints.started
    driver.append("topic", *[b'"%s"' % (b"x" * 1000)] * 70)
    driver.engine.tick()
    assert driver.engine.checkpoints.started == before + 1
    driver.checkpoint()
    driver.close()


def test_a_failed_checkpoint_stops_the_engine(settings: Settings) -> None:
    """What it could not make durable may not be given up."""
    files = FaultyFiles()
    driver = Driver(settings, files)
    driver.append("topic", *[b"1"] * 400)
    driver.checkpoint()
    driver.append("topic", *[b"2"] * 100)
    files.refuse("sync_directory")
    with pytest.raises(OSError, match="No space left"):
        driver.checkpoint()
    driver.abandon()
    driver = Driver(settings)
    assert len(dump(settings)["topic"].records) == 500
    driver.close()


def test_a_clean_stop_leaves_nothing_to_replay(settings: Settings) -> None:
    """The next start uses the board as it is."""
    driver = Driver(settings)
    driver.append("topic", b"1")
    seen = dump(settings)
    driver.close()
    driver = Driver(settings)
    assert driver.summary.clean and driver.summary.frames == 0
    assert dump(settings) == seen
    driver.close()


def test_a_clean_stop_with_a_checkpoint_under_way_waits_for_it(settings: Settings) -> None:
    """Both are finished."""
    driver = Driver(settings)
    driver.append("topic", b"1")
    driver.engine.checkpoints.ask()
    driver.engine.tick()
    driver.append("topic", b"2")
    driver.close()
    driver = Driver(settings)
    assert driver.summary.clean
    assert len(dump(settings)["topic"].records) == 2
    driver.close()


def test_blocks_of_deleted_topics_are_used_again(driver: Driver) -> None:
    """After the checkpoint that forgot them, and by one log each."""
    for turn in range(5):
        names = [f"t{turn}.{number}" for number in range(20)]
        driver.run(*[append(name, b'"%s"' % name.encode()) for name in names])
        seen = dump(driver.settings)
        assert [seen[name].records[1] for name in names] == [b'"%s"' % n.encode() for n in names]
        driver.run(*[DeleteTopic(name, False) for name in names])
        driver.checkpoint()
    pack = driver.engine.volumes[False].packs._packs[1]
    assert pack._fresh <= 40

"""Waiting until what is in a topic is synced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.driver import Driver, append, small_settings
from tests.faults.faulty import FaultyFiles
from tests.faults.tracked import TrackedFiles
from topicsd.model.commands import AwaitSynced, DeleteTopic, PutTopic, Synced, WriteMany
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig
from topicsd.storage import paths

# Nobody syncs by itself for the length of a test.
NEVER_MS = 60_000


@pytest.fixture
def driver(settings: Settings) -> Iterator[Driver]:
    made = Driver(small_settings(settings.data_dir.parent, wal_sync_interval_ms=NEVER_MS))
    yield made
    made.close()


def behind(driver: Driver) -> list[bool]:
    return [shard.synced_lsn < shard.written_lsn for shard in driver.engine.wal.shards]


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_the_wait_brings_the_sync(driver: Driver, durability: str) -> None:
    """Whatever the class, within no time, and the answer says up to where."""
    driver.put("topic", durability=durability)
    for _ in range(3):
        driver.append("topic", b"1")
    log = driver.engine.registry.find("topic")
    assert log is not None
    assert driver.run(AwaitSynced("topic")) == [Synced(log.epoch, 3)]
    assert not any(behind(driver))
    # With nothing left to sync it is answered at once.
    assert driver.engine.apply([(0, AwaitSynced("topic"))]) == [(0, Synced(log.epoch, 3))]


def test_it_waits_for_what_came_before_it_in_its_batch(driver: Driver) -> None:
    """And not for what comes after."""
    driver.put("topic", durability="memory")
    replies = driver.run(append("topic", b"1", b"2"), AwaitSynced("topic"), append("topic", b"3"))
    assert isinstance(replies[1], Synced) and replies[1].head_seq == 2


def test_it_is_not_answered_before_the_sync(settings: Settings, files: FaultyFiles) -> None:
    """A sync that fails ends the engine, and nobody is told that it happened."""
    chosen = small_settings(settings.data_dir.parent, wal_sync_interval_ms=NEVER_MS)
    driver = Driver(chosen, files)
    driver.put("topic", durability="memory")
    driver.append("topic", b"1")
    files.refuse("sync")
    with pytest.raises(OSError):
        driver.run(AwaitSynced("topic"))
    driver.abandon()


def test_an_ephemeral_topic_has_nothing_to_sync(driver: Driver) -> None:
    """It is answered at once, also while others are behind."""
    driver.put("ephemeral", durability="ephemeral")
    driver.put("memory", durability="memory")
    driver.append("ephemeral", b"1")
    driver.append("memory", b"1")
    ((_, reply),) = driver.engine.apply([(0, AwaitSynced("ephemeral"))])
    assert isinstance(reply, Synced) and reply.head_seq == 1
    assert any(behind(driver))


def test_a_topic_that_is_not_there_cannot_be_waited_for(driver: Driver) -> None:
    """Neither before its creation nor after its deletion."""
    assert driver.refuse(AwaitSynced("topic")).code == "topic_not_found"
    driver.append("topic", b"1")
    driver.run(DeleteTopic("topic", False))
    assert driver.refuse(AwaitSynced("topic")).code == "topic_not_found"


def test_a_new_topic_is_waited_for_until_the_catalog_has_it(driver: Driver) -> None:
    """Records of a topic that a crash would take are not safe."""
    engine = driver.engine
    with engine.clerk._wake:
        put = PutTopic("topic", TopicConfig(), True)
        assert engine.apply([(0, put), (1, AwaitSynced("topic"))]) == []
    (reply,) = driver.run(AwaitSynced("topic"))
    assert isinstance(reply, Synced) and reply.head_seq == 0


def test_a_write_to_several_topics_is_synced_where_it_is(driver: Driver) -> None:
    """Its frame is in one shard, whichever topic is asked about."""
    for name in ("a", "b", "c"):
        driver.put(name, durability="memory")
    for name in ("a", "b", "c"):
        driver.run(WriteMany([append(each, b"1") for each in ("a", "b", "c")]))
        assert any(behind(driver))
        driver.run(AwaitSynced(name))
        assert not any(behind(driver))


class NotingFiles(TrackedFiles):
    """Remembers which files were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: set[Path] = set()

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.synced.add(self._open[fd])


def test_what_recovery_replayed_is_synced(settings: Settings) -> None:
    """A killed engine's last frames were in the page cache only, perhaps."""
    driver = Driver(settings)
    driver.put("topic", durability="memory")
    driver.append("topic", b"1")
    driver.abandon()
    wal_files = set(paths.wal(settings.data_dir).rglob("*.wal"))
    files = NotingFiles()
    driver = Driver(settings, files)
    assert wal_files and wal_files <= files.synced
    driver.close()

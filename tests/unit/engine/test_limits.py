"""A change of limits: what the old and the new ones took stays gone, whatever happens next."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.faults.driver import Driver, append
from tests.faults.dump import Seen, dump
from tests.faults.faulty import FaultyFiles
from topicsd.model.commands import Command, DeleteRecords, DeleteTopic, PutTopic, TopicPut
from topicsd.model.match import Match
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig

TTL_MS = 1000


def _put(**config: Any) -> PutTopic:
    return PutTopic("topic", TopicConfig(**config), True)


def _seen(driver: Driver) -> Seen:
    return dump(driver.settings, driver.clock)["topic"]


def _write(driver: Driver, count: int) -> None:
    driver.append("topic", *[b'"%d"' % number for number in range(count)], tag="t")


def _crash(driver: Driver) -> Driver:
    driver.abandon()
    return Driver(driver.settings, clock=driver.clock)


def _expect_after_crashes(driver: Driver, expected: Seen) -> None:
    """Through a crash, a crash after a recovery, and a checkpoint with a crash behind it."""
    for _ in range(2):
        driver = _crash(driver)
        assert _seen(driver) == expected
        assert driver.engine.total_bytes == expected.size
    driver.checkpoint()
    driver = _crash(driver)
    assert _seen(driver) == expected
    driver.close()


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("limits", [{"cap_records": 3}, {"cap_bytes": 10}])
@pytest.mark.parametrize("count", [10, 700])
def test_what_a_tightened_cap_evicts_does_not_come_back(
    settings: Settings, durability: str, limits: dict[str, int], count: int
) -> None:
    """Also when the WAL says nothing else of the topic since the checkpoint."""
    driver = Driver(settings)
    driver.run(_put(durability=durability))
    _write(driver, count)
    driver.checkpoint()
    driver.run(_put(durability=durability, **limits))
    seen = _seen(driver)
    assert 0 < seen.count <= 3 and seen.lost == [(1, seen.earliest_seq - 1, "cap")]
    _expect_after_crashes(driver, seen)


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize(
    "loosened", [{}, {"cap_records": 8}, {"cap_records": 3, "discard": "reject"}]
)
def test_what_a_cap_evicted_stays_gone_when_it_is_loosened(
    settings: Settings, checkpoint: bool, loosened: dict[str, Any]
) -> None:
    """Whether an append or a change of the cap evicted it."""
    driver = Driver(settings)
    driver.run(_put(cap_records=5))
    _write(driver, 10)
    if checkpoint:
        driver.checkpoint()
    driver.run(_put(cap_records=3))
    driver.run(_put(**loosened))
    seen = _seen(driver)
    assert list(seen.records) == [8, 9, 10]
    _expect_after_crashes(driver, seen)


def test_a_cap_that_evicted_on_append_may_be_lifted(settings: Settings) -> None:
    """The change itself moves no floor; it makes the floor impossible to find again."""
    driver = Driver(settings)
    driver.run(_put(cap_records=3))
    _write(driver, 10)
    driver.run(_put())
    _write(driver, 2)
    seen = _seen(driver)
    assert list(seen.records) == [8, 9, 10, 11, 12]
    _expect_after_crashes(driver, seen)


NOTICED: list[list[Command]] = [
    [],
    [DeleteRecords("topic", None, Match("none", False))],
    [DeleteTopic("topic", True)],
    [append("topic", *[b"1"] * 100)],
]


@pytest.mark.parametrize("noticing", NOTICED, ids=["nobody", "delete", "if_empty", "append"])
@pytest.mark.parametrize("crash_between", [True, False])
def test_what_expired_stays_gone_when_the_ttl_is_loosened(
    settings: Settings, noticing: list[Command], crash_between: bool
) -> None:
    """Whoever noticed the expiry first, and although nobody but the clock knew of it."""
    driver = Driver(settings)
    limits = {"cap_records": 50, "discard": "reject"}
    driver.run(_put(ttl_ms=TTL_MS, **limits))
    _write(driver, 10)
    driver.clock.advance(TTL_MS + 1)
    _write(driver, 1)
    driver.clock.advance(TTL_MS)
    driver.run(*noticing)
    if crash_between:
        driver = _crash(driver)
    driver.run(_put(**limits))
    seen = _seen(driver)
    assert list(seen.records) == [11] and seen.lost == [(1, 10, "ttl")]
    _expect_after_crashes(driver, seen)


def test_deletes_and_changed_limits_replay_in_their_order(settings: Settings) -> None:
    """Deleted records do not count for a cap, before and after the change."""
    driver = Driver(settings)
    driver.put("topic")
    for tag in ("a", "b") * 5:
        driver.append("topic", b"1", tag=tag)
    driver.run(DeleteRecords("topic", None, Match("a", False)))
    driver.run(_put(cap_records=3))
    driver.run(DeleteRecords("topic", 7, None))
    driver.run(_put())
    seen = _seen(driver)
    assert list(seen.records) == [8, 10] and seen.lost == [(1, 7, "cap")]
    _expect_after_crashes(driver, seen)


def test_the_reply_of_an_fsync_topic_waits_for_its_floors(driver: Driver) -> None:
    """And so does that of somebody who repeats the change."""
    driver.run(_put(durability="fsync"))
    _write(driver, 5)
    engine = driver.engine
    log = engine.registry.find("topic")
    assert log is not None
    shard = engine.wal.shards[engine.wal.shard_of(log.id)]
    change = _put(durability="fsync", cap_records=2)
    with shard._wake:
        # The sync thread cannot report anything here.
        assert engine.apply([(0, change)]) == []
        engine.clerk.wait(engine.clerk._submitted)
        assert engine.apply([(1, change)]) == [] and engine.release() == []
    assert driver.run(change) == [TopicPut(False, change.config)]


@pytest.mark.parametrize("change", [{"priority": 5}, {"dedupe_node": False}, {"cap_records": 90}])
def test_a_change_that_evicts_nothing_writes_nothing(
    driver: Driver, change: dict[str, Any]
) -> None:
    """The WAL is for what replay could not find by itself."""
    driver.put("topic")
    _write(driver, 5)
    frames = driver.engine.wal.counters.frames
    driver.put("topic", **change)
    assert driver.engine.wal.counters.frames == frames


@pytest.mark.parametrize("count", [10, 700])
@pytest.mark.parametrize("expired", [True, False])
def test_a_full_disk_refuses_the_change_and_leaves_everything(
    driver: Driver, files: FaultyFiles, count: int, expired: bool
) -> None:
    """Floors, counts, files and the configuration."""
    driver.run(_put(ttl_ms=TTL_MS))
    _write(driver, count)
    if expired:
        driver.clock.advance(TTL_MS + 1)
        _write(driver, 5)
    driver.checkpoint()
    before, total = _seen(driver), driver.engine.total_bytes
    droppable = list(driver.engine.retention.droppable)
    files.refuse("create", errno.ENOSPC)
    assert driver.refuse(_put(cap_records=2)).code == "storage_full"
    files.allow()
    assert (_seen(driver), driver.engine.total_bytes) == (before, total)
    assert driver.engine.retention.droppable == droppable
    assert driver.put("topic", ttl_ms=TTL_MS) == TopicPut(False, TopicConfig(ttl_ms=TTL_MS))
    driver.put("topic", cap_records=2)
    assert _seen(driver).count == 2


def test_expiry_noticed_by_a_refused_write_is_subtracted_once(driver: Driver) -> None:
    """Also when the topic is forgotten and loaded again in between."""
    driver.put("topic", ttl_ms=TTL_MS, cap_records=4, discard="reject")
    _write(driver, 3)
    driver.clock.advance(TTL_MS + 1)
    for command in (append("topic", *[b"1"] * 5), DeleteTopic("other", True)):
        driver.run(command)
        driver.engine.registry._by_name.clear()
    driver.append("topic", b"1")
    assert driver.engine.total_bytes == _seen(driver).size == 1

"""Power loss: unsynced bytes are gone, and every class keeps exactly its promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.driver import Driver, fast_directory, small_settings
from tests.faults.dump import dump
from tests.faults.lossy import LossyFiles
from topicsd.engine.commit import CEILING_STEP
from topicsd.model.commands import AwaitSynced, Synced
from topicsd.model.settings import Settings
from topicsd.storage import paths


@pytest.fixture
def home() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


def _settings(home: Path) -> Settings:
    """Frames that nobody waits for stay unsynced for the length of a test."""
    return small_settings(home, wal_sync_interval_ms=60_000, wal_shards=1)


def _lose_power(driver: Driver, *, board: str) -> None:
    """The board's pages may or may not have reached the disk."""
    files = driver.files
    assert isinstance(files, LossyFiles)
    files.crash()
    driver.abandon()
    if board == "gone":
        paths.board(driver.settings.data_dir).unlink()


def _write(driver: Driver, topic: str, numbers: range) -> dict[int, bytes]:
    """One append a record; returns what was acknowledged."""
    replies = {number: driver.append(topic, b"%d" % number) for number in numbers}
    return {reply.first_seq: b"%d" % number for number, reply in replies.items()}


@pytest.mark.parametrize("board", ["kept", "gone"])
def test_every_acknowledged_fsync_record_survives(home: Path, board: str) -> None:
    """No fsync-class record is lost, with and without a checkpoint in between."""
    driver = Driver(_settings(home), LossyFiles())
    driver.put("topic", durability="fsync")
    kept = _write(driver, "topic", range(20))
    driver.checkpoint()
    kept |= _write(driver, "topic", range(20, 400, 7))
    _lose_power(driver, board=board)
    driver = Driver(_settings(home), LossyFiles("second boot"))
    seen = dump(_settings(home))["topic"]
    assert seen.records == kept and seen.lost == []
    assert driver.append("topic", b"1").first_seq == len(kept) + 1
    driver.close()


@pytest.mark.parametrize("board", ["kept", "gone"])
def test_a_disk_class_topic_loses_a_tail_and_says_so(home: Path, board: str) -> None:
    """What is left is a prefix; the rest is a reported gap whose seqs are not reused."""
    driver = Driver(_settings(home), LossyFiles())
    kept = _write(driver, "topic", range(30))
    _lose_power(driver, board=board)
    driver = Driver(_settings(home), LossyFiles("second boot"))
    seen = dump(_settings(home))["topic"]
    assert 0 < len(seen.records) < len(kept)
    assert seen.records == {seq: kept[seq] for seq in range(1, len(seen.records) + 1)}
    assert seen.head_seq >= max(kept)
    assert seen.lost == [(len(seen.records) + 1, seen.head_seq, "lost")]
    assert driver.append("topic", b"1").first_seq == seen.head_seq + 1
    driver.close()
    assert dump(_settings(home))["topic"].lost == seen.lost


@pytest.mark.parametrize("board", ["kept", "gone"])
def test_a_disk_class_topic_never_runs_ahead_of_its_ceiling(home: Path, board: str) -> None:
    """Thousands of unsynced records, in batches that pass several ceilings."""
    driver = Driver(_settings(home), LossyFiles())
    head = 0
    for _ in range(6):
        head = driver.append("topic", *[b"1"] * (CEILING_STEP // 2)).last_seq
    _lose_power(driver, board=board)
    driver = Driver(_settings(home), LossyFiles("second boot"))
    assert driver.append("topic", b"1").first_seq > head
    driver.close()


def test_a_disk_class_topic_keeps_its_seqs_after_a_checkpoint(home: Path) -> None:
    """A checkpoint removes the frame that named the ceiling; the next append names another."""
    driver = Driver(_settings(home), LossyFiles())
    kept = _write(driver, "topic", range(5))
    driver.checkpoint()
    checkpointed = dict(kept)
    kept |= _write(driver, "topic", range(5, 10))
    _lose_power(driver, board="gone")
    driver = Driver(_settings(home), LossyFiles("second boot"))
    seen = dump(_settings(home))["topic"]
    assert checkpointed.items() <= seen.records.items() <= kept.items()
    assert driver.append("topic", b"1").first_seq > max(kept)
    driver.close()


def test_a_disk_class_topic_that_lost_nothing_has_no_gap(home: Path) -> None:
    """A clean stop before the power goes: there is nothing to report."""
    driver = Driver(_settings(home), LossyFiles())
    kept = _write(driver, "topic", range(10))
    driver.close()
    _lose_power(driver, board="gone")
    driver = Driver(_settings(home), LossyFiles("second boot"))
    assert dump(_settings(home))["topic"].records == kept
    assert driver.append("topic", b"1").first_seq == 11
    driver.close()


@pytest.mark.parametrize("durability", ["memory", "disk"])
@pytest.mark.parametrize("board", ["kept", "gone"])
def test_what_was_waited_for_survives(home: Path, board: str, durability: str) -> None:
    """Everything up to the head that `AwaitSynced` named, whatever the class."""
    driver = Driver(_settings(home), LossyFiles())
    driver.put("topic", durability=durability)
    driver.put("other", durability=durability)
    kept = _write(driver, "topic", range(10))
    _write(driver, "other", range(3))
    (synced,) = driver.run(AwaitSynced("topic"))
    assert isinstance(synced, Synced) and synced.head_seq == max(kept)
    later = _write(driver, "topic", range(10, 20))
    _lose_power(driver, board=board)
    driver = Driver(_settings(home), LossyFiles("second boot"))
    seen = dump(_settings(home))["topic"]
    assert kept.items() <= seen.records.items() <= (kept | later).items()
    assert not any(gap_from <= synced.head_seq for gap_from, *_ in seen.lost)
    driver.close()


@pytest.mark.parametrize("board", ["kept", "gone"])
def test_a_memory_class_topic_may_lose_its_tail_and_invents_nothing(home: Path, board: str) -> None:
    """What is left is a prefix of what was acknowledged."""
    driver = Driver(_settings(home), LossyFiles())
    driver.put("topic", durability="memory")
    kept = _write(driver, "topic", range(10))
    driver.checkpoint()
    later = _write(driver, "topic", range(10, 20))
    _lose_power(driver, board=board)
    driver = Driver(_settings(home), LossyFiles("second boot"))
    seen = dump(_settings(home))["topic"]
    assert kept.items() <= seen.records.items() <= (kept | later).items()
    driver.append("topic", b"1")
    driver.close()


def test_power_that_goes_twice_costs_no_seq(home: Path) -> None:
    """The gap of the first loss is still there after a loss right after recovery."""
    driver = Driver(_settings(home), LossyFiles())
    kept = _write(driver, "topic", range(30))
    _lose_power(driver, board="gone")
    driver = Driver(_settings(home), LossyFiles("second boot"))
    once = dump(_settings(home))
    _lose_power(driver, board="gone")
    driver = Driver(_settings(home), LossyFiles("third boot"))
    assert dump(_settings(home)) == once
    assert driver.append("topic", b"1").first_seq > max(kept)
    driver.close()


@pytest.mark.parametrize("board", ["kept", "gone"])
def test_many_topics_grow_between_checkpoints_and_survive(home: Path, board: str) -> None:
    """Blocks are reused and logs move while power is lost at the worst moment."""
    driver = Driver(_settings(home), LossyFiles())
    kept: dict[str, dict[int, bytes]] = {}
    for turn in range(4):
        for number in range(12):
            topic = f"topic{number}"
            if turn == 0:
                driver.put(topic, durability="fsync")
            count = 5 * (number + 1) * (turn + 1)
            reply = driver.append(topic, *[b'"%d/%d"' % (turn, number)] * count)
            kept.setdefault(topic, {}).update(
                dict.fromkeys(
                    range(reply.first_seq, reply.last_seq + 1), b'"%d/%d"' % (turn, number)
                )
            )
        if turn < 3:
            driver.checkpoint()
    _lose_power(driver, board=board)
    driver = Driver(_settings(home), LossyFiles("second boot"))
    assert {topic: seen.records for topic, seen in dump(_settings(home)).items()} == kept
    driver.close()

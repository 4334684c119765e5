"""Topics that move between disk and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.driver import Driver, append
from tests.faults.dump import Seen, dump
from topicsd.model.commands import Failed, PutTopic, TopicPut
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig


def _seen(settings: Settings) -> Seen:
    return dump(settings)["topic"]


def _files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*.dat"))


@pytest.mark.parametrize("count", [0, 5, 100, 300, 1000])
def test_records_move_with_their_topic(settings: Settings, count: int) -> None:
    """There and back, from blocks and from several segments."""
    driver = Driver(settings)
    driver.put("topic")
    for start in range(0, count, 100):
        payloads = [b'"%d"' % number for number in range(start, min(start + 100, count))]
        driver.append("topic", *payloads)
    before = _seen(settings)
    for durability in ("ephemeral", "disk", "ephemeral", "fsync"):
        driver.put("topic", durability=durability)
        assert _seen(settings) == before
    driver.append("topic", b'"more"')
    expected = {**before.records, count + 1: b'"more"'}
    driver.close()
    driver = Driver(settings)
    assert _seen(settings).records == expected
    driver.close()


def test_a_topic_that_left_the_disk_leaves_nothing_there(settings: Settings) -> None:
    """Not even after the next checkpoint."""
    driver = Driver(settings)
    driver.append("topic", *[b"1"] * 700)
    driver.put("topic", durability="ephemeral")
    driver.checkpoint()
    assert _files(settings.data_dir) == [] and len(_files(settings.ephemeral_dir)) == 1
    driver.close()
    assert _files(settings.ephemeral_dir) == []


@pytest.mark.parametrize("ending", ["close", "abandon"])
def test_an_ephemeral_topic_keeps_its_numbers(settings: Settings, ending: str) -> None:
    """Its records are gone, its seqs go on."""
    driver = Driver(settings)
    driver.put("topic", durability="ephemeral")
    driver.append("topic", b"1", b"2", b"3")
    getattr(driver, ending)()
    driver = Driver(settings)
    assert (_seen(settings).count, _seen(settings).lost) == (0, [(1, 3, "lost")])
    assert driver.append("topic", b"4").first_seq == 4
    assert _seen(settings).count == 1
    driver.close()


def test_a_disk_topic_that_became_ephemeral_is_empty_after_a_crash(settings: Settings) -> None:
    """Its frames are still in the WAL, its records are not coming back."""
    driver = Driver(settings)
    driver.append("topic", *[b"1"] * 5)
    driver.checkpoint()
    driver.append("topic", *[b"2"] * 3)
    driver.put("topic", durability="ephemeral")
    driver.append("topic", b"3")
    driver.abandon()
    driver = Driver(settings)
    assert (_seen(settings).count, _seen(settings).size, _seen(settings).head_seq) == (0, 0, 9)
    driver.append("topic", b"4")
    assert (_seen(settings).count, _seen(settings).size) == (1, 1)
    driver.close()


def test_a_move_waits_for_what_is_under_way(settings: Settings) -> None:
    """Records written in the same batch move too; a second move waits for the first."""
    driver = Driver(settings)
    driver.put("topic")
    ephemeral = PutTopic("topic", TopicConfig(durability="ephemeral"), True)
    disk = PutTopic("topic", TopicConfig(durability="disk"), True)
    _, moved, refused = driver.run(append("topic", b"1"), ephemeral, disk)
    assert moved == TopicPut(False, ephemeral.config)
    assert isinstance(refused, Failed) and refused.code == "throttled"
    assert _seen(settings).count == 1
    driver.run(disk)
    assert _seen(settings).count == 1
    driver.close()


def test_a_crash_right_after_the_move_to_disk_hides_nothing(settings: Settings) -> None:
    """What was ephemeral may be lost with the crash; then it is reported."""
    driver = Driver(settings)
    driver.put("topic", durability="ephemeral")
    driver.append("topic", b"1", b"2")
    driver.put("topic", durability="disk")
    driver.append("topic", b"3")
    driver.abandon()
    driver = Driver(settings)
    seen = _seen(settings)
    assert seen.records[3] == b"3" and seen.head_seq == 3
    assert seen.lost == ([] if len(seen.records) == 3 else [(1, 2, "lost")])
    driver.close()

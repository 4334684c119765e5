"""The cold tier (DESIGN 5.6): what moves, what a read sees, what a crash or a full disk leaves."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.faults.driver import Driver, append, fast_directory, small_settings
from tests.faults.dump import dump
from tests.faults.faulty import FaultyFiles
from topicsd.engine.tiering import RETRY_MS, Keep
from topicsd.model.commands import DeleteRecords, DeleteTopic, RecordsDeleted
from topicsd.model.match import Match
from topicsd.model.settings import Settings, SettingsError
from topicsd.storage import place

SEGMENT = 300
RECORDS = 5 * SEGMENT + 100


@pytest.fixture
def cold_settings() -> Iterator[Settings]:
    with fast_directory() as home:
        yield small_settings(home, cold_dir=home / "cold", hot_retain_segments=2)


class BrokenCold(FaultyFiles):
    """A cold directory that takes no file, as long as it is broken."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self.broken = True
        self._cold_error = error

    def rename(self, source: Path, target: Path) -> None:
        if self.broken and "cold" in target.parts:
            raise OSError(self._cold_error, "no")
        super().rename(source, target)


def fill(driver: Driver, topic: str = "topic") -> None:
    """Five sealed segments and a hundred records in the sixth; every tenth is tagged."""
    for first in range(0, RECORDS, 100):
        payloads = [b"%d" % number for number in range(first, first + 100)]
        driver.run(append(topic, *payloads[:90]), append(topic, *payloads[90:], tag=f"t-{first}"))
    driver.checkpoint()


def bases(driver: Driver, tier: int, topic: str = "topic") -> list[int]:
    """Segments that have their files under one root."""
    log = driver.engine.registry.find(topic)
    assert log is not None
    directory = place.log_directory(driver.engine.roots[tier], log.id)
    names = driver.files.list_directory(directory)
    found = {int(name.split(".")[0]) for name in names}
    for base in found:
        paths = place.segment_paths(driver.engine.roots[tier], log.id, base)
        assert all(path.exists() for path in paths if path.suffix != ".tag"), base
    return sorted(found)


def states(driver: Driver) -> list[tuple[int, str]]:
    log = driver.engine.registry.find("topic")
    assert log is not None
    segments = driver.engine.catalog.list_segments(log.id)
    return [(each.base_seq, each.state) for each in segments]


@pytest.mark.parametrize(
    ("keep", "sizes", "leaving"),
    [
        (Keep(2, 0), [9, 9, 9], 1),
        (Keep(4, 0), [9, 9, 9], 0),
        (Keep(0, 0), [9, 9, 9], 3),
        (Keep(2, 15), [9, 9, 9], 2),
        (Keep(2, 9), [9, 9, 9], 2),
        (Keep(2, 8), [9, 9, 9], 3),
        (Keep(2, 100), [9, 9, 9], 1),
        (Keep(1, 0), [], 0),
    ],
)
def test_the_stricter_limit_decides(keep: Keep, sizes: list[int], leaving: int) -> None:
    """TOPICS_HOT_RETAIN_SEGMENTS and _BYTES: the stricter wins; 0 bytes is no limit."""
    assert keep.split(sizes) == leaving


def test_older_sealed_segments_move_and_reads_see_no_difference(cold_settings: Settings) -> None:
    driver = Driver(cold_settings)
    fill(driver)
    seen = dump(cold_settings)
    driver.move()
    assert bases(driver, place.COLD) == [1, 301, 601]
    assert bases(driver, place.DISK) == [901, 1201, 1501]
    assert dump(cold_settings) == seen
    driver.checkpoint()
    assert states(driver)[:4] == [(1, "cold"), (301, "cold"), (601, "cold"), (901, "sealed")]
    driver.append("topic", b"2")
    driver.close()
    driver = Driver(cold_settings)
    assert len(dump(cold_settings)["topic"].records) == RECORDS + 1
    driver.close()


def test_nothing_moves_without_a_cold_directory(settings: Settings) -> None:
    """DESIGN 5.6: when no cold tier is configured, nothing relocates."""
    driver = Driver(settings)
    fill(driver)
    driver.move()
    assert len(bases(driver, place.DISK)) == 6
    driver.close()


def test_a_reader_with_an_old_list_finds_what_went_cold(cold_settings: Settings) -> None:
    driver = Driver(cold_settings)
    fill(driver)
    log = driver.engine.registry.find("topic")
    assert log is not None
    shelf = driver.engine.shelf
    listing = shelf.list_segments(log.id, log.shelf_generation, tier=place.DISK)
    driver.move()
    assert listing.bases[0] == 1 and listing.cold == frozenset()
    from topicsd.storage.shelf import SegmentKey

    shelf.forget()
    assert len(shelf.open(SegmentKey(place.DISK, log.id, 1)).rows) == SEGMENT
    driver.close()


def test_deletes_reach_cold_records(cold_settings: Settings) -> None:
    """By tag through the cold index, below a seq by dropping whole cold segments."""
    driver = Driver(cold_settings)
    fill(driver)
    driver.move()
    (reply,) = driver.run(DeleteRecords("topic", None, Match("t-100", False)))
    assert isinstance(reply, RecordsDeleted) and reply.deleted == 10
    seen = dump(cold_settings)
    assert len(seen["topic"].records) == RECORDS - 10
    driver.abandon()
    driver = Driver(cold_settings)
    assert dump(cold_settings) == seen
    driver.checkpoint()
    driver.run(DeleteRecords("topic", 700, None))
    driver.checkpoint()
    assert bases(driver, place.COLD) == [601]
    driver.close()


def test_a_delete_during_a_copy_is_not_lost(cold_settings: Settings) -> None:
    """The segment stays hot this time and is copied again with its flags."""
    driver = Driver(cold_settings)
    fill(driver)
    driver.engine.tick()
    move = driver.engine.tiering._move
    assert move is not None
    move.join()
    driver.run(DeleteRecords("topic", None, Match("t-400", False)))
    seen = dump(cold_settings)
    driver.engine.tick()
    assert dump(cold_settings) == seen
    driver.move()
    assert bases(driver, place.COLD) == [1, 301, 601]
    assert dump(cold_settings) == seen
    driver.close()


def test_a_deleted_topic_leaves_nothing_cold(cold_settings: Settings) -> None:
    """Whether it goes before, during or after a move."""
    for moment in ("before", "during", "after"):
        driver = Driver(cold_settings)
        fill(driver, moment)
        if moment == "during":
            driver.engine.tick()
            assert driver.engine.tiering._move is not None
        if moment == "after":
            driver.move()
        driver.run(DeleteTopic(moment, False))
        driver.move()
        driver.checkpoint()
        driver.checkpoint()
        root = driver.engine.roots[place.COLD]
        assert driver.files.list_directory(root) == []
        driver.close()


def test_a_topic_made_ephemeral_leaves_nothing_cold(cold_settings: Settings) -> None:
    driver = Driver(cold_settings)
    fill(driver)
    driver.move()
    seen = dump(cold_settings)["topic"].records
    driver.put("topic", durability="ephemeral")
    assert dump(cold_settings)["topic"].records == seen
    driver.checkpoint()
    assert driver.files.list_directory(driver.engine.roots[place.COLD]) == []
    driver.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_failing_cold_directory_costs_nothing(cold_settings: Settings, error: int) -> None:
    """Segments stay hot, writes go on, and the move is tried again later."""
    files = BrokenCold(error)
    driver = Driver(cold_settings, files)
    fill(driver)
    seen = dump(cold_settings)
    driver.move()
    assert dump(cold_settings) == seen and len(bases(driver, place.DISK)) == 6
    driver.append("topic", b"2")
    files.broken = False
    driver.move()
    assert bases(driver, place.COLD) == []
    driver.clock.advance(RETRY_MS + 1)
    driver.move()
    assert bases(driver, place.COLD) == [1, 301, 601]
    driver.close()


def test_every_file_operation_of_a_move_may_be_the_last(cold_settings: Settings) -> None:
    """Nothing is lost or seen twice, and the next start finishes what was begun."""
    home = cold_settings.data_dir.parent
    template = home.with_name(home.name + "-template")
    driver = Driver(cold_settings)
    fill(driver)
    seen = dump(cold_settings)
    driver.close()
    shutil.move(home, template)
    for calls in count(1):
        shutil.copytree(template, home)
        files = FaultyFiles()
        driver = Driver(cold_settings, files)
        files._fail_at = len(files.calls) + calls
        try:
            driver.move()
        except OSError:
            assert files.failed is not None
        failed = files.failed
        driver.abandon()
        driver = Driver(cold_settings)
        driver.checkpoint()
        assert dump(cold_settings) == seen, f"after call {calls}: {failed}"
        driver.move()
        assert bases(driver, place.COLD) == [1, 301, 601]
        assert bases(driver, place.DISK) == [901, 1201, 1501]
        driver.close()
        shutil.rmtree(home)
        if failed is None:
            break
    shutil.move(template, home)
    assert calls > 30


def test_a_start_without_its_cold_directory_is_refused(cold_settings: Settings) -> None:
    """Half of the records would be missing, silently."""
    home = cold_settings.data_dir.parent
    driver = Driver(cold_settings)
    fill(driver)
    driver.move()
    driver.checkpoint()
    driver.close()
    with pytest.raises(SettingsError, match="set TOPICS_COLD_DIR"):
        Driver(small_settings(home))
    cold = home / "cold"
    cold.rename(home / "elsewhere")
    with pytest.raises(SettingsError, match="mount it"):
        Driver(cold_settings)
    moved = small_settings(home, cold_dir=home / "elsewhere", hot_retain_segments=2)
    driver = Driver(moved)
    assert len(dump(moved)["topic"].records) == RECORDS
    driver.close()


def test_two_servers_may_share_a_cold_directory(cold_settings: Settings, tmp_path: Path) -> None:
    """Each has a directory of its own in it."""
    other = small_settings(tmp_path, cold_dir=cold_settings.cold_dir, hot_retain_segments=2)
    for each in (cold_settings, other):
        driver = Driver(each)
        fill(driver)
        driver.move()
        driver.close()
    assert cold_settings.cold_dir is not None
    assert len(list(cold_settings.cold_dir.iterdir())) == 2


def test_a_segment_without_live_records_is_dropped(cold_settings: Settings) -> None:
    """DESIGN 7.4, also between segments that stay, hot or cold."""
    driver = Driver(cold_settings)
    for number in range(6):
        driver.run(append("topic", *[b"1"] * SEGMENT, tag=f"t-{number}"))
    driver.checkpoint()
    driver.move()
    for number in (1, 3):
        driver.run(DeleteRecords("topic", None, Match(f"t-{number}", False)))
    seen = dump(cold_settings)
    assert len(seen["topic"].records) == 4 * SEGMENT
    driver.checkpoint()
    assert bases(driver, place.COLD) == [1, 601]
    assert bases(driver, place.DISK) == [1201, 1501]
    assert dump(cold_settings) == seen
    driver.abandon()
    driver = Driver(cold_settings)
    assert dump(cold_settings) == seen
    driver.append("topic", b"2")
    driver.close()

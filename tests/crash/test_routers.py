"""Crashes and power losses between a source, its copies and their cursor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.driver import Driver, fast_directory, problems, small_settings
from tests.faults.dump import Seen, dump
from tests.faults.faulty import FaultyFiles
from tests.faults.lossy import LossyFiles
from topicsd.model.commands import (
    AwaitSynced,
    DeleteRecords,
    DeleteTopic,
    Failed,
    GetRouter,
    PutTopic,
    RouterFound,
)
from topicsd.model.match import Match
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig
from topicsd.storage import paths

GUARANTEES = ("at_least_once", "exactly_once")


@pytest.fixture
def settings() -> Iterator[Settings]:
    with fast_directory() as home:
        yield small_settings(home)


def total(driver: Driver, router: str = "source->dest") -> int:
    reply = driver.run(GetRouter(router))[0]
    assert isinstance(reply, RouterFound)
    return reply.forwarded_total


def die_and_start(driver: Driver, boot: str = "") -> Driver:
    """What is written stays; with another boot only what is synced does."""
    files = driver.files
    if boot:
        assert isinstance(files, LossyFiles)
        files.crash()
    driver.abandon()
    return Driver(driver.settings, LossyFiles(boot) if boot else None, driver.clock)


def see(driver: Driver, topic: str) -> Seen:
    return dump(driver.settings, driver.clock)[topic]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_no_crash_moves_loses_or_repeats_a_copy(settings: Settings, guarantee: str) -> None:
    """Death after each number of steps, with a checkpoint and writes of its own in between."""
    for steps in range(8):
        driver = Driver(settings)
        source, dest = f"source{steps}", f"dest{steps}"
        driver.route(source, dest, guarantee=guarantee)
        for number in range(steps):
            driver.append(source, b"%d" % number)
            if number == steps // 2:
                driver.catch_up(dest)
                driver.checkpoint()
            if number % 2:
                driver.append(dest, b'"own %d"' % number)
        driver.engine.forward()
        shown = see(driver, dest)
        driver = die_and_start(driver)
        again = see(driver, dest)
        assert again.records == shown.records and again.lost == []
        assert driver.catch_up(dest)
        found = list(see(driver, dest).records.values())
        assert [each for each in found if not each.startswith(b'"')] == [
            b"%d" % number for number in range(steps)
        ]
        assert total(driver, f"{source}->{dest}") == steps
        driver.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_death_at_every_file_operation_of_a_step(settings: Settings, guarantee: str) -> None:
    """Between the bytes of a copy, its board row and the cursor: each copy is there once."""
    deaths = 0
    for number in range(12):
        files = FaultyFiles()
        driver = Driver(settings, files)
        driver.route("source", "dest", guarantee=guarantee)
        driver.append("source", b"%d" % number, b'"%s"' % (b"x" * 400 * number))
        assert not isinstance(driver.run(AwaitSynced("source"))[0], Failed)
        # The segment's files, its bytes, its row: whatever the step comes to first.
        files.fail_in(1 + number % 4)
        try:
            driver.engine.forward()
        except OSError:
            deaths += 1
        driver = die_and_start(driver)
        assert driver.catch_up("dest")
        found = [each for each in see(driver, "dest").records.values() if each[:1] != b'"']
        assert found == [b"%d" % each for each in range(number + 1)]
        assert total(driver) == 2 * (number + 1)
        driver.close()
    assert deaths > 4


def test_what_was_deleted_after_it_was_copied_is_copied_again(settings: Settings) -> None:
    """The flag bytes of later deletes are on disk already; they must not count earlier."""
    driver = Driver(settings)
    driver.route("source", "dest")
    driver.checkpoint()
    for number in range(6):
        driver.append("source", b"%d" % number, tag="odd" if number % 2 else "even")
    assert driver.catch_up("dest")
    driver.run(DeleteRecords("source", None, Match("odd", False)))
    driver.append("dest", b'"own"')
    driver.append("source", b"6", tag="odd")
    driver.run(DeleteRecords("source", 3, None))
    assert driver.catch_up("dest")
    driver.run(DeleteRecords("dest", None, Match("even", False)))
    shown = see(driver, "dest")
    assert shown.records == {2: b"1", 4: b"3", 6: b"5", 7: b'"own"', 8: b"6"}
    driver = die_and_start(driver)
    assert see(driver, "dest") == shown
    driver.close()


def test_what_was_deleted_before_it_was_copied_stays_away(settings: Settings) -> None:
    """By seq and by tag: neither is copied when copies are made again."""
    driver = Driver(settings)
    driver.put("dest", cap_records=1, discard="reject")
    driver.route("source", "dest")
    driver.checkpoint()
    for number in range(6):
        driver.append("source", b"%d" % number, tag="x" if number == 4 else "y")
    assert not driver.catch_up("dest")
    driver.run(DeleteRecords("source", 3, None))
    driver.run(DeleteRecords("source", None, Match("x", False)))
    driver.put("dest")
    assert driver.catch_up("dest")
    shown = see(driver, "dest")
    assert shown.records == {1: b"0", 2: b"2", 3: b"3", 4: b"5"}
    driver = die_and_start(driver)
    assert see(driver, "dest") == shown
    driver.close()


def test_a_loss_keeps_its_seq(settings: Settings) -> None:
    """A source_trim is where it was, and so are the copies around it."""
    driver = Driver(settings)
    driver.put("source", cap_records=2)
    driver.put("dest", cap_records=2, discard="reject")
    driver.route("source", "dest")
    driver.append("source", b"0", b"1")
    driver.checkpoint()
    assert driver.catch_up("dest")
    driver.append("source", *[b"%d" % number for number in range(2, 8)])
    driver.put("dest")
    assert driver.catch_up("dest")
    driver.append("dest", b'"own"')
    shown = see(driver, "dest")
    assert shown.records == {1: b"0", 2: b"1", 4: b"6", 5: b"7", 6: b'"own"'}
    assert shown.lost == [(3, 3, "source_trim")]
    driver = die_and_start(driver)
    assert see(driver, "dest") == shown
    driver = die_and_start(driver)
    assert see(driver, "dest") == shown
    driver.close()


def test_a_deleted_source_leaves_its_copies(settings: Settings) -> None:
    """The delete waits until a checkpoint has them."""
    driver = Driver(settings)
    driver.route("source", "dest")
    driver.append("source", b"1")
    assert driver.catch_up("dest")
    driver.run(DeleteTopic("source", False))
    driver = die_and_start(driver)
    assert see(driver, "dest").records == {1: b"1"}
    driver.close()


def test_a_source_that_becomes_ephemeral_leaves_its_copies(settings: Settings) -> None:
    """Its records leave the disk, from which copies would be made again."""
    driver = Driver(settings)
    driver.route("source", "dest")
    driver.append("source", b"1")
    assert driver.catch_up("dest")
    config = TopicConfig(durability="ephemeral")
    driver.run(PutTopic("source", config, False))
    driver.append("source", b"2")
    assert driver.catch_up("dest")
    driver = die_and_start(driver)
    seen = see(driver, "dest")
    assert seen.records == {1: b"1", 2: b"2"} and seen.lost == []
    assert driver.catch_up("dest")
    assert total(driver) == 2
    driver.close()


def test_an_ephemeral_destination_starts_empty_and_goes_on(settings: Settings) -> None:
    """Its numbers are not used again, and new records are copied."""
    driver = Driver(settings)
    driver.put("dest", durability="ephemeral")
    driver.route("source", "dest")
    driver.append("source", b"1", b"2")
    assert driver.catch_up("dest")
    driver = die_and_start(driver)
    assert driver.catch_up("dest")
    driver.append("source", b"3")
    assert driver.catch_up("dest")
    seen = see(driver, "dest")
    assert list(seen.records.values())[-1] == b"3" and min(seen.records) > 2
    driver.close()


def _lossy(settings: Settings) -> Driver:
    return Driver(settings, LossyFiles())


@pytest.mark.parametrize("board", ["kept", "gone"])
def test_a_power_loss_takes_no_copy_that_was_shown(settings: Settings, board: str) -> None:
    """Only synced records are copied, so all of them can be copied again."""
    driver = _lossy(settings)
    driver.route("source", "middle")
    driver.route("middle", "dest")
    driver.checkpoint()
    for number in range(30):
        driver.append("source", b"%d" % number)
        if number % 7 == 0:
            assert driver.catch_up("dest")
    shown = see(driver, "dest")
    files = driver.files
    assert isinstance(files, LossyFiles)
    files.crash()
    driver.abandon()
    if board == "gone":
        paths.board(settings.data_dir).unlink()
    driver = Driver(settings, LossyFiles("second boot"), driver.clock)
    driver.catch_up("dest")
    again = see(driver, "dest")
    assert shown.records.items() <= again.records.items()
    driver.close()


def test_a_power_loss_never_hands_out_a_seq_again(settings: Settings) -> None:
    """Writes of its own may be lost, but no copy takes their place."""
    driver = _lossy(small_settings(settings.data_dir.parent, wal_sync_interval_ms=60_000))
    driver.route("source", "dest")
    driver.checkpoint()
    given: dict[int, bytes] = {}
    for number in range(20):
        driver.append("source", b"%d" % number)
        if number % 5 == 0:
            assert driver.catch_up("dest")
        given[driver.append("dest", b'"own %d"' % number).first_seq] = b'"own %d"' % number
    shown = see(driver, "dest").records
    driver = die_and_start(driver, "second boot")
    driver.catch_up("dest")
    again = see(driver, "dest")
    for seq, value in again.records.items():
        assert shown.get(seq, value) == value
    assert driver.append("dest", b"1").first_seq > max(given)
    driver.close()
    assert problems(settings.data_dir) == []

"""Forwarding inside the engine: what is copied when, and what it costs the WAL."""

from __future__ import annotations

import threading

import pytest

from tests.faults.driver import Driver, append
from tests.faults.dump import dump, open_reader, read_page
from tests.faults.faulty import FaultyFiles
from topicsd.engine.forward import LOGGED_AFTER_MS, SLICE_RECORDS
from topicsd.model.commands import (
    AwaitSynced,
    CatchUp,
    CaughtUp,
    DeleteRecords,
    DeleteRouter,
    RouterDeleted,
)
from topicsd.model.jobs import AckJobs, ClaimJobs
from topicsd.model.match import Match
from topicsd.model.settings import Settings


def records(driver: Driver, topic: str) -> dict[int, bytes]:
    return dump(driver.settings, driver.clock)[topic].records


def test_copies_are_in_no_frame(driver: Driver) -> None:
    """One frame for the append; none for ten copies of it."""
    for number in range(10):
        driver.route("source", f"dest{number}")
    frames = driver.engine.wal.counters.frames
    driver.append("source", b"1", b"2")
    for number in range(10):
        assert driver.catch_up(f"dest{number}")
        assert records(driver, f"dest{number}") == {1: b"1", 2: b"2"}
    assert driver.engine.wal.counters.frames == frames + 1


class GatedFiles(FaultyFiles):
    """Files whose syncs wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def sync(self, fd: int) -> None:
        self.gate.wait()
        super().sync(fd)


def test_nothing_is_copied_before_it_is_synced(settings: Settings) -> None:
    """What a destination shows can always be copied again."""
    files = GatedFiles()
    driver = Driver(settings, files)
    driver.route("source", "dest")
    driver.append("source", b"1")
    assert driver.catch_up("dest")
    route = next(iter(driver.engine.routes))
    files.gate.clear()
    assert len(driver.engine.apply([(0, append("source", b"2"))])) == 1
    for _ in range(50):
        driver.engine.release()
        driver.engine.forward()
    assert route.cursor == 1
    files.gate.set()
    assert driver.catch_up("dest")
    assert route.cursor == 2
    driver.close()


def test_copies_behind_constant_direct_writes_are_logged(settings: Settings) -> None:
    """When the destination's own writes are never all synced, copies become writes."""
    files = GatedFiles()
    driver = Driver(settings, files)
    driver.route("source", "dest")
    driver.append("dest", b"0")
    driver.append("source", b"1")
    assert driver.catch_up("dest")
    driver.append("source", b"2")
    driver.run(AwaitSynced("source"))
    files.gate.clear()
    assert len(driver.engine.apply([(0, append("dest", b"3"))])) == 1
    frames = driver.engine.wal.counters.frames
    driver.engine.forward()
    route = next(iter(driver.engine.routes))
    assert route.cursor == 1
    driver.clock.advance(LOGGED_AFTER_MS + 1)
    driver.engine.release()
    driver.engine.forward()
    assert route.cursor == 2 and driver.engine.wal.counters.frames == frames + 1
    files.gate.set()
    driver.abandon()
    driver = Driver(settings, None, driver.clock)
    assert records(driver, "dest") == {1: b"0", 2: b"1", 3: b"3", 4: b"2"}
    driver.close()


def test_a_turn_is_bounded_and_routes_take_turns(driver: Driver) -> None:
    """A long backlog of one route does not hold up another one."""
    driver.route("long", "long.copy")
    driver.route("short", "short.copy")
    driver.append("long", *[b"1"] * (10 * SLICE_RECORDS))
    driver.append("short", b"1")
    for shard in driver.engine.wal.shards:
        shard.hurry()
    routes = {route.source: route for route in driver.engine.routes}
    turns = 0
    while routes["long"].cursor < 10 * SLICE_RECORDS:
        driver.engine.release()
        driver.engine.forward()
        turns += 1
        assert routes["long"].cursor <= turns * SLICE_RECORDS
        if routes["long"].cursor > 2 * SLICE_RECORDS:
            assert routes["short"].cursor == 1
    assert driver.catch_up("long.copy") and driver.catch_up("short.copy")


def test_a_direct_write_is_not_passed_before_it_is_synced(driver: Driver) -> None:
    """Copies behind it would take its seq after a power loss."""
    driver.route("source", "dest")
    for number in range(20):
        driver.append("dest", b"%d" % number)
        driver.append("source", b"%d" % (100 + number))
    assert driver.catch_up("dest")
    found = records(driver, "dest")
    copies = [int(found[seq]) for seq in sorted(found) if int(found[seq]) >= 100]
    assert copies == list(range(100, 120)) and len(found) == 40


def test_a_stuck_route_answers_at_once(driver: Driver) -> None:
    """A full destination is not waited for; with room it goes on at the next read."""
    driver.put("dest", cap_records=1, discard="reject")
    driver.route("source", "dest")
    driver.append("source", b"1", b"2")
    assert not driver.catch_up("dest")
    driver.run(DeleteRecords("dest", 2, None))
    assert driver.catch_up("dest")
    assert records(driver, "dest") == {2: b"2"}


def test_a_refused_route_is_tried_again_by_itself(driver: Driver) -> None:
    """Nobody has to read for it: after a backoff it looks again."""
    driver.put("dest", cap_records=1, discard="reject")
    driver.route("source", "dest")
    driver.append("source", b"1", b"2")
    assert not driver.catch_up("dest")
    driver.run(DeleteRecords("dest", 2, None))
    assert not driver.engine.forwarding
    driver.clock.advance(2000)
    driver.engine.tick()
    driver.engine.forward()
    assert records(driver, "dest") == {2: b"2"}


def test_losses_in_a_row_take_one_seq(driver: Driver) -> None:
    """A loss right behind another one is told by the same seq."""
    driver.put("source", cap_records=1)
    driver.put("dest", cap_records=1, discard="reject")
    driver.route("source", "dest")
    driver.append("source", b"0")
    assert driver.catch_up("dest")
    for number in range(1, 4):
        driver.append("source", b"%d" % number)
        assert not driver.catch_up("dest")
        driver.engine.release()
    seen = dump(driver.settings, driver.clock)["dest"]
    assert seen.records == {1: b"0"} and seen.lost == [(2, 2, "source_trim")]
    driver.put("dest")
    assert driver.catch_up("dest")
    seen = dump(driver.settings, driver.clock)["dest"]
    assert seen.records == {1: b"0", 3: b"3"} and seen.lost == [(2, 2, "source_trim")]
    assert seen.count == 2


def test_a_loss_in_an_empty_destination_is_told(driver: Driver) -> None:
    """Also when nothing live is below it, or above."""
    driver.put("source", cap_records=1)
    driver.route("source", "dest")
    driver.append("source", b"1", b"2", b"3")
    assert driver.catch_up("dest")
    seen = dump(driver.settings, driver.clock)["dest"]
    assert seen.records == {2: b"3"} and seen.lost == [(1, 1, "source_trim")]
    driver.run(DeleteRecords("dest", 3, None))
    with open_reader(driver.settings, driver.clock) as reader:
        told = read_page(reader, "dest").tombstone
        assert told is not None and (told.gap_from, told.gap_to) == (1, 1)


def test_deleted_records_are_skipped_in_silence(driver: Driver) -> None:
    """Voluntary loss is no loss."""
    driver.put("dest", cap_records=1, discard="reject")
    driver.route("source", "dest")
    driver.append("source", b"1")
    driver.append("source", b"2", tag="x")
    driver.append("source", b"3")
    assert not driver.catch_up("dest")
    driver.run(DeleteRecords("source", None, Match("x", False)))
    driver.put("dest")
    assert driver.catch_up("dest")
    seen = dump(driver.settings, driver.clock)["dest"]
    assert seen.records == {1: b"1", 2: b"3"} and seen.lost == []


def test_a_removed_router_has_its_copies_saved_first(driver: Driver) -> None:
    """The answer waits for a checkpoint when there are copies that none has."""
    driver.route("source", "dest")
    driver.append("source", b"1")
    assert driver.catch_up("dest")
    finished = driver.engine.checkpoints.finished
    assert driver.run(DeleteRouter("source->dest")) == [RouterDeleted(True)]
    assert driver.engine.checkpoints.finished > finished
    assert len(driver.engine.routes) == 0
    assert driver.run(CatchUp("dest")) == [CaughtUp(True)]


@pytest.mark.parametrize(("guarantee", "copies"), [("at_least_once", 6), ("exactly_once", 4)])
def test_a_cursor_that_fell_behind(driver: Driver, guarantee: str, copies: int) -> None:
    """Copies that are there already are made again, unless they carry a key."""
    driver.route("source", "dest", guarantee=guarantee)
    driver.append("source", b"1", b"2", b"3")
    assert driver.catch_up("dest")
    route = next(iter(driver.engine.routes))
    route.cursor, route.seen = 1, None
    driver.append("source", b"4")
    assert driver.catch_up("dest")
    assert len(records(driver, "dest")) == copies
    # A delete removes the evidence.
    driver.run(DeleteRecords("dest", copies + 1, None))
    route.cursor, route.seen = 3, None
    driver.append("source", b"5")
    assert driver.catch_up("dest")
    assert list(records(driver, "dest").values()) == [b"4", b"5"]


@pytest.mark.parametrize("queue", ["source", "dest"])
def test_acks_between_copies_survive_a_crash(settings: Settings, queue: str) -> None:
    """An acked job is copied when it was copied before, and every copy keeps its seq."""
    driver = Driver(settings)
    driver.put(queue, type="queue")
    driver.route("source", "dest")
    driver.checkpoint()
    driver.append("source", b"1", b"2")
    assert driver.catch_up("dest")
    driver.run(ClaimJobs(queue, "w", 1, 60_000))
    # One batch: the ack stands beside a direct write to the destination.
    driver.run(AckJobs(queue, "w", [1], []), append("dest", b"8"))
    driver.append("source", b"3")
    driver.append("dest", b"9")
    assert driver.catch_up("dest")
    driver.run(ClaimJobs(queue, "w", 1, 60_000))
    driver.run(append("dest", b"10"), AckJobs(queue, "w", [2], []))
    seen = records(driver, "dest")
    driver.abandon()
    driver = Driver(settings)
    assert records(driver, "dest") == seen
    assert driver.summary.lost_records == 0
    driver.close()

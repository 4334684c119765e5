"""Who holds a watch session: attach, hold, save, detach, take over, get lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.desk import Desk
from tests.faults.driver import Driver, small_settings
from topicsd.engine.attach import CLAIMS_MAX, OPENINGS_MAX, TAKEOVER_MS
from topicsd.model.commands import (
    AttachWatch,
    CreateWatch,
    Cursors,
    CursorsSaved,
    DetachWatch,
    Failed,
    HoldWatch,
    Join,
    Joined,
    Leave,
    Reply,
    SaveCursors,
    WatchAttached,
    WatchDetached,
    WatchEnded,
)
from topicsd.model.settings import Settings

SPEC = "{}"
START: Cursors = {"t": (1, 0)}


@pytest.fixture
def desk(settings: Settings) -> Iterator[Desk]:
    """Workers 1 and 2, and an idle session of the key `key`."""
    made = Desk(Driver(small_settings(settings.data_dir.parent)))
    made.post(Join(1), Join(2), CreateWatch("w", "key", SPEC, START))
    yield made
    made.driver.close()


def at(seq: int) -> Cursors:
    return {"t": (1, seq)}


def claim(worker: int = 1, known: Cursors | None = None, generation: int = 0) -> AttachWatch:
    return AttachWatch("w", "key", worker, known, generation)


def attached(reply: Reply) -> WatchAttached:
    assert isinstance(reply, WatchAttached), reply
    return reply


def take_over(desk: Desk, worker: int = 2) -> int:
    """Attach to a session in use; returns the ticket, which waits."""
    (ticket,) = desk.post(claim(worker))
    assert desk.waits(ticket)
    return ticket


def test_every_attach_is_a_generation_of_its_own(desk: Desk) -> None:
    """They count up, and the last few are remembered with what they opened with."""
    for number in range(1, 8):
        got = attached(desk.ask(claim()))
        assert (got.generation, got.cursors, got.clean) == (number, at(number - 1), True)
        known = [(each, at(each - 1)) for each in range(1, number + 1)]
        assert got.openings == known[-OPENINGS_MAX:]
        assert desk.ask(DetachWatch("w", number, at(number))) == WatchDetached(True)


def test_an_attach_is_answered_when_the_catalog_has_it(desk: Desk) -> None:
    """A generation that a crash could take back would be given out twice."""
    with desk.driver.engine.clerk._wake:
        (ticket,) = desk.send(claim())
        assert desk.waits(ticket)
    desk.settle()
    found = desk.driver.engine.catalog.find_watch("w")
    assert found is not None
    assert attached(desk.take(ticket)).generation == found.generation == 1


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (AttachWatch("absent", "key", 1, None), "not_found"),
        (AttachWatch("w", "other", 1, None), "unauthorized"),
        (AttachWatch("w", "", 1, None), "unauthorized"),
        (AttachWatch("w", "key", 9, None), "not_ready"),
    ],
    ids=["unknown", "other key", "no key", "a worker that did not join"],
)
def test_an_attach_is_refused(desk: Desk, command: AttachWatch, code: str) -> None:
    """And changes nothing, whether the session is idle or open."""
    replies = [desk.ask(command)]
    assert attached(desk.ask(claim())).generation == 1
    replies.append(desk.ask(command))
    assert [reply.code for reply in replies if isinstance(reply, Failed)] == [code, code]
    assert desk.driver.engine.watches.claimed == {}
    assert desk.ask(DetachWatch("w", 1, START)) == WatchDetached(True)


def test_a_hold_lasts_until_the_stream_detaches(desk: Desk) -> None:
    """The two are answered together."""
    desk.ask(claim())
    (hold,) = desk.post(HoldWatch("w", 1))
    desk.driver.clock.advance(86_400_000)
    desk.tick()
    assert desk.waits(hold)
    assert desk.ask(DetachWatch("w", 1, at(3))) == WatchDetached(True)
    assert desk.take(hold) == WatchEnded("detached")


@pytest.mark.parametrize(("wid", "generation"), [("absent", 1), ("w", 0), ("w", 1), ("w", 3)])
def test_a_hold_of_nothing_ends_at_once(desk: Desk, wid: str, generation: int) -> None:
    """Unknown session, stale generation, or one that never was."""
    assert desk.ask(HoldWatch(wid, generation)) == WatchEnded("gone")
    desk.ask(claim())
    desk.ask(DetachWatch("w", 1, START))
    assert desk.ask(HoldWatch(wid, generation)) == WatchEnded("gone")
    desk.ask(claim())
    assert desk.ask(HoldWatch(wid, generation)) == WatchEnded("gone")


def test_a_second_hold_replaces_the_first(desk: Desk) -> None:
    """Nobody waits for ever for an answer that only one can get."""
    desk.ask(claim())
    (first,) = desk.post(HoldWatch("w", 1))
    (second,) = desk.post(HoldWatch("w", 1))
    assert desk.take(first) == WatchEnded("gone")
    desk.ask(DetachWatch("w", 1, START))
    assert desk.take(second) == WatchEnded("detached")


@pytest.mark.parametrize("hold", ["before", "after", "never"])
def test_a_takeover_waits_for_the_holder(desk: Desk, hold: str) -> None:
    """The holder is told at once, and the next stream begins where it stopped."""
    desk.ask(claim())
    held = desk.post(HoldWatch("w", 1)) if hold == "before" else []
    ticket = take_over(desk)
    held += desk.post(HoldWatch("w", 1)) if hold == "after" else []
    assert [desk.take(each) for each in held] == [WatchEnded("taken_over")] * len(held)
    desk.driver.clock.advance(TAKEOVER_MS - 1)
    desk.tick()
    assert desk.waits(ticket)
    assert desk.ask(DetachWatch("w", 1, at(7))) == WatchDetached(True)
    expected = WatchAttached(2, SPEC, at(7), [(1, START), (2, at(7))], True)
    assert desk.take(ticket) == expected
    (hold_2,) = desk.post(HoldWatch("w", 2))
    assert desk.waits(hold_2)


def test_a_holder_that_gives_no_answer_is_passed_over(desk: Desk) -> None:
    """After two seconds, with the cursors it saved last; what it says later is not heard."""
    desk.ask(claim())
    desk.ask(SaveCursors([("w", 1, at(4))]))
    ticket = take_over(desk)
    desk.driver.clock.advance(TAKEOVER_MS)
    desk.tick()
    expected = WatchAttached(2, SPEC, at(4), [(1, START), (2, at(4))], False)
    assert desk.take(ticket) == expected
    assert desk.ask(DetachWatch("w", 1, at(9))) == WatchDetached(False)
    assert desk.ask(SaveCursors([("w", 1, at(9))])) == CursorsSaved()
    assert desk.ask(HoldWatch("w", 1)) == WatchEnded("gone")
    desk.ask(DetachWatch("w", 2, at(5)))
    assert attached(desk.ask(claim())).cursors == at(5)


def test_a_lost_worker_lets_go(desk: Desk) -> None:
    """Its sessions keep what was saved last, and the next stream hears that it may be old."""
    desk.ask(claim(worker=1))
    desk.ask(SaveCursors([("w", 1, at(4))]))
    (hold,) = desk.post(HoldWatch("w", 1))
    desk.post(Leave(1))
    assert desk.waits(hold), "there is nobody to answer"
    assert attached(desk.ask(claim(worker=2))).clean is False
    desk.ask(DetachWatch("w", 2, at(6)))
    assert attached(desk.ask(claim(worker=2))).clean is True


def test_a_lost_worker_ends_the_wait_for_it(desk: Desk) -> None:
    """Whoever waits for its session gets it at once."""
    desk.ask(claim(worker=1))
    ticket = take_over(desk, worker=2)
    desk.post(Leave(1))
    got = attached(desk.take(ticket))
    assert (got.generation, got.cursors, got.clean) == (2, START, False)


def test_a_lost_worker_lets_go_of_its_own_sessions_only(desk: Desk) -> None:
    """Those of other workers stay open."""
    desk.post(CreateWatch("v", "key", SPEC, START))
    desk.ask(claim(worker=1))
    desk.ask(AttachWatch("v", "key", 2, None))
    desk.post(Leave(2))
    assert desk.ask(DetachWatch("w", 1, START)) == WatchDetached(True)
    assert desk.ask(DetachWatch("v", 1, START)) == WatchDetached(False)


def test_a_lost_worker_waits_for_nothing(desk: Desk) -> None:
    """Its claim goes with it: the session is free when the holder gives it back."""
    desk.ask(claim(worker=1))
    ticket = take_over(desk, worker=2)
    desk.post(Leave(2))
    assert desk.driver.engine.watches.claimed == {}
    (hold,) = desk.post(HoldWatch("w", 1))
    assert desk.waits(hold)
    desk.ask(DetachWatch("w", 1, at(1)))
    assert desk.waits(ticket)
    assert attached(desk.ask(claim())).generation == 2


def test_a_worker_comes_back_under_another_number(desk: Desk) -> None:
    """The late news of its old connection's end does not touch the new one."""
    desk.ask(claim(worker=1))
    assert desk.ask(Join(11)) == Joined()
    (ticket,) = desk.post(claim(worker=11, known=at(8), generation=1))
    desk.post(Leave(1))
    got = attached(desk.take(ticket))
    assert (got.generation, got.cursors, got.clean) == (2, at(8), True)
    assert desk.ask(DetachWatch("w", 2, at(9))) == WatchDetached(True)


def test_streams_that_wait_get_their_turn(desk: Desk) -> None:
    """In order; each but the last one is told to give the session back at once."""
    desk.ask(claim())
    tickets = [take_over(desk) for _ in range(3)]
    for number, ticket in enumerate(tickets, 1):
        assert desk.ask(DetachWatch("w", number, at(number))) == WatchDetached(True)
        got = attached(desk.take(ticket))
        assert (got.generation, got.cursors, got.clean) == (number + 1, at(number), True)
        (hold,) = desk.post(HoldWatch("w", number + 1))
        if number < 3:
            assert desk.take(hold) == WatchEnded("taken_over")
        else:
            assert desk.waits(hold)


def test_nobody_waits_longer_than_two_seconds(desk: Desk) -> None:
    """Also behind others that wait."""
    desk.ask(claim())
    tickets = [take_over(desk) for _ in range(3)]
    desk.driver.clock.advance(TAKEOVER_MS)
    desk.tick()
    found = [attached(desk.take(ticket)) for ticket in tickets]
    assert [(got.generation, got.clean) for got in found] == [(2, False), (3, False), (4, False)]
    assert desk.ask(HoldWatch("w", 3)) == WatchEnded("gone")
    assert desk.ask(DetachWatch("w", 4, START)) == WatchDetached(True)


def test_streams_that_wait_are_limited(desk: Desk) -> None:
    """One session does not fill the engine with claims."""
    desk.ask(claim())
    tickets = [take_over(desk) for _ in range(CLAIMS_MAX)]
    refused = desk.ask(claim())
    assert isinstance(refused, Failed) and refused.code == "throttled"
    assert refused.detail is not None and refused.detail["max"] == CLAIMS_MAX
    desk.ask(DetachWatch("w", 1, START))
    desk.take(tickets[0])
    take_over(desk)


@pytest.mark.parametrize("ending", ["stop", "abandon"])
def test_an_engine_that_ended_under_a_stream_remembers_it(desk: Desk, ending: str) -> None:
    """The cursors may be old then, once: after the next detach they are not."""
    desk.ask(claim())
    desk.ask(SaveCursors([("w", 1, at(4))]))
    getattr(desk.driver, ending)()
    desk.driver = Driver(desk.driver.settings, clock=desk.driver.clock)
    desk.ask(Join(3))
    assert desk.ask(HoldWatch("w", 1)) == WatchEnded("gone")
    assert desk.ask(DetachWatch("w", 1, at(9))) == WatchDetached(False)
    expected = WatchAttached(2, SPEC, at(4), [(1, START), (2, at(4))], False)
    assert desk.ask(claim(worker=3)) == expected
    desk.ask(DetachWatch("w", 2, at(9)))
    assert attached(desk.ask(claim(worker=3))).clean is True


def test_a_stream_that_outlived_the_engine_knows_best(desk: Desk) -> None:
    """Its cursors replace those in the catalog."""
    desk.ask(claim())
    desk.driver.abandon()
    desk.driver = Driver(desk.driver.settings, clock=desk.driver.clock)
    desk.ask(Join(1))
    expected = WatchAttached(2, SPEC, at(40), [(1, START), (2, at(40))], True)
    assert desk.ask(claim(known=at(40), generation=1)) == expected
    desk.post(Leave(1), Join(2))
    assert attached(desk.ask(claim(worker=2))).cursors == at(40)


def test_a_stream_that_outlived_the_engine_may_be_too_late(desk: Desk) -> None:
    """Another one took the session over before it came back: it does not take it again."""
    desk.ask(claim())
    desk.driver.abandon()
    desk.driver = Driver(desk.driver.settings, clock=desk.driver.clock)
    desk.ask(Join(1))
    desk.ask(Join(2))
    assert attached(desk.ask(claim(worker=2))).generation == 2
    assert desk.ask(claim(known=at(40), generation=1)) == WatchEnded("taken_over")
    assert desk.ask(DetachWatch("w", 2, at(9))) == WatchDetached(True)


def test_saved_cursors_wait_for_nothing(desk: Desk) -> None:
    """The reply comes at once; unknown sessions and old generations are skipped."""
    desk.ask(claim())
    with desk.driver.engine.clerk._wake:
        saves = [("w", 0, at(90)), ("w", 1, at(5)), ("absent", 1, at(7)), ("w", 2, at(99))]
        (ticket,) = desk.send(SaveCursors(saves))
        assert desk.take(ticket) == CursorsSaved()
    desk.post(Leave(1))
    assert attached(desk.ask(claim(worker=2))).cursors == at(5)


def test_saved_cursors_are_used_before_the_catalog_has_them(desk: Desk) -> None:
    """A stream lost right after its report goes on from there."""
    desk.ask(claim())
    with desk.driver.engine.clerk._wake:
        desk.send(SaveCursors([("w", 1, at(5))]), SaveCursors([("w", 1, at(6))]))
        desk.send(Leave(1))
        (ticket,) = desk.send(claim(worker=2))
    desk.settle()
    got = attached(desk.take(ticket))
    assert (got.cursors, got.clean) == (at(6), False)


def test_a_detach_is_heard_once(desk: Desk) -> None:
    """The second one, like one of a session that is not open, changes nothing."""
    assert desk.ask(DetachWatch("w", 0, at(1))) == WatchDetached(False)
    desk.ask(claim())
    assert desk.ask(DetachWatch("w", 1, at(2))) == WatchDetached(True)
    assert desk.ask(DetachWatch("w", 1, at(3))) == WatchDetached(False)
    assert desk.ask(DetachWatch("absent", 1, at(3))) == WatchDetached(False)
    assert attached(desk.ask(claim())).cursors == at(2)


def test_a_whole_life_in_one_batch(desk: Desk) -> None:
    """Commands of one batch see each other, and each is answered once."""
    tickets = desk.post(
        claim(worker=1),
        HoldWatch("w", 1),
        claim(worker=2),
        DetachWatch("w", 1, at(3)),
        HoldWatch("w", 2),
        SaveCursors([("w", 2, at(4))]),
        Leave(2),
        claim(worker=1),
    )
    replies = [desk.take(ticket) for ticket in tickets if not desk.waits(ticket)]
    assert [type(reply) for reply in replies] == [
        WatchAttached,
        WatchEnded,
        WatchAttached,
        WatchDetached,
        CursorsSaved,
        WatchAttached,
    ]
    assert replies[1] == WatchEnded("taken_over")
    openings = [(1, START), (2, at(3)), (3, at(4))]
    assert replies[-1] == WatchAttached(3, SPEC, at(4), openings, False)

"""Watch sessions come, are kept, expire, and are limited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.desk import Desk
from tests.faults.driver import Driver, small_settings
from topicsd.engine import watches
from topicsd.model.commands import (
    AttachWatch,
    CreateWatch,
    Cursors,
    DetachWatch,
    Failed,
    Join,
    Leave,
    Reply,
    SaveCursors,
    WatchAttached,
    WatchCreated,
    WatchDetached,
)
from topicsd.model.settings import Settings

TTL_MS = 60_000
SPEC = '{"topics":{"orders":{"from_seq":0}}}'
CURSORS: Cursors = {"orders": (1, 0), "ünïcode\n": (3, 2**53)}


@pytest.fixture
def desk(settings: Settings) -> Iterator[Desk]:
    """Worker 1 has joined; sessions live for a minute, and there may be three."""
    chosen = small_settings(
        settings.data_dir.parent, watch_session_ttl_ms=TTL_MS, max_watch_sessions=3
    )
    made = Desk(Driver(chosen))
    made.ask(Join(1))
    yield made
    made.driver.close()


def create(wid: str, key: str = "") -> CreateWatch:
    return CreateWatch(wid, key, SPEC, CURSORS)


def attach(desk: Desk, wid: str) -> WatchAttached:
    reply = desk.ask(AttachWatch(wid, "", 1, None))
    assert isinstance(reply, WatchAttached), reply
    return reply


def code(reply: Reply) -> str:
    assert isinstance(reply, Failed), reply
    return reply.code


def reopened(desk: Desk, ending: str) -> Desk:
    """The next engine over the same directory, with the same clock."""
    getattr(desk.driver, ending)()
    desk.driver = Driver(desk.driver.settings, clock=desk.driver.clock)
    desk.ask(Join(1))
    return desk


def test_a_created_session_is_there(desk: Desk) -> None:
    """With its spec and its cursors, as they were given."""
    assert desk.ask(create("a")) == WatchCreated()
    attached = attach(desk, "a")
    assert attached == WatchAttached(1, SPEC, CURSORS, [(1, CURSORS)], True)


def test_a_session_is_created_when_the_catalog_has_it(desk: Desk) -> None:
    """Not before; other commands of the batch do not wait for it."""
    engine = desk.driver.engine
    with engine.clerk._wake:
        # The catalog's thread cannot get at its work here.
        created, joined = desk.send(create("a"), Join(2))
        assert desk.waits(created) and not desk.waits(joined)
    desk.settle()
    assert desk.take(created) == WatchCreated()
    assert engine.catalog.find_watch("a") is not None


def test_a_session_can_be_attached_before_the_catalog_has_it(desk: Desk) -> None:
    """It is answered from memory, in the same batch and in the next."""
    with desk.driver.engine.clerk._wake:
        tickets = desk.send(create("a"), AttachWatch("a", "", 1, None))
        tickets += desk.send(DetachWatch("a", 1, {}), AttachWatch("a", "", 1, None))
        assert all(map(desk.waits, tickets))
    desk.settle()
    _, first, _, second = map(desk.take, tickets)
    assert first == WatchAttached(1, SPEC, CURSORS, [(1, CURSORS)], True)
    assert second == WatchAttached(2, SPEC, {}, [(1, CURSORS), (2, {})], True)


def test_a_wid_is_used_once(desk: Desk) -> None:
    """Creating it again is refused, also before the catalog knows it."""
    tickets = desk.post(create("a"), create("a"))
    assert desk.take(tickets[0]) == WatchCreated()
    assert code(desk.take(tickets[1])) == "invalid_request"
    assert code(desk.ask(create("a"))) == "invalid_request"
    assert desk.driver.engine.watches.count == 1


def test_sessions_are_limited(desk: Desk) -> None:
    """At the limit the next one is refused with its name; an expired one makes room."""
    replies = [desk.ask(create(wid)) for wid in "abcd"]
    refused = replies.pop()
    assert replies == [WatchCreated()] * 3
    assert isinstance(refused, Failed) and refused.code == "throttled"
    assert refused.detail == {"limit": "max_watch_sessions", "max": 3}
    desk.driver.clock.advance(TTL_MS + 1)
    assert desk.ask(create("d")) == WatchCreated()
    assert desk.driver.engine.watches.count == 1


def test_without_a_limit_there_is_none(settings: Settings) -> None:
    """0 lifts it."""
    desk = Desk(Driver(small_settings(settings.data_dir.parent, max_watch_sessions=0)))
    tickets = desk.post(*[create(f"{number}") for number in range(50)])
    assert [desk.take(ticket) for ticket in tickets] == [WatchCreated()] * 50
    desk.driver.close()


def test_sessions_are_counted_for_metrics(desk: Desk) -> None:
    """On the board, where any process reads it; also after a restart."""
    engine = desk.driver.engine
    desk.ask(create("a"))
    desk.ask(create("b"))
    assert engine.board.figures.watch_sessions == 2
    engine = reopened(desk, "close").driver.engine
    assert engine.board.figures.watch_sessions == 2
    desk.driver.clock.advance(TTL_MS + 1)
    desk.tick()
    assert engine.board.figures.watch_sessions == 0


def test_a_session_expires_when_its_time_is_over(desk: Desk) -> None:
    """Not a millisecond before; an attach then finds nothing."""
    desk.ask(create("a"))
    desk.driver.clock.advance(TTL_MS)
    assert attach(desk, "a").generation == 1
    desk.ask(DetachWatch("a", 1, CURSORS))
    desk.driver.clock.advance(TTL_MS + 1)
    reply = desk.ask(AttachWatch("a", "", 1, None))
    assert isinstance(reply, Failed)
    assert (reply.code, reply.detail) == ("not_found", {"path": "/v0/watch/a"})
    assert desk.driver.engine.catalog.find_watch("a") is None


@pytest.mark.parametrize("use", ["create", "attach and detach", "leave"])
def test_every_use_lets_a_session_live_longer(desk: Desk, use: str) -> None:
    """The time counts from the last one; a lost worker's stream was one, too."""
    clock = desk.driver.clock
    if use != "create":
        desk.ask(create("a"))
        clock.advance(TTL_MS // 2)
        attach(desk, "a")
        clock.advance(TTL_MS * 3)
    desk.post({"create": create("a"), "leave": Leave(1)}.get(use, DetachWatch("a", 1, CURSORS)))
    clock.advance(TTL_MS)
    desk.tick()
    assert desk.driver.engine.watches.find("a") is not None
    clock.advance(1)
    # The chore does not look every time.
    clock.advance(2000)
    desk.tick()
    assert desk.driver.engine.watches.find("a") is None


def test_an_open_session_never_expires(desk: Desk) -> None:
    """However long its stream says nothing."""
    desk.ask(create("a"))
    attach(desk, "a")
    for _ in range(3):
        desk.driver.clock.advance(TTL_MS * 10)
        desk.tick()
        desk.ask(create("b"))
    assert desk.ask(DetachWatch("a", 1, {})) == WatchDetached(True)
    assert attach(desk, "a").cursors == {}


@pytest.mark.parametrize("ending", ["stop", "abandon"])
def test_a_session_open_at_the_end_gets_its_whole_time_again(desk: Desk, ending: str) -> None:
    """Its stream was in use until then, and its client is about to come back."""
    desk.ask(create("a"))
    attach(desk, "a")
    desk.driver.clock.advance(TTL_MS * 10)
    reopened(desk, ending)
    desk.driver.clock.advance(TTL_MS)
    desk.tick()
    assert not attach(desk, "a").clean


def test_expiry_is_decided_by_what_happened_last(desk: Desk) -> None:
    """A session whose use is still on its way to the catalog is not taken for an old one."""
    engine = desk.driver.engine
    desk.ask(create("a"))
    desk.driver.clock.advance(TTL_MS)
    with engine.clerk._wake:
        desk.send(AttachWatch("a", "", 1, None))
        desk.driver.clock.advance(TTL_MS)
        # The catalog still says that it is idle and old.
        assert engine.catalog.list_old_watches(desk.driver.clock.now, 9) == ["a"]
        desk.send(create("b"))
        desk.send(DetachWatch("a", 1, {}), create("c"))
    desk.settle()
    assert engine.watches.count == 3
    assert attach(desk, "a").generation == 2


def test_a_stream_lost_a_moment_ago_was_in_use_until_then(desk: Desk) -> None:
    """Its session is not taken for an old one before the catalog has heard of it."""
    desk.ask(create("a"))
    attach(desk, "a")
    desk.driver.clock.advance(TTL_MS * 3)
    with desk.driver.engine.clerk._wake:
        desk.send(Join(2), Leave(1))
        (ticket,) = desk.send(AttachWatch("a", "", 2, None))
    desk.settle()
    found = desk.take(ticket)
    assert isinstance(found, WatchAttached) and not found.clean


def test_a_wid_can_be_used_again_while_it_is_being_dropped(desk: Desk) -> None:
    """The end of the old session does not touch the new one."""
    desk.ask(create("a", "old"))
    desk.driver.clock.advance(TTL_MS + 1)
    with desk.driver.engine.clerk._wake:
        desk.send(create("b"))
        (ticket,) = desk.send(create("a"))
    desk.settle()
    assert desk.take(ticket) == WatchCreated()
    assert attach(desk, "a").generation == 1
    assert desk.driver.engine.watches.count == 2


def test_many_sessions_expire_in_several_steps(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step is bounded, the next follows at once, and an attach sees none of them."""
    monkeypatch.setattr(watches, "EXPIRED_MAX", 2)
    desk.tick()
    for wid in "abc":
        desk.ask(create(wid))
        desk.driver.clock.advance(1)
    desk.driver.clock.advance(TTL_MS + 2000)
    assert code(desk.ask(AttachWatch("c", "", 1, None))) == "not_found"
    assert desk.driver.engine.watches.count == 1
    desk.tick()
    assert desk.driver.engine.watches.count == 0


@pytest.mark.parametrize("ending", ["stop", "abandon"])
def test_sessions_survive_any_end(desk: Desk, ending: str) -> None:
    """Spec, cursors, generation, openings."""
    desk.ask(create("a", "key"))
    desk.ask(create("b"))
    attach(desk, "b")
    desk.ask(DetachWatch("b", 1, {"orders": (1, 7)}))
    reopened(desk, ending)
    assert desk.driver.engine.watches.count == 2
    found = desk.ask(AttachWatch("a", "key", 1, None))
    assert found == WatchAttached(1, SPEC, CURSORS, [(1, CURSORS)], True)
    later: Cursors = {"orders": (1, 7)}
    assert attach(desk, "b") == WatchAttached(2, SPEC, later, [(1, CURSORS), (2, later)], True)


def test_a_session_that_the_catalog_refused_was_never_created(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told of it, the engine stops, and the next one does not know it."""
    driver = Driver(settings)

    def refuse(changes: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(driver.engine.catalog, "commit", refuse)
    with pytest.raises(OSError):
        driver.run(create("a"))
    driver.abandon()
    driver = Driver(settings)
    assert (driver.engine.watches.find("a"), driver.engine.watches.count) == (None, 0)
    driver.close()


def test_idle_sessions_are_not_in_memory(settings: Settings) -> None:
    """Neither after they were created, nor after they were used or expired."""
    desk = Desk(Driver(small_settings(settings.data_dir.parent, watch_session_ttl_ms=TTL_MS)))
    desk.ask(Join(1))
    engine = desk.driver.engine
    desk.post(*[create(f"{number}") for number in range(500)])
    assert (len(engine.watches), engine.watches.count) == (0, 500)
    desk.post(*[AttachWatch(f"{number}", "", 1, None) for number in range(100)])
    assert len(engine.watches) == 100
    desk.post(*[DetachWatch(f"{number}", 1, CURSORS) for number in range(100)])
    assert len(engine.watches) == 0
    desk.driver.clock.advance(TTL_MS + 1)
    desk.tick()
    assert (len(engine.watches), engine.watches.count) == (0, 0)
    desk.driver.close()


def test_an_open_session_keeps_no_texts_in_memory(desk: Desk) -> None:
    """They are in the catalog once it has them, whatever brought them."""
    desk.ask(create("a"))
    attach(desk, "a")
    desk.ask(SaveCursors([("a", 1, {"orders": (1, 5)})]))
    watch = desk.driver.engine.watches.find("a")
    assert watch is not None and watch.open
    assert (watch.spec, watch.cursors, watch.openings) == (None, None, None)


def test_sessions_are_readable_in_the_catalog(desk: Desk) -> None:
    """Cursors and openings are plain JSON there."""
    desk.ask(create("a", "key"))
    desk.ask(AttachWatch("a", "key", 1, {"orders": (2, 9)}))
    found = desk.driver.engine.catalog.find_watch("a")
    assert found is not None
    assert (found.cursors, found.openings) == ('{"orders":[2,9]}', '[[1,{"orders":[2,9]}]]')
    assert (found.key, found.spec, found.generation, found.open) == ("key", SPEC, 1, 1)

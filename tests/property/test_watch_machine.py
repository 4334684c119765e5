"""Watch sessions behave like a plain dict of them, in any order of events."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.faults.desk import Desk
from tests.faults.driver import FAST, Driver, StillClock, small_settings
from tests.property.test_engine_machine import PROFILES
from tests.property.watch_oracle import OPEN, SESSIONS_MAX, TTL_MS, WatchOracle
from topicsd.model.commands import (
    AttachWatch,
    Command,
    CreateWatch,
    Cursors,
    DetachWatch,
    HoldWatch,
    Join,
    Leave,
    SaveCursors,
)

WIDS, WORKERS = ("a", "b", "c", "d"), (1, 2)
# How far a command is from the present generation: mostly not at all.
LAGS = (0, 0, 0, 0, -1, 1)

_cursors: st.SearchStrategy[Cursors] = st.dictionaries(
    st.sampled_from(("t", "u")), st.tuples(st.integers(1, 2), st.integers(0, 99)), max_size=2
)
_wids = st.sampled_from(WIDS)
_lags = st.sampled_from(LAGS)
_workers = st.sampled_from(WORKERS)
# A move is a kind and what it takes; generations are filled in when it is made.
Move = tuple[str, str, int, int, Cursors, bool]
_moves: st.SearchStrategy[Move] = st.tuples(
    st.sampled_from(("create", "attach", "attach", "attach", "hold", "hold", "detach", "detach",
                     "save", "join", "leave", "intrude")),
    _wids,
    _workers,
    _lags,
    _cursors,
    st.booleans(),
)  # fmt: skip


class WatchMachine(RuleBasedStateMachine):
    """Every step is done to both; afterwards all answers and all of the catalog are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="topicsd-watch-", dir=FAST))
        chosen = small_settings(
            self.home, watch_session_ttl_ms=TTL_MS, max_watch_sessions=SESSIONS_MAX
        )
        self.clock = StillClock()
        self.desk = Desk(Driver(chosen, clock=self.clock))
        self.oracle = WatchOracle(self.clock.now)
        self.waiting: set[int] = set()
        self.post([Join(worker) for worker in WORKERS])

    def teardown(self) -> None:
        self.desk.driver.close()
        shutil.rmtree(self.home)

    @rule(moves=st.lists(_moves, min_size=1, max_size=5))
    def one_batch(self, moves: list[Move]) -> None:
        self.post([self.command(move) for move in moves])

    @rule(moves=st.lists(_moves, min_size=1, max_size=3))
    def several_batches(self, moves: list[Move]) -> None:
        """Each before the catalog has seen anything of the ones before it."""
        with self.desk.driver.engine.clerk._wake:
            for move in moves:
                self.send([self.command(move)])
        self.desk.settle()
        self.compare()

    @rule(elapsed_ms=st.sampled_from((1, 500, 2000, 2001, 30_000, TTL_MS, TTL_MS + 1)))
    def time_passes(self, elapsed_ms: int) -> None:
        self.clock.advance(elapsed_ms)
        self.oracle.now_ms = self.clock.now

    @rule()
    def chores(self) -> None:
        self.oracle.tick()
        self.desk.tick()
        self.compare()

    @rule(ending=st.sampled_from(("stop", "abandon")))
    def restart(self, ending: str) -> None:
        driver = self.desk.driver
        getattr(driver, ending)()
        self.oracle.restart()
        self.waiting.clear()
        self.desk.driver = Driver(driver.settings, clock=self.clock)
        self.post([Join(worker) for worker in WORKERS])

    @invariant()
    def the_catalog_says_the_same(self) -> None:
        catalog = self.desk.driver.engine.catalog
        stored = {wid: catalog.find_watch(wid) for wid in WIDS}
        assert {wid for wid, found in stored.items() if found} == set(self.oracle.sessions)
        for wid, session in self.oracle.sessions.items():
            found = stored[wid]
            assert found is not None
            assert (found.key, found.spec) == (session.key, session.spec)
            assert (found.generation, found.open) == (session.generation, session.state)
            assert found.last_access_ts == session.access_ms
            cursors = msgspec.json.decode(found.cursors, type=Cursors)
            assert cursors == session.cursors
            openings = msgspec.json.decode(found.openings, type=list[tuple[int, Cursors]])
            assert openings == session.openings

    @invariant()
    def memory_holds_what_is_open(self) -> None:
        watches = self.desk.driver.engine.watches
        sessions = self.oracle.sessions.values()
        assert watches.count == len(sessions)
        assert len(watches) == sum(session.state == OPEN for session in sessions)
        assert len(watches.claimed) == sum(bool(session.claims) for session in sessions)

    def command(self, move: Move) -> Command:
        kind, wid, worker, lag, cursors, flag = move
        session = self.oracle.sessions.get(wid)
        generation = max((session.generation if session else 0) + lag, 0)
        match kind:
            case "create":
                return CreateWatch(wid, "key", f'"{wid}"', cursors)
            case "attach":
                known = cursors if flag and lag else None
                return AttachWatch(wid, "key", worker, known, generation)
            case "intrude":
                return AttachWatch(wid, "other", worker, None)
            case "hold":
                return HoldWatch(wid, generation)
            case "detach":
                return DetachWatch(wid, generation, cursors)
            case "save":
                return SaveCursors([(wid, generation, cursors), (wid, generation + 1, {})])
            case "join":
                return Join(worker)
        return Leave(worker)

    def post(self, commands: Sequence[Command]) -> None:
        self.send(commands)
        self.desk.settle()
        self.compare()

    def send(self, commands: Sequence[Command]) -> None:
        tickets = self.desk.send(*commands)
        for ticket, command in zip(tickets, commands, strict=True):
            self.oracle.run(ticket, command)
        self.waiting.update(tickets)

    def compare(self) -> None:
        """What the oracle answered is answered, and nothing else is."""
        answered = {ticket for ticket in self.waiting if not self.desk.waits(ticket)}
        assert answered == set(self.oracle.answers) & self.waiting
        for ticket in answered:
            assert self.desk.take(ticket) == self.oracle.answers.pop(ticket)
        self.waiting -= answered
        assert not self.oracle.answers


TestWatchMachine = WatchMachine.TestCase
TestWatchMachine.settings = settings(
    PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")], stateful_step_count=30
)

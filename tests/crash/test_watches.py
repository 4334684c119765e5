"""Watch sessions survive an engine that is killed at any moment.

One directory ages through all rounds. In each, a process works on sessions of its own and is
killed when a chosen number of answers has come; then the directory is recovered here, and
every session that it ever had is compared with what was begun and what was answered.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.crash.test_kill import started
from tests.crash.victim import settings_for
from tests.faults.desk import Desk
from tests.faults.driver import Driver
from topicsd.model.clock import SystemClock
from topicsd.model.commands import AttachWatch, Cursors, DetachWatch, Join, WatchAttached

SEED = 7
ROUNDS = 14
ANSWERS_MAX = 300
# A kind of command whose answer promises that the catalog has it.
PROMISED = ("create", "attach", "detach")


class Known:
    """What the parent knows of one session."""

    def __init__(self) -> None:
        # The last command begun, and whether it was answered.
        self.last = ("", False)
        self.begun_seq = self.promised_seq = 0
        self.begun_attaches = self.answered_generation = 0
        self.created = False
        # Cursors by generation, as attaches were answered.
        self.openings: dict[int, int] = {}

    def begin(self, kind: str, seq: int) -> None:
        self.last = (kind, False)
        self.begun_seq = seq
        self.begun_attaches += kind == "attach"

    def answer(self, kind: str, seq: int, generation: int) -> None:
        self.last = (kind, True)
        self.created = True
        self.answered_generation = generation
        if kind in PROMISED:
            self.promised_seq = seq
        if kind == "attach":
            self.openings[generation] = seq

    def compare(self, wid: str, found: WatchAttached) -> None:
        """Insist that nothing answered is lost, and that nothing else was made up."""
        before = found.generation - 1
        seq = found.cursors["topic"][1]
        assert found.spec == f'"{wid}"'
        assert self.answered_generation <= before <= self.begun_attaches
        assert self.promised_seq <= seq <= self.begun_seq
        assert [each for each, _ in found.openings] == list(
            range(max(found.generation - 3, 1), found.generation + 1)
        )
        for generation, cursors in found.openings:
            expected = self.openings.get(generation, cursors["topic"][1])
            assert cursors["topic"][1] == expected
        match self.last:
            case ("detach", True) | ("create", True):
                assert found.clean
            case ("attach", True) | ("save", True | False):
                assert not found.clean


def test_kills_lose_no_session_and_invent_none(tmp_path: Path) -> None:
    """What was answered is there; cursors and generations never go back."""
    rng = random.Random(SEED)
    known: dict[str, Known] = {}
    answers = 0
    for number in range(1, ROUNDS + 1):
        with started(tmp_path, program="tests.crash.watcher") as watcher:
            assert watcher.await_ready()
            watcher.order("load", number)
            answers_max = int(ANSWERS_MAX ** rng.random())
            answered = 0
            for word, wid, kind, *numbers in watcher.lines():
                session = known.setdefault(wid, Known())
                if word == "b":
                    session.begin(kind, int(numbers[0]))
                else:
                    session.answer(kind, *map(int, numbers))
                    answered += 1
                if answered >= answers_max:
                    watcher.kill()
            answers += answered
        _recover_and_compare(tmp_path, known, rng)
    assert answers > ROUNDS * 15


def _recover_and_compare(directory: Path, known: dict[str, Known], rng: random.Random) -> None:
    """Attach to every session; leave each as one that was just detached, or as it is."""
    desk = Desk(Driver(settings_for(directory), clock=SystemClock()))  # type: ignore[arg-type]
    desk.ask(Join(2))
    there = 0
    for wid, session in known.items():
        found = desk.ask(AttachWatch(wid, "key", 2, None))
        if not isinstance(found, WatchAttached):
            assert not session.created, f"{wid} is lost: {found}"
            continue
        there += 1
        session.compare(wid, found)
        cursors: Cursors = {"topic": (1, session.begun_seq + 1)}
        session.begin("attach", found.cursors["topic"][1])
        session.begun_attaches = found.generation
        session.answer("attach", found.cursors["topic"][1], found.generation)
        if rng.random() < 0.5:
            desk.ask(DetachWatch(wid, found.generation, cursors))
            session.begin("detach", cursors["topic"][1])
            session.answer("detach", cursors["topic"][1], found.generation)
    assert desk.driver.engine.watches.count == there
    if rng.random() < 0.5:
        desk.driver.abandon()
    else:
        desk.driver.close()

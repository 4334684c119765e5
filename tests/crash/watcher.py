"""The process that gets killed with watch sessions in it.

Started as `python -m tests.crash.watcher DIRECTORY`. It reads orders like `tests.crash.victim`
and knows one: `["load", seed]`, create sessions, attach, save and detach for ever. One line for
each thing that happened, before it does the next:

    ready                             recovery is over
    b <wid> <kind> <seq>              a command is about to be applied; its cursors say seq
    a <wid> <kind> <seq> <generation> it was answered

The seqs of a session only rise. A session has one command at a time on its way, saves aside;
many sessions do.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.crash.victim import settings_for, tell
from topicsd.engine import Engine
from topicsd.model.clock import SystemClock
from topicsd.model.commands import (
    AttachWatch,
    Command,
    CreateWatch,
    Cursors,
    DetachWatch,
    Join,
    Reply,
    SaveCursors,
    WatchAttached,
)
from topicsd.storage.fs import Files

SESSIONS = 12
OUTSTANDING_MAX = 8


class Step(NamedTuple):
    wid: str
    kind: str
    seq: int


class Life:
    """Where one session is."""

    def __init__(self, wid: str) -> None:
        self.wid = wid
        self.next = "create"
        self.generation = 0
        self.seq = 0
        self.busy = False

    def step(self, rng: random.Random) -> tuple[Step, Command]:
        """What happens to it next; cursors move with everything but an attach."""
        kind = self.next
        if kind == "detach" and rng.random() < 0.5:
            kind = "save"
        if kind != "attach":
            self.seq += 1
        step = Step(self.wid, kind, self.seq)
        self.busy = True
        return step, self._command(kind)

    def note(self, step: Step, reply: Reply) -> None:
        self.busy = False
        if isinstance(reply, WatchAttached):
            self.generation = reply.generation
        self.next = {"create": "attach", "attach": "detach", "detach": "attach"}.get(
            step.kind, self.next
        )

    def _command(self, kind: str) -> Command:
        cursors: Cursors = {"topic": (1, self.seq)}
        match kind:
            case "create":
                return CreateWatch(self.wid, "key", f'"{self.wid}"', cursors)
            case "attach":
                return AttachWatch(self.wid, "key", 1, None)
            case "save":
                return SaveCursors([(self.wid, self.generation, cursors)])
        return DetachWatch(self.wid, self.generation, cursors)


class Watcher:
    """An engine, its sessions, and the pipe to the parent."""

    def __init__(self, directory: Path) -> None:
        self._rung = threading.Event()
        self._engine = Engine(settings_for(directory), Files(), SystemClock(), self._rung.set)
        self._engine.recover()
        self._engine.apply([(None, Join(1))])
        self._waiting = 0

    def obey(self, orders: Iterable[str]) -> None:
        tell(["ready"])
        for line in orders:
            name, *values = json.loads(line)
            getattr(self, name)(*values)

    def load(self, seed: int) -> None:
        rng = random.Random(seed)
        lives = {f"{seed}-{number}": Life(f"{seed}-{number}") for number in range(SESSIONS)}
        while True:
            idle = [life for life in lives.values() if not life.busy]
            chosen = rng.sample(idle, min(len(idle), rng.randint(1, 4)))
            batch = [life.step(rng) for life in chosen]
            tell([f"b {step.wid} {step.kind} {step.seq}" for step, _ in batch])
            self._waiting += len(batch)
            self._answer(lives, self._engine.apply(batch))
            self._settle(lives)

    def _settle(self, lives: dict[str, Life]) -> None:
        self._answer(lives, self._engine.release())
        while self._waiting > OUTSTANDING_MAX:
            self._rung.wait()
            self._rung.clear()
            self._answer(lives, self._engine.release())

    def _answer(self, lives: dict[str, Life], replies: list[tuple[Step, Reply]]) -> None:
        self._waiting -= len(replies)
        for step, reply in replies:
            life = lives[step.wid]
            life.note(step, reply)
            tell([f"a {step.wid} {step.kind} {step.seq} {life.generation}"])


if __name__ == "__main__":
    Watcher(Path(sys.argv[1])).obey(sys.stdin)

"""An engine killed with SIGKILL at any moment loses nothing that it answered.

One directory ages through all rounds. In each round a victim recovers it, the parent
compares what a reader sees with everything it knows, the victim takes load, and dies: when
a chosen number of answers has come, or at a chosen file operation (a seal, a rotation, the
removal of a WAL file), and in some rounds again and again inside the next recovery. Killing
a process keeps the page cache, so the promise covers the classes disk and memory too.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crash.ledger import Ledger, Round
from tests.crash.victim import settings_for
from topicsd.check import check_data_dir
from topicsd.model.clock import SystemClock
from topicsd.reader import Reader
from topicsd.storage.fs import Files

SEED = 20
ROUNDS = 52
CLOSE_EVERY = 10
ANSWERS_MAX = 250
# File operations of seals, rotations, checkpoints and commits, to die at.
TRAPS = ("truncate", "allocate", "remove", "sync_directory", "sync", "write_at")
EXIT_TIMEOUT_S = 30


class Victim:
    """A running victim, as its parent sees it."""

    def __init__(self, directory: Path, die_in_recovery_at: int | None, program: str) -> None:
        command = [sys.executable, "-m", program, str(directory)]
        if die_in_recovery_at is not None:
            command.append(str(die_in_recovery_at))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders, self._lines = self._process.stdin, self._process.stdout

    def await_ready(self) -> bool:
        """Whether it recovered; False when it died on the way."""
        return self._lines.readline() == "ready\n"

    def order(self, *order: Any) -> None:
        print(json.dumps(order), file=self._orders, flush=True)

    def lines(self) -> Iterator[list[str]]:
        """What it reports, until it is dead: complete lines only."""
        for line in self._lines:
            if line.endswith("\n"):
                yield line.split()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Its exit code, once it ended."""
        return self._process.wait(EXIT_TIMEOUT_S)

    def close(self) -> None:
        """Kill it if it still runs, and close the pipes."""
        self.kill()
        self.wait()
        self._orders.close()
        self._lines.close()


@contextmanager
def started(
    directory: Path, die_in_recovery_at: int | None = None, program: str = "tests.crash.victim"
) -> Iterator[Victim]:
    """A victim that is gone afterwards, whatever happens."""
    victim = Victim(directory, die_in_recovery_at, program)
    try:
        yield victim
    finally:
        victim.close()


def test_kills_lose_reuse_and_invent_nothing(tmp_path: Path) -> None:
    """Every answered record is there once, at its seq, with its bytes; no other is."""
    rng = random.Random(SEED)
    ledger = Ledger()
    for number in range(1, ROUNDS + 1):
        if number % CLOSE_EVERY == 0:
            _verify_and_close(tmp_path, ledger)
        with started(tmp_path) as victim:
            assert victim.await_ready()
            ledger.verify(_reader(tmp_path))
            _retry(victim, ledger)
            _load_until_dead(victim, ledger.begin(SEED * 1000 + number), rng)
        if rng.random() < 0.25:
            _die_in_recovery(tmp_path, rng)
            ledger.forget_ephemeral_heads()
    _verify_and_close(tmp_path, ledger)
    assert ledger.answered > ROUNDS * 20


def _reader(directory: Path) -> Reader:
    return Reader(settings_for(directory), Files(), SystemClock())


def _retry(victim: Victim, ledger: Ledger) -> None:
    """Send keyed writes again, answered or not: each ends up there exactly once."""
    writes = ledger.list_retries()
    if writes:
        victim.order("retry", writes)
        ledger.note_retried(list(itertools.islice(victim.lines(), len(writes))))


def _load_until_dead(victim: Victim, current: Round, rng: random.Random) -> None:
    """Let the victim work and kill it, or let it fall into a trap."""
    answers = int(ANSWERS_MAX ** rng.random())
    trap = [rng.choice(TRAPS), rng.randint(1, 25)] if rng.random() < 0.4 else None
    victim.order("load", current.seed, trap)
    for line in victim.lines():
        current.note(line)
        if len(current.answers) >= (ANSWERS_MAX if trap else answers):
            victim.kill()


def _die_in_recovery(directory: Path, rng: random.Random) -> None:
    """Kill up to three recoveries in a row at some file operation."""
    for _ in range(rng.randint(1, 3)):
        with started(directory, rng.randint(1, 30)) as victim:
            victim.await_ready()


def _verify_and_close(directory: Path, ledger: Ledger) -> None:
    """A clean stop after a recovery leaves a directory without any inconsistency."""
    with started(directory) as victim:
        assert victim.await_ready()
        ledger.verify(_reader(directory))
        _retry(victim, ledger)
        victim.order("close")
        assert victim.wait() == 0
    assert check_data_dir(directory / "data", lambda line: None) == []

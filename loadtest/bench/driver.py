"""The engine and the reader inside this process, for what is promised below HTTP.

Also the fast way to fill a data directory: commands of 10,000 records, rendered once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from loadtest.bench.payload import append_command
from loadtest.bench.server import BenchError
from topicsd.engine import Engine
from topicsd.model.clock import SystemClock
from topicsd.model.commands import Appended, Command, Reply
from topicsd.model.settings import Settings
from topicsd.reader import Reader
from topicsd.serve.engine_process import SWITCH_INTERVAL_S
from topicsd.storage.fs import Files

LOAD_BATCH_RECORDS = 10_000
REPLY_TIMEOUT_S = 60.0
TICK_S = 0.1


class Round(NamedTuple):
    """Commands completed in a stretch of time."""

    completed: int
    elapsed_s: float

    @property
    def rate(self) -> float:
        return self.completed / self.elapsed_s


class Driver:
    """Keeps a number of commands outstanding on an engine, as a host process would."""

    def __init__(self, engine: Engine, released: threading.Event) -> None:
        self.engine = engine
        self._released = released
        self._next_tick_s = 0.0

    def call(self, command: Command) -> Reply:
        """Apply one command and wait for its reply."""
        replies = self._step([(0, command)])
        while not replies:
            replies = self._step([])
        return _checked(replies[0][1])

    def keep_outstanding(self, commands: Sequence[Command], measure_s: float) -> Round:
        """One writer per command, each repeating its own as soon as it is answered."""
        batch: list[tuple[int, Command]] = list(enumerate(commands))
        completed = 0
        begun_s = perf_counter()
        while (elapsed_s := perf_counter() - begun_s) < measure_s:
            replies = self._step(batch)
            completed += len(replies)
            batch = [(writer, commands[writer]) for writer, reply in replies if _checked(reply)]
        self._drain(len(commands) - len(batch))
        return Round(completed, elapsed_s)

    def load(self, topic: str, records: int) -> float:
        """Append `records` records to `topic`; returns the seconds it took."""
        command = append_command(topic, LOAD_BATCH_RECORDS)
        begun_s = perf_counter()
        for _ in range(records // LOAD_BATCH_RECORDS):
            self.call(command)
        return perf_counter() - begun_s

    def load_singly(self, topic: str, records: int) -> None:
        """Append `records` records in commits of one, so that each has a frame of its own."""
        command = append_command(topic, 1)
        for _ in range(records):
            self.call(command)

    def _drain(self, outstanding: int) -> None:
        while outstanding > 0:
            outstanding -= len(self._step([]))

    def _step(self, batch: list[tuple[int, Command]]) -> list[tuple[int, Reply]]:
        """Apply a batch; when nothing is ready, wait for a sync to finish."""
        self._tick()
        replies = self.engine.apply(batch) if batch else []
        self.engine.take_moved()
        if not replies:
            self._wait()
        if self._released.is_set():
            self._released.clear()
            replies = [*replies, *self.engine.release()]
        return replies

    def _tick(self) -> None:
        if perf_counter() >= self._next_tick_s:
            self.engine.tick()
            self._next_tick_s = perf_counter() + TICK_S

    def _wait(self) -> None:
        deadline_s = perf_counter() + REPLY_TIMEOUT_S
        while not self._released.wait(TICK_S):
            self._tick()
            if perf_counter() > deadline_s:
                raise BenchError(f"no reply from the engine in {REPLY_TIMEOUT_S:.0f} s")


def _checked(reply: Reply) -> Appended:
    if not isinstance(reply, Appended):
        raise BenchError(f"the engine refused: {reply}")
    return reply


@contextmanager
def open_driver(settings: Settings) -> Iterator[Driver]:
    """An engine over a data directory, closed cleanly at the end."""
    released = threading.Event()
    engine = Engine(settings, Files(), SystemClock(), released.set)
    interval_s = sys.getswitchinterval()
    # As in the engine's own process, where threads of a checkpoint run beside it, too.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    engine.recover()
    try:
        yield Driver(engine, released)
    finally:
        engine.close()
        sys.setswitchinterval(interval_s)


def open_reader(settings: Settings) -> Reader:
    return Reader(settings, Files(), SystemClock())


def settings_for(home: Path) -> Settings:
    """Default settings over the data directory a `TopicsServer` of `home` would use."""
    return Settings(data_dir=home / "data", ephemeral_dir=home / "ephemeral", max_topics=0)

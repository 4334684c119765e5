"""The process that gets killed: an engine under load that reports what was answered.

Started as `python -m tests.crash.victim DIRECTORY [CALLS]`; with CALLS it kills itself at
that changing file operation of its recovery. It reads orders from standard input, one JSON
array a line, and writes one line for each thing that happened, before it does the next:

    ready                      recovery is over
    b <batch>                  a batch is about to be applied
    a <batch> <slot> <first> <last> <deduped>    an append was answered
    d <batch> <slot>           a deletion was answered
    f <batch> <slot> <code>    a command was refused

Orders: `["retry", [[seed, batch, slot], ...]]` sends old commands again, answered by their
number in the list as the batch, `["load", seed, trap]`
applies batches until the end (`trap` is null or [file operation, n]: die at the n-th such
call), `["close"]` stops cleanly. What a batch holds depends on its seed and number alone, so
the parent knows it without being told.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from topicsd.engine import Engine
from topicsd.model.clock import SystemClock
from topicsd.model.commands import Append, Appended, Command, DeleteTopic, Failed, Reply
from topicsd.model.record import pack_record
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig
from topicsd.storage.fs import Files

OUTSTANDING_MAX = 64
BATCHES_PER_CHECKPOINT = 12
DAY_MS = 86_400_000

# Topics that stay, by name; `keyed` ones take writes with idempotency keys only.
STAYING = ("fsync-1", "fsync-2", "disk-1", "disk-2", "memory-1", "ephemeral-1")
KEYED = ("keyed-fsync", "keyed-disk", "keyed-memory")
# Topics that are deleted and written again.
COMING = ("come-fsync", "come-disk", "come-memory")
CHANGING = (
    "write_at",
    "allocate",
    "truncate",
    "sync",
    "sync_directory",
    "make_directory",
    "rename",
    "remove",
    "remove_directory",
)


class Write(NamedTuple):
    """One append of the load."""

    topic: str
    contents: list[bytes]
    key: str | None


class Deletion(NamedTuple):
    topic: str


Step = Write | Deletion


def settings_for(directory: Path) -> Settings:
    """Limits so small that every kind of file turns over all the time."""
    return Settings(
        data_dir=directory / "data",
        ephemeral_dir=directory / "ephemeral",
        cold_dir=directory / "cold",
        hot_retain_segments=1,
        segment_max_events=40,
        segment_max_bytes=8192,
        wal_file_bytes=65536,
        wal_shards=2,
        wal_sync_interval_ms=2,
        checkpoint_bytes=1 << 17,
        topic_cache=4,
        open_segments=8,
    )


def durability_of(topic: str) -> Any:
    return next(word for word in topic.split("-") if word in _CLASSES)


_CLASSES = ("fsync", "disk", "memory", "ephemeral")


def plan_batch(seed: int, batch: int) -> list[Step]:
    """The steps of one batch; the same for the same numbers, in every process."""
    rng = random.Random(f"{seed}/{batch}")
    return [_plan_step(rng, f"{seed}/{batch}/{slot}") for slot in range(rng.randint(1, 6))]


def _plan_step(rng: random.Random, label: str) -> Step:
    kind = rng.random()
    if kind < 0.05:
        return Deletion(rng.choice(COMING))
    if kind < 0.25:
        return Write(rng.choice(COMING), _contents(rng, label), None)
    if kind < 0.45:
        return Write(rng.choice(KEYED), _contents(rng, label), label)
    return Write(rng.choice(STAYING), _contents(rng, label), None)


def _contents(rng: random.Random, label: str) -> list[bytes]:
    """Payloads that name their write and their place in it."""
    count = rng.choice((1, 1, 1, 1, 3, 10, 60))
    size = rng.choice((0, 20, 200, 200, 1500)) if count < 60 else 20
    return [b'"%s/%d %s"' % (label.encode(), place, b"." * size) for place in range(count)]


def command_of(step: Step) -> Command:
    """The command a worker would send for a step."""
    if isinstance(step, Deletion):
        return DeleteTopic(step.topic, False)
    durability = durability_of(step.topic)
    packed = [pack_record(data, None, None, None) for data in step.contents]
    return Append(
        step.topic,
        len(packed),
        b"".join(rest for rest, _ in packed),
        b"".join(row for _, row in packed),
        sum(map(len, step.contents)),
        config=TopicConfig(
            durability=durability,
            durable=durability == "fsync",
            idempotency_window_ms=DAY_MS,
        ),
        idempotency_key=step.key,
    )


class TrapFiles(Files):
    """Kills its own process at a chosen call."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._left = 0
        self._lock = threading.Lock()

    def arm(self, names: tuple[str, ...], calls: int) -> None:
        self._names, self._left = names, calls

    def disarm(self) -> None:
        self._names = ()

    def before(self, name: str) -> None:
        if name not in self._names:
            return
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _trapped(name: str) -> Callable[..., Any]:
    real = getattr(Files, name)

    def call(self: TrapFiles, *values: Any, **named: Any) -> Any:
        self.before(name)
        return real(self, *values, **named)

    return call


for _name in CHANGING:
    setattr(TrapFiles, _name, _trapped(_name))


class Victim:
    """An engine, its load, and the pipe to the parent."""

    def __init__(self, directory: Path, die_in_recovery_at: int | None) -> None:
        self._files = TrapFiles()
        self._rung = threading.Event()
        self._engine = Engine(settings_for(directory), self._files, SystemClock(), self._rung.set)
        if die_in_recovery_at is not None:
            self._files.arm(CHANGING, die_in_recovery_at)
        self._engine.recover()
        self._files.disarm()
        self._waiting = 0

    def obey(self, orders: Iterable[str]) -> None:
        tell(["ready"])
        for line in orders:
            name, *values = json.loads(line)
            getattr(self, name)(*values)

    def retry(self, writes: list[tuple[int, int, int]]) -> None:
        """Send old commands again, all in one batch, and wait for the answers."""
        steps = [plan_batch(seed, batch)[slot] for seed, batch, slot in writes]
        self._apply([((number, 0), command_of(step)) for number, step in enumerate(steps)])
        self._settle(0)

    def load(self, seed: int, trap: tuple[str, int] | None) -> None:
        """Apply batches for ever, with many of them unanswered at any time."""
        if trap is not None:
            self._files.arm((trap[0],), trap[1])
        for batch in itertools.count():
            steps = plan_batch(seed, batch)
            tell([f"b {batch}"])
            self._apply([((batch, slot), command_of(step)) for slot, step in enumerate(steps)])
            if batch % BATCHES_PER_CHECKPOINT == 0:
                self._engine.checkpoints.ask()
            self._settle(OUTSTANDING_MAX)

    def close(self) -> None:
        self._engine.close()
        sys.exit(0)

    def _apply(self, batch: list[tuple[tuple[int, int], Command]]) -> None:
        self._waiting += len(batch)
        self._answer(self._engine.apply(batch))

    def _settle(self, waiting_max: int) -> None:
        """Take answers until at most `waiting_max` are missing."""
        self._answer(self._engine.release())
        while self._waiting > waiting_max:
            self._rung.wait()
            self._rung.clear()
            self._answer(self._engine.release())

    def _answer(self, replies: list[tuple[tuple[int, int], Reply]]) -> None:
        self._waiting -= len(replies)
        tell([f"{_outcome(reply, *ticket)}" for ticket, reply in replies])


def _outcome(reply: Reply, batch: int, slot: int) -> str:
    if isinstance(reply, Appended):
        return f"a {batch} {slot} {reply.first_seq} {reply.last_seq} {int(reply.deduped)}"
    if isinstance(reply, Failed):
        return f"f {batch} {slot} {reply.code}"
    return f"d {batch} {slot}"


def tell(lines: list[str]) -> None:
    """Hand lines to the parent before anything else happens."""
    if lines:
        os.write(sys.stdout.fileno(), "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    Victim(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None).obey(sys.stdin)

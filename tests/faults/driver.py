"""An engine driven in-process: commands in, replies out, and a sudden end when asked for."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.tracked import TrackedFiles
from topicsd.check import check_data_dir
from topicsd.engine import Engine
from topicsd.model.commands import (
    Append,
    Appended,
    CatchUp,
    CaughtUp,
    Command,
    Failed,
    PutRouter,
    PutTopic,
    Reply,
    RouterPut,
)
from topicsd.model.record import pack_record
from topicsd.model.router import RouterConfig
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig

START_MS = 1_700_000_000_000
REPLY_TIMEOUT_S = 30
# In memory: these tests are about which calls are made, not about what a disk does.
FAST = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


class StillClock:
    """Time moves only when told to."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now = now_ms
        self._ticks = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        self._ticks += 1
        return self._ticks

    def advance(self, elapsed_ms: int) -> None:
        self.now += elapsed_ms
        self._ticks += elapsed_ms * 1000


@contextmanager
def fast_directory() -> Iterator[Path]:
    """A directory in memory that is gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="topicsd-faults-", dir=FAST))
    try:
        yield home
    finally:
        shutil.rmtree(home)


def small_settings(home: Path, **changes: Any) -> Settings:
    """Limits so small that a few records make segments roll and WAL files rotate."""
    chosen: dict[str, Any] = {
        "segment_max_events": 300,
        "segment_max_bytes": 1 << 20,
        "wal_file_bytes": 1 << 16,
        "wal_shards": 2,
        "wal_sync_interval_ms": 1,
        "open_segments": 8,
        "checkpoint_interval_ms": 86_400_000,
    }
    return Settings(
        data_dir=home / "data", ephemeral_dir=home / "ephemeral", **{**chosen, **changes}
    )


class Driver:
    """One engine, from its recovery to its end."""

    def __init__(
        self,
        settings: Settings,
        files: TrackedFiles | None = None,
        clock: StillClock | None = None,
    ) -> None:
        self.settings = settings
        self.files = files or TrackedFiles()
        self.clock = clock or StillClock()
        self._stopped = False
        self._rung = threading.Event()
        self.engine = Engine(settings, self.files, self.clock, self._rung.set)
        try:
            self.summary = self.engine.recover()
        except BaseException:
            self.abandon()
            raise

    def run(self, *commands: Command) -> list[Reply]:
        """Apply commands as one batch and wait for every reply."""
        tickets = [object() for _ in commands]
        done = dict(self.engine.apply(list(zip(tickets, commands, strict=True))))
        while not all(ticket in done for ticket in tickets):
            fresh = self.engine.release()
            if self.engine.awaited and self.engine.forwarding:
                fresh += self.engine.forward()
            done.update(fresh)
            if not fresh and not (self.engine.awaited and self.engine.forwarding):
                assert self._rung.wait(REPLY_TIMEOUT_S), "a reply is missing"
                self._rung.clear()
        return [done[ticket] for ticket in tickets]

    def put(self, topic: str, **config: Any) -> Reply:
        return self.run(PutTopic(topic, TopicConfig(**config), "type" in config))[0]

    def route(self, source: str, dest: str, name: str = "", **fields: Any) -> Reply:
        """Put a router, which must work."""
        config = RouterConfig(source=source, dest=dest, **fields)
        reply = self.run(PutRouter(name or f"{source}->{dest}", config, True))[0]
        assert isinstance(reply, RouterPut), reply
        return reply

    def catch_up(self, dest: str) -> bool:
        """Let copies be made; whether they all are."""
        reply = self.run(CatchUp(dest))[0]
        assert isinstance(reply, CaughtUp), reply
        return reply.done

    def append(self, topic: str, *payloads: bytes, **options: Any) -> Appended:
        """Append and insist on success."""
        reply = self.run(append(topic, *payloads, **options))[0]
        assert isinstance(reply, Appended), reply
        return reply

    def refuse(self, command: Command) -> Failed:
        """Run a command and insist on its refusal."""
        reply = self.run(command)[0]
        assert isinstance(reply, Failed), reply
        return reply

    def checkpoint(self) -> None:
        """Take a checkpoint and wait until it is finished."""
        self.engine.checkpoints.ask()
        self.engine.tick()
        while (job := self.engine.checkpoints._job) is not None:
            job.join()
            self.engine.tick()

    def move(self) -> None:
        """Let every segment that should be cold get there."""
        tiering = self.engine.tiering
        self.engine.tick()
        while tiering._move is not None:
            tiering._move.join()
            self.engine.tick()

    def stop(self) -> None:
        """Stop cleanly."""
        self.engine.close()
        self._stopped = True

    def close(self) -> None:
        """Stop cleanly and insist on a consistent directory."""
        self.stop()
        assert problems(self.settings.data_dir) == []

    def abandon(self) -> None:
        """End like a killed process: what is written stays, nothing more is."""
        engine, files = self.engine, self.files
        if self._stopped:
            return
        files.die()
        checkpoints = getattr(engine, "checkpoints", None)
        if checkpoints is not None and checkpoints._job is not None:
            checkpoints._job.join()
        tiering = getattr(engine, "tiering", None)
        if tiering is not None:
            tiering.close()
        wal = getattr(engine, "wal", None)
        for part in [*(wal.shards if wal is not None else []), getattr(engine, "clerk", None)]:
            if part is not None:
                part.close()
        for name in ("board", "catalog"):
            if hasattr(engine, name):
                getattr(engine, name).close()
        files.bury()


def append(
    topic: str,
    *payloads: bytes,
    tag: str | None = None,
    node: str | None = None,
    meta: bytes | None = None,
    **options: Any,
) -> Append:
    """An append of records that share their tag, node and meta."""
    packed = [pack_record(payload, tag, node, meta) for payload in payloads]
    size = sum(map(len, payloads)) + len(payloads) * len(meta or b"")
    forms, rows = (b"".join(parts) for parts in zip(*packed, strict=True))
    return Append(topic, len(payloads), forms, rows, size, **options)


def problems(data_dir: Path) -> list[str]:
    """What `topicsd check` finds."""
    found = check_data_dir(data_dir, lambda line: None)
    return [f"{problem.file}:{problem.position}: {problem.message}" for problem in found]

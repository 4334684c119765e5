"""An engine and a reader over one small directory, with restarts, crashes and a clock."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from tests.property.mortal import CHECKPOINT, MortalFiles, StillClock
from topicsd.check import check_data_dir
from topicsd.engine import Engine, RecoverySummary
from topicsd.model.commands import Command, Reply
from topicsd.model.settings import Settings
from topicsd.reader import Reader
from topicsd.storage.fs import Files

START_MS = 1_700_000_000_000
REPLY_TIMEOUT_S = 30
# A directory in memory: nothing here is about what a sync does.
FAST = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


class Rig:
    """One data directory in use."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="topicsd-property-", dir=FAST))
        self.settings = Settings(
            data_dir=self.home / "data",
            ephemeral_dir=self.home / "ephemeral",
            cold_dir=self.home / "cold",
            hot_retain_segments=1,
            segment_max_events=50,
            segment_max_bytes=8192,
            wal_file_bytes=65536,
            wal_shards=2,
            topic_cache=2,
            open_segments=8,
            checkpoint_interval_ms=86_400_000,
        )
        self.clock = StillClock(START_MS)
        self.reader = Reader(self.settings, Files(), self.clock)
        self.start()

    def start(self) -> RecoverySummary:
        self.files = MortalFiles()
        self.rung = threading.Event()
        self.engine = Engine(self.settings, self.files, self.clock, self.rung.set)
        return self.engine.recover()

    def run(self, batches: Sequence[Sequence[Command]]) -> list[Reply]:
        """Apply all batches back to back, then wait for every reply; replies in order."""
        replies: dict[int, Reply] = {}
        ticket = 0
        for batch in batches:
            numbered = list(enumerate(batch, ticket))
            replies.update(self.engine.apply(numbered))
            ticket += len(numbered)
        replies.update(self.take_replies(ticket - len(replies)))
        return [replies[number] for number in range(ticket)]

    def take_replies(self, missing: int) -> dict[int, Reply]:
        """Wait for that many replies."""
        replies: dict[int, Reply] = {}
        while len(replies) < missing:
            replies.update(self.engine.release())
            if len(replies) < missing:
                assert self.rung.wait(REPLY_TIMEOUT_S), "a reply is missing"
                self.rung.clear()
        return replies

    def begin_checkpoint(self, stop_at: int | None) -> None:
        """Start a checkpoint; with `stop_at` it waits at that file operation."""
        self.finish_checkpoint()
        if stop_at is not None:
            self.files.stop_checkpoint_at(stop_at)
        self.engine.checkpoints.ask()
        self.engine.tick()

    def finish_checkpoint(self) -> None:
        """Let a running checkpoint end."""
        self.files.let_checkpoint_go()
        job = self.engine.checkpoints._job
        if job is not None:
            job.join()
            self.engine.tick()
        # Copied, but not cold before the next tick: what happens until then must count.
        self._join_move()

    def _join_move(self) -> None:
        move = self.engine.tiering._move
        if move is not None:
            move.join()

    def stop(self) -> list[str]:
        """Stop cleanly; return what `topicsd check` finds."""
        self.files.let_checkpoint_go()
        self.engine.close()
        problems = check_data_dir(self.settings.data_dir, lambda line: None)
        return [str(problem) for problem in problems]

    def crash(self) -> None:
        """Abandon the engine as a killed process would, and take its lock away."""
        engine, files = self.engine, self.files
        files.kill()
        job = engine.checkpoints._job
        if job is not None:
            job.join()
        self._join_move()
        for shard in engine.wal.shards:
            shard.close()
        engine.clerk.close()
        engine.board.close()
        engine.catalog.close()
        files.bury()

    def crash_in_checkpoint(self, call: int) -> None:
        """Die at a file operation of a checkpoint, or right after it when it has fewer."""
        self.finish_checkpoint()
        self.files.die_at(CHECKPOINT, call)
        self.engine.checkpoints.ask()
        self.engine.tick()
        job = self.engine.checkpoints._job
        assert job is not None
        job.join()
        self.crash()

    def crash_in_apply(
        self, batches: Sequence[Sequence[Command]], call: int, *, lose_catalog: bool
    ) -> None:
        """Die at a file operation of some batches, or after them, before any reply is taken."""
        self.files.die_at(threading.current_thread().name, call)
        # Nothing gets to the catalog meanwhile when it is to be lost.
        with self.engine.clerk._wake if lose_catalog else nullcontext():
            try:
                for batch in batches:
                    self.engine.apply(list(enumerate(batch)))
            except OSError:
                assert self.files.dead
            if lose_catalog:
                self.engine.clerk._waiting.clear()
        self.crash()

    def crash_in_recovery(self, call: int) -> None:
        """Start and die at a file operation of the recovery; no engine runs afterwards."""
        self.files = MortalFiles()
        self.engine = Engine(self.settings, self.files, self.clock, self.rung.set)
        self.files.die_at(threading.current_thread().name, call)
        try:
            self.engine.recover()
        except OSError:
            assert self.files.dead
            self._abandon_recovery()
        else:
            self.crash()

    def _abandon_recovery(self) -> None:
        """Close what exists of an engine that never got ready."""
        engine = self.engine
        wal = getattr(engine, "wal", None)
        for shard in wal.shards if wal is not None else []:
            shard.close()
        for part in ("clerk", "board", "catalog"):
            if hasattr(engine, part):
                getattr(engine, part).close()
        self.files.bury()

    def remove(self) -> None:
        """Close the reader and remove everything."""
        self.reader.board.close()
        self.reader._topics._catalog.close()
        shutil.rmtree(self.home)

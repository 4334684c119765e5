"""The cold tier (DESIGN 5.6): older sealed segments move to a second directory.

Of each log the newest sealed segments stay hot (TOPICS_HOT_RETAIN_SEGMENTS and _BYTES, the
stricter wins). Older ones are copied and synced on a thread of their own, one log at a time.
The switch is made in the engine thread: the hot .idx goes, and the board shows a new list of
segments. Until then every read and delete uses the hot files; a segment in which a record was
deleted while it was copied is copied again.

A crash leaves a segment hot, or in both places, of which the hot one counts, or cold with
files beside it that the next look at the log removes. A failing cold directory costs nothing
but a line in the log: segments stay hot and the move is tried again later.
"""

from __future__ import annotations

import logging
import threading
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from topicsd.engine.log import Log
from topicsd.model.settings import SettingsError
from topicsd.storage import place, segment
from topicsd.storage.catalog import MarkCold, SetMeta
from topicsd.storage.fs import Files

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

# So much is copied before the switch is made for what is copied.
MOVE_BYTES: Final = 256 << 20
COPY_BYTES: Final = 1 << 20
# Where the catalog keeps the last cold directory's path, for those who look without a server.
COLD_DIR: Final = "cold_dir"
RETRY_MS: Final = 60_000
# Logs looked at in one go, so that a start with many of them does not hold up the engine.
LOOKS_MAX: Final = 64

_log = logging.getLogger("topicsd.tiering")


class _Stopped(Exception):
    """The server stops in the middle of a copy."""


class Keep(NamedTuple):
    """What stays hot of each log: so many sealed segments, and bytes (0 is no limit)."""

    segments: int
    bytes: int

    def split(self, sizes: list[int]) -> int:
        """How many of the oldest segments leave, given the sizes of all, oldest first."""
        kept = total = 0
        for size in reversed(sizes):
            total += size
            if kept >= self.segments or (self.bytes and total > self.bytes):
                break
            kept += 1
        return len(sizes) - kept


class Move(threading.Thread):
    """Copies the segments of one log that should be cold; touches nothing readers see."""

    def __init__(
        self, files: Files, roots: tuple[Path, Path], log_id: int, bases: list[int], keep: Keep
    ) -> None:
        super().__init__(daemon=True, name="tiering")
        self._files = files
        self._hot = place.log_directory(roots[0], log_id)
        self._roots = roots
        self._bases = bases
        self._known = frozenset(bases)
        self._keep = keep
        self._cancelled = threading.Event()
        self.log_id = log_id
        self.copied: list[int] = []
        self.failure: OSError | None = None

    def cancel(self) -> None:
        self._cancelled.set()
        self.join()

    def run(self) -> None:
        try:
            self._remove_leftovers()
            self._copy_old()
        except (FileNotFoundError, _Stopped):
            pass  # the topic was deleted, or the server stops
        except OSError as failure:
            self.failure = failure

    def _remove_leftovers(self) -> None:
        """Files of segments that went cold, or were dropped: their .idx is gone."""
        names = set(self._files.list_directory(self._hot))
        for name in names:
            stem, _, suffix = name.partition(".")
            gone = f"{stem}.idx" not in names
            if gone and suffix in ("dat", "tag") and int(stem) in self._known:
                self._files.remove(self._hot / name)

    def _copy_old(self) -> None:
        here = set(segment.list_bases(self._files, self._hot))
        bases = [base for base in self._bases if base in here]
        sizes = [self._size(place.dat_path(self._roots[0], self.log_id, base)) for base in bases]
        moved = 0
        for base, size in list(zip(bases, sizes, strict=True))[: self._keep.split(sizes)]:
            if moved and moved + size > MOVE_BYTES:
                return
            self._copy(base)
            self.copied.append(base)
            moved += size

    def _copy(self, base: int) -> None:
        files, cold = self._files, self._roots[1]
        directory = place.log_directory(cold, self.log_id)
        files.make_directory(directory)
        sources = place.segment_paths(self._roots[0], self.log_id, base)
        targets = place.segment_paths(cold, self.log_id, base)
        # The .idx last: a segment is there when it is.
        for source, target in reversed(list(zip(sources, targets, strict=True))):
            if source.suffix != ".tag" or files.exists(source):
                self._copy_file(source, target)
        files.sync_directory(directory)
        files.sync_directory(cold)

    def _copy_file(self, source: Path, target: Path) -> None:
        files = self._files
        temporary = target.with_name(target.name + ".new")
        source_fd = files.open_readonly(source)
        try:
            target_fd = files.open(temporary, create=True)
            try:
                files.truncate(target_fd, 0)
                size = files.size(source_fd)
                for at in range(0, size, COPY_BYTES):
                    if self._cancelled.is_set():
                        raise _Stopped
                    files.write_at(target_fd, files.read_at(source_fd, COPY_BYTES, at), at)
                files.sync(target_fd)
            finally:
                files.close(target_fd)
            files.rename(temporary, target)
        except BaseException:
            files.remove(temporary)
            raise
        finally:
            files.close(source_fd)

    def _size(self, path: Path) -> int:
        fd = self._files.open_readonly(path)
        try:
            return self._files.size(fd)
        finally:
            self._files.close(fd)


class Tiering:
    """Which logs to look at, the move under way, and the switch after it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        settings = engine.settings
        self._enabled = settings.cold_dir is not None
        self._keep = Keep(settings.hot_retain_segments, settings.hot_retain_bytes)
        self._waiting: dict[int, None] = {}
        self._move: Move | None = None
        self._not_before_ms = 0
        # Segments in which a record was deleted while the move runs.
        self._changed: set[int] = set()
        # Logs whose catalog rows say which of their segments are cold.
        self._marked: set[int] = set()
        if settings.cold_dir is not None:
            self._waiting = dict.fromkeys(engine.catalog.logs_with_segments())
            path = str(settings.cold_dir.absolute())
            if engine.catalog.meta(COLD_DIR) != path:
                engine.catalog.commit([SetMeta(COLD_DIR, path)])

    def note_sealed(self, log_ids: set[int]) -> None:
        """Look at these logs: they have more sealed segments than before."""
        if self._enabled:
            self._waiting.update(dict.fromkeys(log_ids))

    def note_deleted(self, log_id: int, base_seq: int) -> None:
        """A record of a hot segment was deleted: a copy under way may have missed it."""
        if self._move is not None and self._move.log_id == log_id:
            self._changed.add(base_seq)

    def poll(self) -> None:
        """Finish a move that is done and begin the next one; called between batches."""
        if self._move is not None and not self._move.is_alive():
            move, self._move = self._move, None
            self._finish(move)
        if self._now_ms() < self._not_before_ms:
            return
        for log_id in list(islice(self._waiting, LOOKS_MAX)):
            if self._move is not None:
                return
            del self._waiting[log_id]
            self._begin(log_id)

    def close(self) -> None:
        """Give up the move under way: what is copied is not used."""
        if self._move is not None:
            self._move.cancel()

    def _begin(self, log_id: int) -> None:
        engine = self._engine
        log = engine.registry.find_by_id(log_id)
        if log is None or log.resident or log.spot.location != place.OWN_FILES:
            return
        # Rolled segments become movable once a checkpoint has sealed them.
        unsealed = engine.checkpoints.unsealed(log_id)
        listing = engine.shelf.list_segments(log_id, log.shelf_generation, tier=place.DISK)
        last = min([log.spot.base_seq, *unsealed])
        bases = [base for base in listing.bases if base < last]
        if log_id not in self._marked:
            # A crash may have come between a switch and its note in the catalog.
            self._marked.add(log_id)
            self._mark(log_id, sorted(listing.cold))
        hot = len(bases) - len(listing.cold)
        if listing.cold or hot > self._keep.segments or (hot and self._keep.bytes):
            roots = (engine.volumes[place.DISK].root, engine.volumes[place.COLD].root)
            self._changed = set()
            self._move = Move(engine.files, roots, log_id, bases, self._keep)
            self._move.start()

    def _finish(self, move: Move) -> None:
        engine = self._engine
        log = engine.registry.find_by_id(move.log_id)
        if log is None or log.resident:
            # Deleted, or made ephemeral, meanwhile: nothing of it may stay.
            directory = place.log_directory(engine.volumes[place.COLD].root, move.log_id)
            engine.checkpoints.discard([directory])
            return
        if move.copied:
            self._switch(log, move.copied)
        if move.failure is not None:
            self._not_before_ms = self._now_ms() + RETRY_MS
            self._waiting[move.log_id] = None
            _log.error(
                "segments stay hot log=%d problem=%s retry_ms=%d",
                move.log_id,
                move.failure.strerror or move.failure,
                RETRY_MS,
            )

    def _switch(self, log: Log, copied: list[int]) -> None:
        """Let the cold copies count: from here on there is no hot segment."""
        engine = self._engine
        hot, cold = engine.volumes[place.DISK], engine.volumes[place.COLD]
        switched = []
        for base in copied:
            idx = place.idx_path(hot.root, log.id, base)
            if base in self._changed or not engine.files.exists(idx):
                # Out of date, or dropped while it was copied.
                cold.drop_segment(log.id, base)
                continue
            hot.forget(log.id, base)
            engine.files.remove(idx)
            switched.append(base)
        log.shelf_generation += 1
        engine.board.write(log.row, log.to_row())
        self._mark(log.id, switched)
        # The rest of the files goes with the next look, and so does what was left for it.
        self._waiting[log.id] = None

    def _mark(self, log_id: int, bases: list[int]) -> None:
        if bases:
            self._engine.clerk.submit([MarkCold(log_id, bases)])

    def _now_ms(self) -> int:
        return self._engine.clock.monotonic_us() // 1000


def require_cold_root(engine: Engine) -> None:
    """Refuse to start without the directory that holds part of the records."""
    cold = engine.catalog.count_segments("cold")
    if not cold:
        return
    if engine.settings.cold_dir is None:
        raise SettingsError(f"{cold} segments are in a cold directory: set TOPICS_COLD_DIR to it")
    root = engine.roots[place.COLD]
    if not engine.files.exists(root):
        raise SettingsError(
            f"{cold} segments should be in TOPICS_COLD_DIR={engine.settings.cold_dir}, "
            f"but {root.name} is not there: mount it, or name the directory that has it"
        )

"""The writing side of segments: where a log's next record goes, and putting it there.

A volume is a root directory with pack files and a directory for each larger log. There is
the data directory's, one in memory for resident-only (ephemeral) logs, and, when there is a
cold directory, one for sealed segments that were moved there. `reserve` is called before the
WAL is written and is the only step that can run out of space; `write` is called after it and
lands inside what was reserved.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

from topicsd.model.record import ROW_BYTES
from topicsd.storage import flags, place, segment
from topicsd.storage.fs import Files
from topicsd.storage.pack import Packs

DAT_STEP_MIN: Final = 1 << 20
DAT_STEP_MAX: Final = 16 << 20
IDX_STEP_MIN: Final = 1 << 17
IDX_STEP_MAX: Final = 2 << 20
# Beyond this many dirty segments one sync of the whole volume is cheaper.
SYNC_ONE_BY_ONE_MAX: Final = 64


class Spot(NamedTuple):
    """A log's active segment: its place and how much of it is written."""

    log_id: int
    base_seq: int
    location: int
    rows: int
    end: int


class Limits(NamedTuple):
    """When a segment is full."""

    rows_max: int
    bytes_max: int


class _Handle:
    """Open files of one segment, and how far they are preallocated."""

    __slots__ = ("dat_fd", "dat_size", "idx_fd", "idx_size")

    def __init__(self, dat_fd: int, idx_fd: int, dat_size: int, idx_size: int) -> None:
        self.dat_fd = dat_fd
        self.idx_fd = idx_fd
        self.dat_size = dat_size
        self.idx_size = idx_size


class Volume:
    """Segments under one root."""

    def __init__(self, files: Files, root: Path, *, handles_max: int, limits: Limits) -> None:
        self._files = files
        self.root = root
        self._limits = limits
        self._handles_max = handles_max
        self._handles: OrderedDict[tuple[int, int], _Handle] = OrderedDict()
        files.make_directory(root)
        self.packs = Packs(files, root)

    def reserve(self, spot: Spot, rows: int, dat_bytes: int) -> Spot:
        """Make room for `rows` more records; return where the log's next record goes.

        The result is `spot` itself, the same segment at a roomier place, or a new segment
        when this one is full.
        """
        if spot.location == place.OWN_FILES:
            return self._reserve_files(spot, rows, dat_bytes)
        wanted_rows, wanted_bytes = spot.rows + rows, spot.end + dat_bytes
        if place.is_packed(spot.location) and place.pack_class(spot.location).fits(
            wanted_rows, wanted_bytes
        ):
            return spot
        for each in place.PACK_CLASSES:
            if each.fits(wanted_rows, wanted_bytes):
                return self._move(spot, self.packs.take(each.number))
        return self._reserve_files(self._move(spot, place.OWN_FILES), rows, dat_bytes)

    def cancel(self, spot: Spot, reserved: int = place.NOWHERE) -> None:
        """Take a reservation back: the log stays at `spot`, `reserved` is where it would be.

        Without this the log's old block would go to another log, and a segment that was
        begun in vain would stand between two real ones.
        """
        if place.is_packed(spot.location):
            self.packs.keep(spot.location)
        if place.is_packed(reserved) and reserved != spot.location:
            self.packs.release(reserved)
        self.discard_after(spot)

    def roll(self, spot: Spot, base_seq: int) -> Spot:
        """Leave the segment as it is and start the next one at `base_seq`.

        A packed segment gets files first: only the active segment's place is on the board.
        """
        if place.is_packed(spot.location):
            self._move(spot, place.OWN_FILES)
        return Spot(spot.log_id, base_seq, place.OWN_FILES, 0, 0)

    def write(self, spot: Spot, rows: bytes | memoryview, dat: bytes | memoryview) -> Spot:
        """Put rows and records at the end of a reserved spot; return the spot after them."""
        if spot.location == place.OWN_FILES:
            handle = self._handle(spot.log_id, spot.base_seq)
            row_position = place.IDX_HEADER_BYTES + spot.rows * ROW_BYTES
            self._files.write_at(handle.dat_fd, dat, spot.end)
            self._files.write_at(handle.idx_fd, rows, row_position)
        else:
            fd = self.packs.fd(spot.location)
            start = place.block_position(spot.location)
            dat_start = start + place.pack_class(spot.location).rows_bytes
            self._files.write_at(fd, dat, dat_start + spot.end)
            self._files.write_at(fd, rows, start + spot.rows * ROW_BYTES)
        return spot._replace(rows=spot.rows + len(rows) // ROW_BYTES, end=spot.end + len(dat))

    def mark_deleted(self, spot: Spot, rows: flags.Rows) -> None:
        """Flip the delete flags of rows."""
        if spot.location == place.OWN_FILES:
            fd = self._handle(spot.log_id, spot.base_seq).idx_fd
            start = place.IDX_HEADER_BYTES
        else:
            fd, start = self.packs.fd(spot.location), place.block_position(spot.location)
        flags.mark_deleted(self._files, fd, start, rows)

    def read(self, spot: Spot) -> tuple[bytes, bytes]:
        """All rows and records written to a spot."""
        if spot.location == place.OWN_FILES:
            handle = self._handle(spot.log_id, spot.base_seq)
            rows = self._files.read_at(handle.idx_fd, spot.rows * ROW_BYTES, place.IDX_HEADER_BYTES)
            return rows, self._files.read_at(handle.dat_fd, spot.end, 0)
        if spot.location == place.NOWHERE:
            return b"", b""
        fd = self.packs.fd(spot.location)
        start = place.block_position(spot.location)
        rows = self._files.read_at(fd, spot.rows * ROW_BYTES, start)
        dat_start = start + place.pack_class(spot.location).rows_bytes
        return rows, self._files.read_at(fd, spot.end, dat_start)

    def sync(self, segments: set[tuple[int, int]]) -> None:
        """Make pack files and the named (log, base seq) segments durable.

        May run on another thread than the writer: it opens the files anew.
        """
        if len(segments) > SYNC_ONE_BY_ONE_MAX:
            self._sync_volume()
            return
        self.packs.sync()
        for log_id, base_seq in segments:
            self._sync_path(place.dat_path(self.root, log_id, base_seq))
            self._sync_path(place.idx_path(self.root, log_id, base_seq))
        for directory in {place.log_directory(self.root, log_id) for log_id, _ in segments}:
            with contextlib.suppress(FileNotFoundError):  # its log was deleted meanwhile
                self._files.sync_directory(directory)
        self._files.sync_directory(self.root)

    def seal(self, spot: Spot) -> None:
        """Fix where a rolled segment ends; a checkpoint verifies and seals it for good."""
        if spot.rows:
            self.forget(spot.log_id, spot.base_seq)
            counts = (spot.rows, spot.end)
            segment.seal(self._files, self.root, spot.log_id, spot.base_seq, counts, vouch=False)

    def discard_after(self, spot: Spot) -> None:
        """Remove the files of segments that `spot` does not know of yet.

        Recovery writes them again from the WAL. A log that is still packed has no files.
        """
        first = spot.base_seq + (spot.location == place.OWN_FILES)
        directory = place.log_directory(self.root, spot.log_id)
        for base in segment.list_bases(self._files, directory):
            if base >= first:
                self.drop_segment(spot.log_id, base)

    def drop_segment(self, log_id: int, base_seq: int) -> None:
        self.forget(log_id, base_seq)
        for path in place.segment_paths(self.root, log_id, base_seq):
            self._files.remove(path)

    def leave(self, log_id: int, location: int) -> Path | None:
        """Let go of everything a log wrote; return a directory the caller must remove."""
        if place.is_packed(location):
            self.packs.release(location)
        directory = place.log_directory(self.root, log_id)
        bases = segment.list_bases(self._files, directory)
        for base in bases:
            self.forget(log_id, base)
        return directory if bases else None

    def close(self) -> None:
        for handle in self._handles.values():
            self._close(handle)
        self._handles.clear()
        self.packs.close()

    def _reserve_files(self, spot: Spot, rows: int, dat_bytes: int) -> Spot:
        full = spot.rows + rows > self._limits.rows_max
        full = full or spot.end + dat_bytes > self._limits.bytes_max
        if full and spot.rows:
            spot = self.roll(spot, spot.base_seq + spot.rows)
        handle = self._handle(spot.log_id, spot.base_seq)
        needed = spot.end + dat_bytes
        if needed > handle.dat_size:
            step = min(max(handle.dat_size, DAT_STEP_MIN), DAT_STEP_MAX)
            target = max(needed, handle.dat_size + step)
            self._files.allocate(handle.dat_fd, handle.dat_size, target - handle.dat_size)
            handle.dat_size = target
        needed = place.IDX_HEADER_BYTES + (spot.rows + rows) * ROW_BYTES
        if needed > handle.idx_size:
            step = min(max(handle.idx_size, IDX_STEP_MIN), IDX_STEP_MAX)
            target = max(needed, handle.idx_size + step)
            self._files.allocate(handle.idx_fd, handle.idx_size, target - handle.idx_size)
            handle.idx_size = target
        return spot

    def _move(self, spot: Spot, location: int) -> Spot:
        """Copy what is written to a new place and give the old block up."""
        rows, dat = self.read(spot)
        moved = spot._replace(location=location)
        if dat:
            target = moved._replace(rows=0, end=0)
            if location == place.OWN_FILES:
                target = self._reserve_files(target, spot.rows, spot.end)
            self.write(target, rows, dat)
        if place.is_packed(spot.location):
            self.packs.release(spot.location)
        return moved

    def _handle(self, log_id: int, base_seq: int) -> _Handle:
        key = (log_id, base_seq)
        handle = self._handles.get(key)
        if handle is not None:
            self._handles.move_to_end(key)
            return handle
        if len(self._handles) >= self._handles_max:
            self._close(self._handles.popitem(last=False)[1])
        handle = self._open(log_id, base_seq)
        self._handles[key] = handle
        return handle

    def _open(self, log_id: int, base_seq: int) -> _Handle:
        dat_path = place.dat_path(self.root, log_id, base_seq)
        idx_path = place.idx_path(self.root, log_id, base_seq)
        self._files.make_directory(dat_path.parent)
        dat_fd = self._files.open(dat_path, create=True)
        try:
            idx_fd = self._files.open(idx_path, create=True)
        except OSError:
            self._files.close(dat_fd)
            raise
        try:
            dat_size, idx_size = self._files.size(dat_fd), self._files.size(idx_fd)
            if idx_size < place.IDX_HEADER_BYTES:
                self._files.write_at(idx_fd, segment.build_header(log_id, base_seq), 0)
                idx_size = place.IDX_HEADER_BYTES
        except OSError:
            self._files.close(dat_fd)
            self._files.close(idx_fd)
            raise
        return _Handle(dat_fd, idx_fd, dat_size, idx_size)

    def forget(self, log_id: int, base_seq: int) -> None:
        """Close a segment's files if they are open."""
        handle = self._handles.pop((log_id, base_seq), None)
        if handle is not None:
            self._close(handle)

    def _close(self, handle: _Handle) -> None:
        self._files.close(handle.dat_fd)
        self._files.close(handle.idx_fd)

    def _sync_volume(self) -> None:
        fd = self._files.open_readonly(self.root)
        try:
            self._files.sync_volume(fd)
        finally:
            self._files.close(fd)

    def _sync_path(self, path: Path) -> None:
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            return  # dropped since the checkpoint began
        try:
            self._files.sync(fd)
        finally:
            self._files.close(fd)

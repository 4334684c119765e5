"""The reading side of segments: mapped bytes, checked before they are served.

A `Region` is the visible part of one segment. Segments with files of their own are mapped
and the maps are kept in a bounded cache; a packed segment is copied out of its block,
because the block may be given to another log the moment its owner outgrows it (the caller
checks the board again after the copy and retries when the log has moved).

Nothing is served unchecked. A sealed segment is verified against its seal, 256 rows and
64 KiB of records at a time, each once per mapping, which keeps reads at copy speed and
makes a look at few rows of a long segment cheap. Rows of an unsealed
segment that the running engine did not write itself are verified one by one, once. Rows
that fail are listed in `bad` and reported with file and position.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from topicsd.model.record import ROW_BYTES, ROW_DTYPE, prefix, rest_sum
from topicsd.storage import place, segment
from topicsd.storage.anatomy import parts_of
from topicsd.storage.fs import Files

_log = logging.getLogger("topicsd.shelf")

_PARTS: Final = ("key_hash", "node_hash", "head_len", "tag_len", "tail_len", "flags")
GROUP_ROWS: Final = 256
BASES_MAX: Final = 4096


class SegmentKey(NamedTuple):
    tier: int
    log_id: int
    base_seq: int


class Listing(NamedTuple):
    """Base seqs of a log's segments, ascending, and those of them that are cold."""

    bases: list[int]
    cold: frozenset[int]


class Region:
    """The records of one segment: rows, bytes, and what is known about their integrity."""

    def __init__(
        self, key: SegmentKey, rows: segment.Rows, dat: memoryview, path: Path, origin: int = 0
    ) -> None:
        self.key = key
        self.rows = rows
        self.dat = dat
        self.path = path
        self._origin = origin
        self.seal: segment.Seal | None = None
        # Size of an .idx file that had no seal when it was mapped; sealing changes it.
        self.unsealed_bytes = 0
        self.bad: set[int] = set()
        self._checked: set[int] = set()
        self._intact: set[int] = set()

    @property
    def base_seq(self) -> int:
        return self.key.base_seq

    def position(self, row: int) -> int:
        """Where a record starts in `dat`."""
        return int(self.rows["end"][row - 1]) if row else 0

    def file_position(self, row: int) -> int:
        """Where a record starts in the file, which is what people are told."""
        return self._origin + self.position(row)

    def verify(self, first: int, last: int, session_row: int) -> None:
        """Check rows `first` to `last` (exclusive) unless this was done before.

        Rows from `session_row` on were written by the running engine and need no check in
        an unsealed segment.
        """
        if self.seal is None:
            if first < session_row:
                self._verify_groups(first, min(last, session_row), session_row)
        elif self._rows_match(first, last, self.seal):
            self._verify_blocks(first, last, self.seal)
        else:
            self._verify_rows(first, last)

    def sound_rows(self, rows: npt.NDArray[np.int64], session_row: int) -> npt.NDArray[np.int64]:
        """Those of some rows far apart that are not damaged; looks at no others' records."""
        if self.seal is None:
            doubtful = rows[rows < session_row]
        else:
            # Where a record starts stands in the row before it.
            groups = np.stack((rows, np.maximum(rows - 1, 0))) // segment.SUM_ROWS
            known = self._intact.issuperset(groups.ravel().tolist())
            doubtful = rows[:0] if known else rows
        for row in doubtful.tolist():
            if self.seal is None or not self._rows_match(row, row + 1, self.seal):
                self._verify_rows(row, row + 1)
        if not self.bad:
            return rows
        return np.array([row for row in rows.tolist() if row not in self.bad], dtype=np.int64)

    def check_rows(self, first: int, last: int) -> Iterator[tuple[int, str]]:
        """What is wrong with records `first` to `last` (exclusive): row and problem."""
        rows = self.rows[first:last]
        start, seq, size = self.position(first), self.base_seq + first, len(self.dat)
        columns = (rows[name].tolist() for name in ("ts", "end", "sum"))
        parts = zip(*(rows[name].tolist() for name in _PARTS), strict=True)
        for row, (ts, end, expected) in enumerate(zip(*columns, strict=True), first):
            described = next(parts)
            head = prefix(seq, ts)
            body = start + len(head)
            if not start < end <= size:
                yield row, f"row {row} leads out of the segment ({start} to {end})"
            elif self.dat[start:body] != head:
                yield row, "the record does not start with its seq and ts"
            elif rest_sum(self.dat[body:end]) != expected:
                yield row, "record checksum mismatch"
            elif parts_of(bytes(self.dat[body:end]), described) != described:
                yield row, "the row does not describe its record"
            start, seq = end, seq + 1

    def _verify_blocks(self, first: int, last: int, seal: segment.Seal) -> None:
        start, end = self.position(first), int(self.rows["end"][last - 1])
        for block in range(start // segment.SUM_BLOCK, -(-end // segment.SUM_BLOCK)):
            if block in self._checked:
                continue
            at = block * segment.SUM_BLOCK
            content = self.dat[at : min(at + segment.SUM_BLOCK, seal.dat_bytes)]
            if xxhash.xxh3_64_intdigest(content) == int(seal.sums[block]):
                self._checked.add(block)
            elif not self._rows_match(0, seal.rows, seal):
                # Which records lie in the block cannot be told by rows that are damaged too.
                self._verify_rows(first, last)
            else:
                self._checked.add(block)
                ends = self.rows["end"][: seal.rows]
                low = int(np.searchsorted(ends, at, side="right"))
                high = int(np.searchsorted(ends, at + segment.SUM_BLOCK)) + 1
                self._verify_rows(low, min(high, seal.rows))

    def _rows_match(self, first: int, last: int, seal: segment.Seal) -> bool:
        """Whether rows `first` to `last` (exclusive), and where they start, are as sealed."""
        for group in range(max(first - 1, 0) // segment.SUM_ROWS, -(-last // segment.SUM_ROWS)):
            if group not in self._intact:
                if not seal.matches_group(self.rows, group):
                    return False
                self._intact.add(group)
        return True

    def _verify_groups(self, first: int, last: int, session_row: int) -> None:
        for group in range(first // GROUP_ROWS, -(-last // GROUP_ROWS)):
            if group not in self._checked:
                self._checked.add(group)
                start = group * GROUP_ROWS
                self._verify_rows(start, min(start + GROUP_ROWS, session_row))

    def _verify_rows(self, first: int, last: int) -> None:
        for row, problem in self.check_rows(first, last):
            if row in self.bad:
                continue
            self.bad.add(row)
            _log.error(
                "corrupt record withheld file=%s position=%d seq=%d problem=%s",
                self.path,
                self.file_position(row),
                self.base_seq + row,
                problem,
            )


class Shelf:
    """All segments of a data directory, for one reading process."""

    def __init__(self, files: Files, roots: Sequence[Path], *, maps_max: int) -> None:
        self._files = files
        self._roots = roots
        self._maps_max = maps_max
        self._regions: OrderedDict[SegmentKey, Region] = OrderedDict()
        self._packs: dict[Path, memoryview] = {}
        self._listings: OrderedDict[tuple[int, int, int], Listing] = OrderedDict()

    def list_segments(self, log_id: int, generation: int, *, tier: int) -> Listing:
        """A log's segments with own files, current for `generation`."""
        key = (tier, log_id, generation)
        found = self._listings.get(key)
        if found is None:
            found = self._listings[key] = self._list(log_id, tier)
            if len(self._listings) > BASES_MAX:
                self._listings.popitem(last=False)
        return found

    def _list(self, log_id: int, tier: int) -> Listing:
        hot = self._list_root(tier, log_id)
        if tier != place.DISK or len(self._roots) <= place.COLD:
            return Listing(hot, frozenset())
        # Hot first: what left there before is in the cold list. While it is in both, only the
        # hot one counts, because a copy may miss the latest deletes.
        cold = frozenset(self._list_root(place.COLD, log_id)) - frozenset(hot)
        return Listing(sorted([*hot, *cold]) if cold else hot, cold)

    def _list_root(self, tier: int, log_id: int) -> list[int]:
        return segment.list_bases(self._files, place.log_directory(self._roots[tier], log_id))

    def open(self, key: SegmentKey, rows: int | None = None, end: int | None = None) -> Region:
        """A segment with files of its own; `rows` and `end` bound an unsealed one."""
        region = self._regions.get(key)
        if region is not None and self._covers(region, rows, end):
            self._regions.move_to_end(key)
            return region
        region = self._map(key)
        self._regions[key] = region
        if len(self._regions) > self._maps_max:
            self._regions.popitem(last=False)
        return region

    def open_packed(self, key: SegmentKey, location: int, rows: int, end: int) -> Region:
        """A private copy of a packed segment; check the board again before trusting it."""
        pack = place.pack_class(location)
        start = place.block_position(location)
        path = place.pack_path(self._roots[key.tier], pack.number)
        view = self._packs.get(path)
        if view is None or len(view) < start + pack.block_bytes:
            view = self._packs[path] = self._map_file(path)
        row_bytes = bytes(view[start : start + rows * ROW_BYTES])
        dat_start = start + pack.rows_bytes
        dat = memoryview(bytes(view[dat_start : dat_start + end]))
        return Region(key, np.frombuffer(row_bytes, dtype=ROW_DTYPE), dat, path, dat_start)

    def forget(self) -> None:
        """Drop every map: the engine started anew and may have rewritten files."""
        self._regions.clear()
        self._packs.clear()
        self._listings.clear()

    def _covers(self, region: Region, rows: int | None, end: int | None) -> bool:
        if rows is None or end is None:
            return region.seal is not None or self._is_unsealed(region)
        return len(region.rows) >= rows and len(region.dat) >= end

    def _is_unsealed(self, region: Region) -> bool:
        """Whether a segment that had no seal still has none, going by the size of its file."""
        if not region.unsealed_bytes:
            return False
        return self._files.size_of(region.path.with_suffix(".idx")) == region.unsealed_bytes

    def _map(self, key: SegmentKey) -> Region:
        try:
            return self._map_from(self._roots[key.tier], key)
        except FileNotFoundError:
            if key.tier != place.DISK or len(self._roots) <= place.COLD:
                raise
        # It went cold after the segments were listed.
        return self._map_from(self._roots[place.COLD], key)

    def _map_from(self, root: Path, key: SegmentKey) -> Region:
        dat_path = place.dat_path(root, key.log_id, key.base_seq)
        fd = self._files.open_readonly(place.idx_path(root, key.log_id, key.base_seq))
        try:
            idx = self._map_open(fd)
            seal = segment.read_seal(len(idx), partial(self._files.read_at, fd))
        finally:
            self._files.close(fd)
        slots = seal.rows if seal else max(len(idx) - place.IDX_HEADER_BYTES, 0) // ROW_BYTES
        rows: npt.NDArray[np.void] = np.frombuffer(
            idx, dtype=ROW_DTYPE, count=slots, offset=place.IDX_HEADER_BYTES if slots else 0
        )
        region = Region(key, rows, self._map_file(dat_path), dat_path)
        if seal is None:
            region.unsealed_bytes = len(idx)
        elif seal.vouches(rows):
            region.seal = seal
        return region

    def _map_file(self, path: Path) -> memoryview:
        fd = self._files.open_readonly(path)
        try:
            return self._map_open(fd)
        finally:
            self._files.close(fd)

    def _map_open(self, fd: int) -> memoryview:
        # Of whatever size it is by then: sealing may shrink it at any time.
        return memoryview(self._files.map(fd, 0)) if self._files.size(fd) else memoryview(b"")

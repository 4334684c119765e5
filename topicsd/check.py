"""`topicsd check`: compares catalog, WAL, segments, rows and floors with each other.

It reads a data directory that no server is using and changes nothing. A torn last frame is
not a problem (the next start cuts it off) and is only mentioned; everything else that does
not fit is a `Problem` with the file and the position where it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topicsd.engine.log import row_of_state
from topicsd.engine.tiering import COLD_DIR
from topicsd.model.record import DELETED
from topicsd.storage import frame, paths, place, segment
from topicsd.storage.board import Board, BoardMissing, BoardRow
from topicsd.storage.catalog import BoardState, CatalogReader
from topicsd.storage.fs import Files
from topicsd.storage.replay import WalReader
from topicsd.storage.shelf import Region, Shelf
from topicsd.storage.view import Snapshot, Stale, payload_sizes
from topicsd.storage.wal import list_files


class Problem(NamedTuple):
    """Something that does not fit, and where."""

    file: str
    position: int
    message: str


Report = Callable[[str], None]


def check_data_dir(path: Path, report: Report, cold_dir: Path | None = None) -> list[Problem]:
    """Check everything below `path`; the caller holds the directory's lock.

    Cold segments are looked for in `cold_dir`, or where the last server had them.
    """
    return _Checker(Files(), path, report, cold_dir).run()


class _Checker:
    """One pass, collecting problems."""

    def __init__(self, files: Files, data_dir: Path, report: Report, cold_dir: Path | None) -> None:
        self._files = files
        self._data_dir = data_dir
        self._report = report
        self._root = paths.segments(data_dir)
        self._catalog = CatalogReader(paths.catalog(data_dir))
        self._cold_dir = cold_dir
        self._shelf = Shelf(files, (self._root,), maps_max=8)
        self._ephemeral: set[int] = set()
        self._problems: list[Problem] = []
        self._records = 0

    def run(self) -> list[Problem]:
        path = paths.catalog(self._data_dir)
        if not self._files.exists(path):
            return self._check_uncatalogued(path)
        try:
            self._check_catalog()
            next_seqs = self._check_logs()
            self._check_wal(next_seqs)
            self._check_board()
            self._check_strays(set(next_seqs))
        finally:
            self._catalog.close()
        return self._problems

    def _check_uncatalogued(self, path: Path) -> list[Problem]:
        """A directory without a catalog must not hold anything that one would name."""
        self._report("catalog: none")
        wal_files = list_files(self._files, paths.wal(self._data_dir))
        if wal_files or self._files.list_directory(self._root):
            self._note(path, 0, "there are records, but no catalog")
        return self._problems

    def _note(self, file: Path | str, position: int, message: str) -> None:
        self._problems.append(Problem(str(file), position, message))

    def _check_catalog(self) -> None:
        for damage in self._catalog.find_damage():
            self._note(paths.catalog(self._data_dir), 0, damage)
        self._ephemeral = set(self._catalog.ephemeral_logs())
        for kept in self._catalog.list_quarantine():
            self._report(f"quarantine: {kept.file} at {kept.position}: {kept.reason}")
        self._report(f"catalog: {self._catalog.count_logs()} logs")
        self._find_cold()

    def _find_cold(self) -> None:
        """Look at cold segments, too, when there is a cold directory."""
        known = self._cold_dir or Path(self._catalog.meta(COLD_DIR) or "")
        instance = self._catalog.meta("instance")
        cold = self._catalog.count_segments("cold")
        if known == Path() or instance is None:
            return
        root = paths.cold(known, int(instance))
        if cold and not self._files.exists(root):
            self._note(root, 0, f"{cold} cold segments should be here: name their --cold-dir")
        self._shelf = Shelf(self._files, (self._root, self._root, root), maps_max=8)
        self._report(f"cold: {cold} segments in {root}")

    def _check_logs(self) -> dict[int, int]:
        """Every log's segments; returns the next seq of each log by id."""
        next_seqs: dict[int, int] = {}
        owners: dict[int, int] = {}
        for found in self._catalog.load_board():
            row = row_of_state(found)
            next_seqs[row.log_id] = row.next_seq
            if place.is_packed(row.location):
                other = owners.setdefault(row.location, row.log_id)
                if other != row.log_id:
                    path = place.pack_path(self._root, row.location & 15)
                    position = place.block_position(row.location)
                    self._note(path, position, f"logs {other} and {row.log_id} share a block")
            self._check_log(found, row)
        self._report(f"segments: {self._records} records of {len(next_seqs)} logs verified")
        return next_seqs

    def _check_log(self, found: BoardState, row: BoardRow) -> None:
        where = paths.catalog(self._data_dir)
        name = f"log {row.log_id}"
        if not row.earliest_seq <= row.head_seq + 1 == row.next_seq:
            self._note(where, 0, f"{name}: earliest {row.earliest_seq}, head {row.head_seq}")
        floor = max(row.cap_floor, row.ttl_floor, row.lost_floor)
        if floor > row.earliest_seq:
            self._note(where, 0, f"{name}: involuntary floor {floor} above {row.earliest_seq}")
        if row.log_id in self._ephemeral:
            return
        snapshot = Snapshot(self._shelf, row, session=0)
        try:
            live, payload, first = self._walk(snapshot)
        except Stale:
            directory = place.log_directory(self._root, row.log_id)
            self._note(directory, 0, f"{name}: a segment file is missing")
            return
        if (live, payload) != (row.live, row.payload_bytes):
            self._note(
                where,
                0,
                f"{name}: {live} live records of {payload} bytes, not {row.live} of "
                f"{row.payload_bytes}",
            )
        if first != row.earliest_seq:
            self._note(where, 0, f"{name}: first live seq {first}, not {row.earliest_seq}")

    def _walk(self, snapshot: Snapshot) -> tuple[int, int, int]:
        """Verify all segments of a log; return its live records, bytes and first live seq."""
        live = payload = 0
        first_live = 0
        last_ts = 0
        row = snapshot.row
        for index in range(len(snapshot.bases())):
            region, visible = snapshot.region(index)
            rows = self._present(region, visible)
            if rows == 0:
                continue
            last_ts = self._check_region(region, rows, last_ts)
            following = snapshot.bases()[index + 1 :]
            if region.path.suffix == ".dat":
                self._check_files(region, ended=bool(following))
            if region.seal is None and following and following[0] > row.earliest_seq:
                # Only a segment that was about to be dropped may have ended without one.
                idx = region.path.with_suffix(".idx")
                self._note(idx, place.IDX_HEADER_BYTES, "the seal is missing or damaged")
            low = min(max(row.earliest_seq - region.base_seq, 0), rows)
            sizes = payload_sizes(region, low, rows)
            alive = np.flatnonzero(sizes >= 0)
            live += len(alive)
            payload += int(sizes[alive].sum())
            if len(alive) and not first_live:
                first_live = region.base_seq + low + int(alive[0])
        return live, payload, first_live or row.next_seq

    def _present(self, region: Region, rows: int) -> int:
        """How many of the rows there must be are there."""
        if rows > len(region.rows):
            message = f"{rows} records are recorded, {len(region.rows)} are there"
            self._note(region.path, len(region.dat), message)
        return min(rows, len(region.rows))

    def _check_region(self, region: Region, rows: int, last_ts: int) -> int:
        self._records += rows
        stamps = region.rows["ts"][:rows]
        if int(stamps[0]) < last_ts or bool((np.diff(stamps) < 0).any()):
            self._note(region.path, 0, "timestamps run backwards")
        for number, problem in region.check_rows(0, rows):
            self._note(region.path, region.file_position(number), problem)
        unknown = set(np.unique(region.rows["deleted"][:rows]).tolist()) - {0, DELETED}
        if unknown:
            self._note(region.path, 0, f"delete flags with values {sorted(unknown)}")
        return int(stamps[-1])

    def _check_files(self, region: Region, *, ended: bool) -> None:
        idx = region.path.with_suffix(".idx")
        key = region.key
        data = self._files.read(idx)
        problem = segment.check_header(data, key.log_id, key.base_seq)
        if problem is not None:
            self._note(idx, 0, problem)
        seal = segment.read_seal(len(data), lambda length, at: data[at : at + length])
        if seal is None or not ended:
            # A crash may leave a seal on what the last checkpoint knows as active.
            return
        if not seal.matches(region.rows[: seal.rows]):
            self._note(idx, place.IDX_HEADER_BYTES, "rows do not match the seal")
        if len(region.dat) != seal.dat_bytes:
            message = f"{len(region.dat)} bytes, but {seal.dat_bytes} were sealed"
            self._note(region.path, min(len(region.dat), seal.dat_bytes), message)
            return
        sums = segment.block_sums(region.dat)
        for block in np.flatnonzero(sums != seal.sums).tolist():
            self._note(region.path, block * segment.SUM_BLOCK, "block does not match the seal")

    def _check_wal(self, next_seqs: dict[int, int]) -> None:
        reader = WalReader(self._files, paths.wal(self._data_dir), lambda fraction: None)
        for found in reader:
            for entry in frame.entries(found.body):
                if isinstance(entry, frame.AppendEntry):
                    self._check_entry(entry, next_seqs)
                elif isinstance(entry, frame.RouteEntry) and entry.log_id in next_seqs:
                    # Copies are in no frame, but the seqs they took are in the next mark.
                    known = next_seqs[entry.log_id]
                    next_seqs[entry.log_id] = max(known, entry.next_seq)
        for damage in reader.damage:
            if damage.torn:
                self._report(f"wal: torn tail of {damage.path} at {damage.position}")
            else:
                self._note(damage.path, damage.position, damage.problem)
        self._report(f"wal: {reader.frames} frames")

    def _check_entry(self, entry: frame.AppendEntry, next_seqs: dict[int, int]) -> None:
        expected = next_seqs.get(entry.log_id)
        if expected is None or entry.first_seq + entry.records <= expected:
            return
        gaps = {gap.to_seq + 1 for gap in self._catalog.gaps(entry.log_id)}
        if entry.first_seq != expected and entry.first_seq not in gaps:
            self._note(
                paths.wal(self._data_dir),
                0,
                f"log {entry.log_id} jumps from seq {expected} to {entry.first_seq}",
            )
        next_seqs[entry.log_id] = entry.first_seq + entry.records

    def _check_board(self) -> None:
        """A board left by a clean stop must agree with the catalog."""
        path = paths.board(self._data_dir)
        try:
            board = Board(self._files, path)
        except BoardMissing as missing:
            self._report(f"board: none ({missing})")
            return
        try:
            if board.clean:
                for found in self._catalog.load_board():
                    self._compare(found, board.read(found.row), path)
            self._report(f"board: {'clean' if board.clean else 'not used, after a crash'}")
        finally:
            board.close()

    def _compare(self, found: BoardState, shown: BoardRow, path: Path) -> None:
        if shown.log_id != found.state.id:
            self._note(path, found.row, f"row shows log {shown.log_id}, not {found.state.id}")
        elif found.state.next_seq and shown.head_seq != found.state.head_seq:
            self._note(
                path, found.row, f"head {shown.head_seq}, in the catalog {found.state.head_seq}"
            )

    def _check_strays(self, known: set[int]) -> None:
        """Directories of logs that do not exist: harmless, but worth mentioning."""
        strays = [name for name in self._directories() if int(name) not in known]
        if strays:
            self._report(f"segments: {len(strays)} directories of deleted logs remain")

    def _directories(self) -> Iterator[str]:
        return (name for name in self._files.list_directory(self._root) if name.isdigit())

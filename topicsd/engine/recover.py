"""Recovery: the last checkpoint from the catalog, then the WAL over it (DESIGN 4).

After a clean stop there is nothing to do: the board file is complete and is used as it is.
Otherwise the board is built anew from the catalog, and every intact WAL frame is applied in
lsn order. Applying is idempotent: what the checkpoint already holds is skipped, and
segments are written at the same positions with the same bytes. So a crash during recovery
is just another crash.

What was lost is reported, never hidden. A jump in a log's seqs (a damaged frame), a board
that showed a higher head than the WAL has, or a power loss with an unsynced tail: each
becomes a gap of that log, readers get a tombstone for it, and its seqs are not reused.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from topicsd.engine.checkpoint import CHECKPOINT_LSN
from topicsd.engine.log import row_of_state
from topicsd.engine.rebuild import Heads, Rebuild
from topicsd.storage import frame, paths
from topicsd.storage.board import FLAG_RESIDENT, Board, BoardMissing
from topicsd.storage.catalog import CatalogWriter, Change, Quarantine, SetMeta
from topicsd.storage.fs import Files
from topicsd.storage.replay import WalReader, set_aside
from topicsd.storage.wal import list_files

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

_log = logging.getLogger("topicsd.recover")


class RecoverySummary(NamedTuple):
    """What a start found and did."""

    clean: bool
    frames: int
    records: int
    lost_records: int
    torn_tails: int
    corrupt_frames: int
    elapsed_ms: int


def open_board(files: Files, catalog: CatalogWriter, path: paths.Path) -> tuple[Board, bool]:
    """The board to start with, and whether it may be used as it is."""
    instance = _instance(catalog)
    try:
        board = Board(files, path)
    except BoardMissing:
        return Board.create(files, path, instance, catalog.max_row() + 1), False
    if board.instance != instance or (board.clean and not board.intact):
        board.close()
        return Board.create(files, path, instance, catalog.max_row() + 1), False
    return board, board.clean and catalog.meta("stopped") == str(board.session)


def _instance(catalog: CatalogWriter) -> int:
    known = catalog.meta("instance")
    if known is None:
        known = str(secrets.randbits(62))
        catalog.commit([SetMeta("instance", known)])
    return int(known)


def empty_ephemeral(engine: Engine) -> None:
    """Ephemeral topics start empty: their numbers go on, their records are gone."""
    for log_id in engine.catalog.ephemeral_logs():
        found = engine.catalog.find_board_state(log_id)
        if found is None:
            continue
        row = engine.board.read(found.row)
        floor = row.next_seq if row.live else row.lost_floor
        engine.board.write(
            found.row,
            row._replace(
                log_id=log_id,
                earliest_seq=row.next_seq,
                lost_floor=floor,
                live=0,
                payload_bytes=0,
                active_base=row.next_seq,
                active_rows=0,
                active_end=0,
                location=0,
                flags=row.flags | FLAG_RESIDENT,
                shelf_generation=row.shelf_generation + 1,
            ),
        )


def replay(engine: Engine, same_boot: bool) -> RecoverySummary:
    """Bring the data directory back to where the acknowledged writes left it."""
    started = engine.clock.monotonic_us()
    shown = engine.board.shown()
    _fill_board(engine, shown)
    reader = WalReader(engine.files, paths.wal(engine.settings.data_dir), _reporter(engine.board))
    rebuild = Rebuild(engine)
    folded = checkpoint_lsn(engine.catalog)
    if len(engine.routes):
        ahead = WalReader(engine.files, paths.wal(engine.settings.data_dir), lambda fraction: None)
        rebuild.copies.read_ahead(ahead, folded)
    for found in reader:
        if found.lsn > folded:
            for entry in frame.entries(found.body):
                rebuild.apply(entry)
    corrupt_frames = sum(not damage.torn for damage in reader.damage)
    rebuild.finish(shown, trust_tail=same_boot, trust_counts=same_boot and not corrupt_frames)
    engine.first_lsn = reader.last_lsn
    _set_aside(engine, reader)
    _sync_wal(engine)
    return RecoverySummary(
        clean=False,
        frames=reader.frames,
        records=rebuild.records,
        lost_records=rebuild.lost_records,
        torn_tails=sum(damage.torn for damage in reader.damage),
        corrupt_frames=corrupt_frames,
        elapsed_ms=(engine.clock.monotonic_us() - started) // 1000,
    )


def checkpoint_lsn(catalog: CatalogWriter) -> int:
    """The last frame that the checkpoint holds; new frames are numbered above it."""
    return int(catalog.meta(CHECKPOINT_LSN) or 0)


def _fill_board(engine: Engine, shown: Heads) -> None:
    """Show every log as the last checkpoint left it.

    Generations start above all earlier ones, so that no worker takes an old view for
    current. Heads shown before stay on the board: recovery may be interrupted.
    """
    board = engine.board
    board.ensure_rows(engine.catalog.max_row() + 1)
    ids, heads = (column.tolist() for column in shown)
    kept: set[int] = set()
    for found in engine.catalog.load_board():
        same = found.row < len(ids) and ids[found.row] == found.state.id
        row = row_of_state(found)._replace(
            generation=board.session,
            shelf_generation=board.session,
            shown_seq=heads[found.row] if same else 0,
        )
        last_read = board.last_read(found.row) if same else 0
        board.write(found.row, row)
        board.set_last_read(found.row, max(last_read, found.state.last_read_ts))
        kept.add(found.row)
    board.clear_rows(kept)


def _reporter(board: Board) -> Callable[[float], None]:
    def report(fraction: float) -> None:
        board.replay_progress = fraction

    return report


def _set_aside(engine: Engine, reader: WalReader) -> None:
    """Cut torn tails, keep copies of corrupt files, and note them in the catalog."""
    notes: list[Change] = []
    data_dir = engine.settings.data_dir
    for damage in reader.damage:
        copy = set_aside(engine.files, damage, paths.quarantine(data_dir))
        if copy is not None:
            notes.append(
                Quarantine(
                    file=str(copy.relative_to(data_dir)),
                    position=damage.position,
                    bytes=damage.length,
                    reason=damage.problem,
                    noticed_ts=engine.clock.now_ms(),
                )
            )
    if notes:
        engine.catalog.commit(notes)


def _sync_wal(engine: Engine) -> None:
    """Make durable what was replayed: a killed engine's last frames may be in memory only."""
    files = engine.files
    for file in list_files(files, paths.wal(engine.settings.data_dir)):
        fd = files.open(file.path)
        try:
            files.sync(fd)
        finally:
            files.close(fd)


def log_summary(summary: RecoverySummary, log: logging.Logger = _log) -> None:
    log.info(
        "recovered clean=%s frames=%d records=%d lost=%d torn_tails=%d corrupt=%d ms=%d",
        str(summary.clean).lower(),
        summary.frames,
        summary.records,
        summary.lost_records,
        summary.torn_tails,
        summary.corrupt_frames,
        summary.elapsed_ms,
    )

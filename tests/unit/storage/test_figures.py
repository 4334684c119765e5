"""The engine's figures in the header of the board."""

from __future__ import annotations

from pathlib import Path

from topicsd.storage import figures
from topicsd.storage.board import CLASSES, HEADER_BYTES, Board, BoardRow, kind_flags
from topicsd.storage.figures import Figures
from topicsd.storage.fs import Files

FULL = Figures(*range(1, 13), fsync_buckets=tuple(range(10)))


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Through another map of the same file, until they are overwritten."""
    board = Board.create(Files(), tmp_path / "board", 1, 1)
    other = Board(Files(), tmp_path / "board")
    assert other.figures == Figures()
    board.figures = FULL
    assert other.figures == FULL
    assert other.figures.fsyncs == 45
    board.figures = Figures()
    assert other.figures == Figures()
    board.close()
    other.close()


def test_an_unfinished_write_is_not_waited_for() -> None:
    """An engine that died while writing leaves numbers, not a reader that spins forever."""
    view = memoryview(bytearray(HEADER_BYTES))
    figures.write(view, FULL)
    view[figures.POSITION] |= 1
    assert figures.read(view) == FULL
    figures.write(view, Figures())
    assert view[figures.POSITION] & 1 == 0


def test_the_cells_stay_inside_the_header() -> None:
    """Rows begin where the header ends."""
    assert figures.END <= HEADER_BYTES


def test_rows_sum_up_by_class(tmp_path: Path) -> None:
    """Totals see every used row, also rows that another process added to the file."""
    board = Board.create(Files(), tmp_path / "board", 1, 1)
    other = Board(Files(), tmp_path / "board")
    board.ensure_rows(10_000)
    for number, name in enumerate(CLASSES):
        flags = kind_flags(name, "queue" if name == "disk" else "log")
        row = BoardRow(log_id=number + 1, live=number, payload_bytes=10 * number, flags=flags)
        board.write(9_000 + number, row)
    board.write(5, BoardRow(live=7))
    totals = other.totals()
    assert totals == (6, 60, dict.fromkeys(CLASSES, 1), 1)
    board.close()
    other.close()

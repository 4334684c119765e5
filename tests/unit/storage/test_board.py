"""The board: rows that are never torn, and a file that is never trusted blindly."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.faults.bytes import flip
from topicsd.model.errors import TopicsError
from topicsd.storage import board as board_module
from topicsd.storage.board import (
    FLAG_GAPS,
    HEADER_BYTES,
    ROW_BYTES,
    ROWS_MIN,
    STATES,
    Board,
    BoardMissing,
    BoardRow,
)
from topicsd.storage.fs import Files

INSTANCE = 12345
READS = 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "board.mmap"


@pytest.fixture
def board(path: Path) -> Iterator[Board]:
    made = Board.create(Files(), path, INSTANCE, 1)
    yield made
    made.close()


def _row(value: int) -> BoardRow:
    return BoardRow(*[value] * len(BoardRow._fields))


def test_a_row_reads_back_as_it_was_written(board: Board) -> None:
    """Every field, in every row, next to its neighbours."""
    for row in (0, 1, ROWS_MIN - 1):
        board.write(row, _row(row + 7))
    assert [board.read(row) for row in (0, 1, ROWS_MIN - 1)] == [
        _row(7),
        _row(8),
        _row(ROWS_MIN + 6),
    ]


def test_what_one_process_writes_another_reads(board: Board, path: Path) -> None:
    """Rows and header are shared, not copied."""
    other = Board(Files(), path)
    board.write(3, _row(9))
    board.state, board.session, board.topics, board.replay_progress = "ready", 77, 5, 0.25
    assert other.read(3) == _row(9)
    assert (other.state, other.session, other.topics) == ("ready", 77, 5)
    assert other.replay_progress == 0.25 and other.instance == INSTANCE
    other.close()


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_name(board: Board, state: str) -> None:
    """The engine's states cross the board as numbers."""
    board.state = state
    assert board.state == state


def _write_on(path: Path, started: Event, stop: Event) -> None:
    board = Board(Files(), path)
    value = 0
    while not stop.is_set():
        value += 1
        board.write(5, _row(value))
        if value == 100:
            started.set()
    board.close()


def test_no_row_is_torn_under_a_concurrent_writer(board: Board, path: Path) -> None:
    """Twenty thousand reads against another process's writes: all fields of one instant."""
    context = multiprocessing.get_context("spawn")
    started, stop = context.Event(), context.Event()
    writer = context.Process(target=_write_on, args=(path, started, stop))
    writer.start()
    try:
        assert started.wait(30)
        seen = [board.read(5) for _ in range(READS)]
        # On a busy machine the writer may not have had a processor meanwhile.
        while len(set(seen)) < 10:
            seen += [board.read(5) for _ in range(READS)]
    finally:
        stop.set()
        writer.join(30)
    assert [row for row in seen if len(set(row)) != 1] == []
    heads = [row.head_seq for row in seen]
    assert heads == sorted(heads)


def test_a_row_left_odd_by_a_dead_engine_is_not_served(
    board: Board, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader is told to come back; recovery finishes the row."""
    monkeypatch.setattr(board_module, "SPINS_MAX", 10)
    board.write(2, _row(4))
    flip_version(path, 2)
    with pytest.raises(TopicsError, match="not_ready"):
        board.read(2)
    assert board.heads()[0][2] == 0
    board.clear_rows(set())
    assert board.read(2) == BoardRow()


def flip_version(path: Path, row: int) -> None:
    """Set a row's version odd, as the first half of a write does."""
    files = Files()
    fd = files.open(path)
    position = HEADER_BYTES + row * ROW_BYTES
    files.write_at(fd, bytes([files.read_at(fd, 1, position)[0] | 1]), position)
    files.close(fd)


def test_the_board_grows_under_its_readers(board: Board, path: Path) -> None:
    """A reader that is asked for a row it has not mapped maps the file again."""
    reader = Board(Files(), path)
    board.write(1, _row(1))
    board.ensure_rows(ROWS_MIN + 1)
    board.write(ROWS_MIN, _row(2))
    assert reader.read(ROWS_MIN) == _row(2) and reader.read(1) == _row(1)
    reader.set_last_read(2 * ROWS_MIN - 1, 6)
    assert board.last_read(2 * ROWS_MIN - 1) == 6
    reader.close()


def test_a_board_without_rows_grows_too(board: Board, path: Path) -> None:
    """A file cut down to its header does not keep the engine from starting."""
    board.close()
    with path.open("r+b") as file:
        file.truncate(HEADER_BYTES)
    cut = Board(Files(), path)
    cut.ensure_rows(1)
    cut.write(0, _row(1))
    assert cut.read(0) == _row(1)
    cut.close()


def test_clearing_keeps_the_rows_it_is_told_to(board: Board) -> None:
    """Everything else shows no log."""
    for row in (0, 4, 9):
        board.write(row, _row(row + 1))
    board.clear_rows({4})
    assert [board.read(row).log_id for row in (0, 4, 9)] == [0, 5, 0]


def test_totals_and_heads_cover_all_rows(board: Board) -> None:
    """Columns over the whole board, without the rows that show no log."""
    board.write(0, BoardRow(log_id=1, head_seq=10, payload_bytes=100, shown_seq=12))
    board.write(7, BoardRow(log_id=2, head_seq=20, payload_bytes=50, flags=FLAG_GAPS))
    board.write(8, BoardRow(log_id=0, payload_bytes=999))
    assert board.total_payload_bytes() == 150
    ids, heads = board.heads()
    assert (ids[7], heads[7], heads[0]) == (2, 20, 10)
    assert board.shown()[1][:8].tolist() == [12, 0, 0, 0, 0, 0, 0, 20]
    assert board.with_gaps() == [2]


@pytest.mark.parametrize("content", [None, b"", b"short", bytes(HEADER_BYTES), b"\xff" * 9000])
def test_a_file_that_is_no_board_is_refused(path: Path, content: bytes | None) -> None:
    """Missing, short, unfinished or foreign bytes."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BoardMissing):
        Board(Files(), path)


def test_a_new_board_keeps_the_file_that_others_have_mapped(board: Board, path: Path) -> None:
    """It is emptied in place: a worker's mapping goes on to show the truth."""
    board.write(0, _row(3))
    board.ensure_rows(ROWS_MIN * 2)
    size = path.stat().st_size
    made = Board.create(Files(), path, INSTANCE + 1, 1)
    assert board.read(0).log_id == 0 and board.instance == INSTANCE + 1
    assert path.stat().st_size == size
    made.close()


def test_a_clean_board_knows_whether_it_is_intact(board: Board, path: Path) -> None:
    """A reader's recency cell may change afterwards, nothing else may."""
    board.write(0, _row(3))
    marks = [board.clean]
    board.mark_clean()
    board.set_last_read(0, 99)
    marks += [board.clean, board.intact]
    board.flush()
    flip(path, HEADER_BYTES + 20)
    marks += [board.intact]
    board.mark_dirty()
    marks += [board.clean]
    assert marks == [False, True, True, False, False]

"""Delete flags: exactly those asked for, in few writes, and nothing else in a crash."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.faults.faulty import FaultyFiles
from topicsd.model.record import DELETED, ROW_BYTES
from topicsd.storage.flags import BLOCK_ROWS, NEAR_ROWS, mark_deleted

START = 64
COUNT = 3 * BLOCK_ROWS


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Rows of noise whose last byte says that they are live."""
    rows = np.frombuffer(random.Random(1).randbytes(COUNT * ROW_BYTES), dtype=np.uint8).copy()
    rows[ROW_BYTES - 1 :: ROW_BYTES] = 0
    made = tmp_path / "rows"
    made.write_bytes(b"h" * START + rows.tobytes() + b"footer")
    yield made


def _mark(files: FaultyFiles, path: Path, rows: list[int]) -> None:
    fd = files.open(path)
    try:
        mark_deleted(files, fd, START, np.array(rows, dtype=np.int64))
    finally:
        files.close(fd)


def _marked(content: bytes, rows: list[int]) -> bytes:
    expected = bytearray(content)
    for row in rows:
        expected[START + row * ROW_BYTES + ROW_BYTES - 1] = DELETED
    return bytes(expected)


@pytest.mark.parametrize(
    ("rows", "writes"),
    [
        ([], 0),
        ([0], 1),
        ([COUNT - 1], 1),
        ([5, 5, 5], 1),
        (list(range(BLOCK_ROWS)), 1),
        (list(range(COUNT)), 3),
        (list(range(1, COUNT, 2)), 3),
        (list(range(0, COUNT, NEAR_ROWS)), 3),
        (list(range(0, COUNT, NEAR_ROWS + 1)), -(-COUNT // (NEAR_ROWS + 1))),
        ([9, 3, 2 * BLOCK_ROWS, 4, 2 * BLOCK_ROWS + 1, BLOCK_ROWS], 3),
        ([BLOCK_ROWS - 1, BLOCK_ROWS], 1),
    ],
)
def test_rows_close_to_each_other_share_a_write(path: Path, rows: list[int], writes: int) -> None:
    """Far ones have a byte each; no other byte of the file changes."""
    files, before = FaultyFiles(), path.read_bytes()
    _mark(files, path, rows)
    assert path.read_bytes() == _marked(before, rows)
    assert files.count("write_at") == writes


def test_a_write_cut_short_leaves_old_and_new_flags_only(path: Path) -> None:
    """Whichever write it is: the same delete again ends where it should."""
    rows, before = list(range(0, COUNT, 3)), path.read_bytes()
    for call in (1, 2, 3):
        with pytest.raises(OSError):
            _mark(FaultyFiles(call, errno.EIO, torn=True), path, rows)
        found, complete = path.read_bytes(), _marked(before, rows)
        changed = [at for at, byte in enumerate(found) if byte != before[at]]
        assert changed and all(found[at] == complete[at] for at in changed)
    _mark(FaultyFiles(), path, rows)
    assert path.read_bytes() == _marked(before, rows)

"""Sets the delete flags of rows, in as few writes as the rows allow.

A flag is the last byte of its row and only ever goes from live to deleted. A lone one is
written by itself. Rows close to each other are read, marked and written back together: all
other bytes are what they were, because nobody else writes rows, so that a crash in the
middle of such a write leaves old or new flags and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from topicsd.model.record import DELETED, ROW_BYTES
from topicsd.storage.fs import Files

Rows = npt.NDArray[np.int64]

# A page of rows: what lies between closer ones is in a page that gets dirty anyway.
NEAR_ROWS: Final = 4096 // ROW_BYTES
# How much is read and written at once.
BLOCK_ROWS: Final = 4096

_FLAG: Final = bytes([DELETED])
_FLAG_AT: Final = ROW_BYTES - 1


def mark_deleted(files: Files, fd: int, start: int, rows: Rows) -> None:
    """Flip the flags of `rows`, of which number 0 is at position `start` of the file."""
    for block in _blocks(np.sort(rows)):
        first, last = int(block[0]), int(block[-1])
        position = start + first * ROW_BYTES
        if first == last:
            files.write_at(fd, _FLAG, position + _FLAG_AT)
            continue
        length = (last - first + 1) * ROW_BYTES
        content = np.frombuffer(bytearray(files.read_at(fd, length, position)), dtype=np.uint8)
        content[(block - first) * ROW_BYTES + _FLAG_AT] = DELETED
        files.write_at(fd, content.data, position)


def _blocks(rows: Rows) -> Iterator[Rows]:
    """Split ascending rows where they are far apart, and into blocks of a bounded size."""
    if not len(rows):
        return
    for group in np.split(rows, np.flatnonzero(np.diff(rows) > NEAR_ROWS) + 1):
        places = (group - group[0]) // BLOCK_ROWS
        yield from np.split(group, np.flatnonzero(np.diff(places)) + 1)

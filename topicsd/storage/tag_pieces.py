"""Tags of segments that are not sealed: rows in the order of their tags, piece by piece.

A segment has a tag index from its sealing on, which may be a million records and several
segments later. Until then every `PIECE_ROWS` rows are put in order, on a thread of their
own so that appends do not wait, and a look-up is a binary search in each piece plus a look
at the few rows behind the last one. A piece is twelve bytes a row, a row's number and the
beginning of its tag; the rest of the tags stays in the records. Pieces live in memory, so a
crash leaves none that disagrees with what recovery made of the segment; and their number is
bounded, because a row that is in no piece is looked at instead.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from topicsd.model.match import Match
from topicsd.model.record import prefix
from topicsd.storage.shelf import Region, SegmentKey
from topicsd.storage.tag_file import Rows, stored_text
from topicsd.storage.tags import CLOSE, LABEL, confirm, scan_rows, sort_rows

PIECE_ROWS: Final = 131_072
# In all pieces together: 96 MiB.
ROWS_MAX: Final = 8 * 1024 * 1024
_HEAD: Final = 8


class Piece(NamedTuple):
    """Rows `first` to `stop` (exclusive): the tagged ones, in the order of their tags."""

    first: int
    stop: int
    order: npt.NDArray[np.uint32]
    # The first bytes of each tag as a number, so that few records have to be looked at.
    heads: npt.NDArray[np.uint64]


class TagPieces:
    """Pieces of all unsealed segments; built on one thread, asked on another."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows = 0
        self._pieces: OrderedDict[SegmentKey, tuple[Piece, ...]] = OrderedDict()
        self._waiting: deque[tuple[Region, int, int]] = deque()
        self._lock = threading.Lock()
        self._builder: threading.Thread | None = None

    def add(self, region: Region, first: int, stop: int) -> None:
        """Put rows `first` to `stop` (exclusive) of a segment in order, some time soon.

        What was added of a segment before lies below `first`.
        """
        with self._lock:
            self._waiting.append((region, first, stop))
            if self._builder is None:
                self._builder = threading.Thread(target=self._build, daemon=True, name="tags")
                self._builder.start()

    def forget(self, key: SegmentKey) -> None:
        """Give up a segment's pieces: it has an index now."""
        if key in self._pieces:
            with self._lock:
                self._remove(key)

    def wait(self) -> None:
        """Return when everything that was added is in order."""
        builder = self._builder
        if builder is not None:
            builder.join()

    def find_rows(self, region: Region, rows: int, match: Match) -> Rows:
        """Rows below `rows` whose record has a matching tag, ascending."""
        text = stored_text(match.text)
        found = []
        done = 0
        for piece in self._pieces.get(region.key, ()):
            if piece.first > done:
                found.append(scan_rows(region, min(piece.first, rows), match, first=done))
            likely = np.sort(_find(region, piece, text, is_prefix=match.is_prefix))
            if len(likely):
                found.append(confirm(region, likely[likely < rows], match))
            done = piece.stop
        found.append(scan_rows(region, rows, match, first=done))
        return np.concatenate(found)

    def _build(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._builder = None
                    return
                region, first, stop = self._waiting.popleft()
            order, texts = sort_rows(region, first, stop)
            piece = Piece(first, stop, order.astype(np.uint32), _heads(texts))
            self._keep(region.key, piece)

    def _keep(self, key: SegmentKey, piece: Piece) -> None:
        with self._lock:
            self._pieces[key] = (*self._pieces.get(key, ()), piece)
            self._pieces.move_to_end(key)
            self._rows += len(piece.order)
            while self._rows > self._rows_max:
                self._remove(next(iter(self._pieces)))

    def _remove(self, key: SegmentKey) -> None:
        self._rows -= sum(len(piece.order) for piece in self._pieces.pop(key, ()))


def _heads(texts: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint64]:
    """Numbers that are in the order of the tags, as far as their first bytes tell."""
    cut = texts.astype(f"S{_HEAD}")
    return cut.view(">u8").astype(np.uint64)


def _find(region: Region, piece: Piece, text: bytes, *, is_prefix: bool) -> Rows:
    """Rows of a piece whose tag is `text`, or starts with it, going by the records."""
    least = text[:_HEAD].ljust(_HEAD, b"\0")
    greatest = text[:_HEAD].ljust(_HEAD, b"\xff") if is_prefix else least
    low = int(np.searchsorted(piece.heads, np.uint64(int.from_bytes(least, "big"))))
    last = np.uint64(int.from_bytes(greatest, "big"))
    high = int(np.searchsorted(piece.heads, last, side="right"))
    if len(text) > _HEAD - (not is_prefix):
        low = _place(region, piece.order, (low, high), text, is_prefix=is_prefix, after=False)
        high = _place(region, piece.order, (low, high), text, is_prefix=is_prefix, after=True)
    return piece.order[low:high].astype(np.int64)


def _place(
    region: Region,
    order: npt.NDArray[np.uint32],
    between: tuple[int, int],
    text: bytes,
    *,
    is_prefix: bool,
    after: bool,
) -> int:
    """Where the first tag that is not below `text` stands, or the first one `after` matches."""
    low, high = between
    while low < high:
        middle = (low + high) // 2
        tag = _tag(region, int(order[middle]))
        if is_prefix:
            tag = tag[: len(text)]
        if tag < text or (after and tag == text):
            low = middle + 1
        else:
            high = middle
    return low


def _tag(region: Region, row: int) -> bytes:
    """The tag of a row as it stands in its record."""
    ts, _, _, _, _, _, tag_len, _, _, _ = region.rows[row].tolist()
    start = region.position(row) + len(prefix(region.base_seq + row, ts)) + len(LABEL)
    return bytes(region.dat[start : start + tag_len - len(LABEL) - len(CLOSE)])

"""Single records by their seqs: live ones, verified, as they are stored."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from topicsd.model.record import END, META_LABEL, prefix
from topicsd.storage.shelf import Region
from topicsd.storage.tags import only_live
from topicsd.storage.view import Snapshot

_DATA = b'"data":'
_TAG = b'"$tag":'
_NODE = b'"$node":'
_text = msgspec.json.Decoder(str).decode


class Picked(NamedTuple):
    """One record, and where its members are."""

    seq: int
    # The stored form without the comma behind it.
    record: bytes
    prefix_len: int
    head_len: int
    tag_len: int
    tail_len: int

    @property
    def data(self) -> bytes:
        start = self.prefix_len + self.head_len
        # The closing brace is part of the tail, the comma behind it is cut off already.
        return self.record[start : len(self.record) + 1 - self.tail_len]

    @property
    def meta(self) -> bytes | None:
        if self.tail_len == len(END):
            return None
        return self.record[len(self.record) + 1 - self.tail_len + len(META_LABEL) : -1]

    @property
    def tag(self) -> str | None:
        if not self.tag_len:
            return None
        start = self.prefix_len + len(_TAG)
        return _text(self.record[start : self.prefix_len + self.tag_len - 1])

    @property
    def node(self) -> str | None:
        start = self.prefix_len + self.tag_len
        end = self.prefix_len + self.head_len - len(_DATA)
        return _text(self.record[start + len(_NODE) : end - 1]) if end > start else None


def pick(snapshot: Snapshot, seqs: list[int]) -> Iterator[Picked]:
    """The records with these seqs, given in ascending order; those that are gone are left out.

    So are damaged ones, which are reported where they are found.
    """
    bases = snapshot.bases()
    start = 0
    while start < len(seqs):
        index = snapshot.find(seqs[start])
        stop = len(seqs)
        if index + 1 < len(bases):
            stop = bisect_left(seqs, bases[index + 1], start)
        region, count = snapshot.region(index)
        rows = np.array(seqs[start:stop], dtype=np.int64) - region.base_seq
        rows = only_live(region, rows[(rows >= 0) & (rows < count)])
        _verify(region, rows, snapshot.session_row(region, count))
        for row in rows.tolist():
            if row not in region.bad:
                yield _picked(region, row)
        start = stop


def _verify(region: Region, rows: npt.NDArray[np.int64], session_row: int) -> None:
    """Check runs of rows together, others one by one."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        if len(run):
            region.verify(int(run[0]), int(run[-1]) + 1, session_row)


def _picked(region: Region, row: int) -> Picked:
    ts, end, _, _, _, head_len, tag_len, tail_len, _, _ = region.rows[row].tolist()
    seq = region.base_seq + row
    record = bytes(region.dat[region.position(row) : end - 1])
    return Picked(seq, record, len(prefix(seq, ts)), head_len, tag_len, tail_len)

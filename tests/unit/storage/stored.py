"""Segments made of real records, for the tests of the reading side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topicsd.model.record import ROW_DTYPE, complete, pack_record, prefix
from topicsd.storage import segment
from topicsd.storage.board import BoardRow
from topicsd.storage.fs import Files
from topicsd.storage.volume import Limits, Spot, Volume

TS = 1_700_000_000_000


def records(
    first_seq: int, payloads: Sequence[bytes], ts: int = TS, end: int = 0
) -> tuple[bytes, bytes]:
    """Rows and stored form of records that begin at position `end` of a segment."""
    packed = [pack_record(payload, None, None, None) for payload in payloads]
    dat = complete(b"".join(form for form, _ in packed), first_seq, len(payloads), ts)
    rows = np.frombuffer(b"".join(row for _, row in packed), dtype=ROW_DTYPE).copy()
    seqs = range(first_seq, first_seq + len(payloads))
    lengths = [
        int(rest) + len(prefix(seq, ts)) for rest, seq in zip(rows["end"], seqs, strict=True)
    ]
    rows["ts"] = ts
    rows["end"] = end + np.cumsum(lengths)
    return rows.tobytes(), dat


class Log:
    """One log, written through a volume and shown as a board row."""

    def __init__(self, root: Path, *, rows_max: int = 100, files: Files | None = None) -> None:
        limits = Limits(rows_max, 1 << 20)
        self.volume = Volume(files or Files(), root, handles_max=8, limits=limits)
        self.spot = Spot(1, 1, 0, 0, 0)
        self.head = 0
        self.generation = 1
        self.payload_bytes = 0

    def append(self, *payloads: bytes, ts: int = TS) -> None:
        rows, dat = records(self.head + 1, payloads, ts)
        spot = self.volume.reserve(self.spot, len(payloads), len(dat))
        rows, dat = records(self.head + 1, payloads, ts, spot.end)
        if spot.base_seq != self.spot.base_seq:
            self.generation += 1
        self.spot = self.volume.write(spot, rows, dat)
        self.head += len(payloads)
        self.payload_bytes += sum(map(len, payloads))

    def seal(self) -> None:
        """Seal the active segment; nothing may be appended afterwards."""
        counts = (self.spot.rows, self.spot.end)
        segment.seal(Files(), self.volume.root, 1, self.spot.base_seq, counts)

    def row(self, **changes: int) -> BoardRow:
        return BoardRow(
            log_id=1,
            head_seq=self.head,
            next_seq=self.head + 1,
            live=self.head,
            payload_bytes=self.payload_bytes,
            active_base=self.spot.base_seq,
            active_rows=self.spot.rows,
            active_end=self.spot.end,
            location=self.spot.location,
            shelf_generation=self.generation,
        )._replace(**changes)

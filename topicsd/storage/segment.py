"""The formats of a segment's own files: the .idx header, and the seal.

    .idx header, 64 bytes
    0   magic     u32  "TIDX"
    4   version   u32  1
    8   log_id    u64
    16  base_seq  u64
    24  checksum  u64  xxh3_64 of the first 24 bytes
    32  zeros

    .idx after sealing: header, rows, one u64 sum per 256 rows (deleted bytes taken as 0),
    one u64 sum per 64 KiB block of .dat, footer
    footer, 64 bytes
    0   magic     u32  "SEAL"
    4   version   u32  2
    8   rows      u64
    16  dat_bytes u64
    24  rows_sum  u64  xxh3_64 of the sums of rows
    32  sums_sum  u64  xxh3_64 of all sums
    40  payload   u64  bytes of data plus meta of all rows, deleted ones too
    48  zeros
    56  checksum  u64  xxh3_64 of the first 56 bytes

Version 1 had no sums of rows: rows_sum was that of all rows at once, and sums_sum that of
the sums of blocks. It is still read.

A seal whose rows_sum does not match says where the segment ends and vouches for nothing:
it is written on purpose when a record was found damaged before sealing.

A sealed segment never changes again, except that a delete flips a row's deleted byte.
Sealing also cuts the preallocated tails off both files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from topicsd.model.record import END, ROW_BYTES, ROW_DTYPE
from topicsd.storage import place
from topicsd.storage.fs import Files

IDX_MAGIC: Final = 0x58444954
SEAL_MAGIC: Final = 0x4C414553
VERSION: Final = 1
SEAL_VERSION: Final = 2
_HEADER = struct.Struct("<IIQQQ")
_FOOTER = struct.Struct("<IIQQQQQ8xQ")
FOOTER_BYTES: Final = 64
SUM_BLOCK: Final = 65536
# Rows under one sum: few, because a look-up by tag touches single rows far apart.
SUM_ROWS: Final = 256

# Rows looked at together: few enough for the caches, and for who waits meanwhile.
WINDOW_ROWS: Final = 8192
_GROUP: Final = SUM_ROWS * ROW_BYTES

assert _FOOTER.size == FOOTER_BYTES and WINDOW_ROWS % SUM_ROWS == 0

_hash = xxhash.xxh3_64_intdigest
Rows = npt.NDArray[np.void]
Sizes = npt.NDArray[np.int64]
Pace = Callable[[], None]
_META_LABEL_BYTES = len(b',"meta":')


def _no_pause() -> None:
    """The pace of those whom nobody waits for."""


class Seal(NamedTuple):
    """What a footer says about a sealed segment."""

    rows: int
    dat_bytes: int
    rows_sum: int
    payload_bytes: int
    sums: npt.NDArray[np.uint64]
    # One for each `SUM_ROWS` rows; None in version 1, which has one for all of them.
    row_sums: npt.NDArray[np.uint64] | None = None

    def vouches(self, rows: Rows) -> bool:
        """Whether the seal stands for these rows, so far as that is cheap to say.

        What the sums of rows say about each group is left to whoever looks at it.
        """
        if self.row_sums is None:
            return self.matches(rows)
        return _hash(self.row_sums.tobytes()) == self.rows_sum

    def matches(self, rows: Rows) -> bool:
        """Whether all rows are those that were sealed."""
        whole = _hash(_undeleted(rows)) if self.row_sums is None else rows_sum(rows)
        return whole == self.rows_sum

    def matches_group(self, rows: Rows, group: int) -> bool:
        """Whether `SUM_ROWS` rows are those that were sealed."""
        if self.row_sums is None:
            return True
        start = group * SUM_ROWS
        content = _undeleted(rows[start : start + SUM_ROWS])
        return _hash(content) == int(self.row_sums[group])


def build_header(log_id: int, base_seq: int) -> bytes:
    head = _HEADER.pack(IDX_MAGIC, VERSION, log_id, base_seq, 0)[:24]
    return (head + struct.pack("<Q", _hash(head))).ljust(place.IDX_HEADER_BYTES, b"\0")


def check_header(data: bytes | memoryview, log_id: int, base_seq: int) -> str | None:
    """What is wrong with an .idx header, or None."""
    if len(data) < _HEADER.size:
        return "the file is shorter than its header"
    magic, version, found_log, found_base, expected = _HEADER.unpack_from(data)
    if magic != IDX_MAGIC:
        return "no .idx magic"
    if version != VERSION:
        return f"version {version} is not known"
    if _hash(bytes(data[:24])) != expected:
        return "header checksum mismatch"
    if (found_log, found_base) != (log_id, base_seq):
        return f"belongs to log {found_log}, seq {found_base}"
    return None


def rows_sum(rows: Rows) -> int:
    """The sum over rows, whatever was deleted since."""
    return _hash(row_sums(rows).tobytes())


def row_sums(rows: Rows, pace: Pace = _no_pause) -> npt.NDArray[np.uint64]:
    """One sum per `SUM_ROWS` rows, whatever was deleted since."""
    sums: list[int] = []
    # In windows: a copy of a million rows would keep the engine's thread waiting.
    for start in range(0, len(rows), WINDOW_ROWS):
        content = memoryview(_undeleted(rows[start : start + WINDOW_ROWS]))
        sums += [_hash(content[at : at + _GROUP]) for at in range(0, len(content), _GROUP)]
        pace()
    return np.array(sums, dtype="<u8")


def block_sums(dat: memoryview, pace: Pace = _no_pause) -> npt.NDArray[np.uint64]:
    """One sum per 64 KiB of records; the last block may be shorter."""
    sums: list[int] = []
    for start in range(0, len(dat), SUM_BLOCK):
        sums.append(_hash(dat[start : start + SUM_BLOCK]))
        pace()
    return np.array(sums, dtype="<u8")


def _payload_total(rows: Rows, base_seq: int, pace: Pace) -> int:
    """Payload bytes of all rows of a segment."""
    total = start = 0
    for first in range(0, len(rows), WINDOW_ROWS):
        window = rows[first : first + WINDOW_ROWS]
        total += int(payload_sizes(window, base_seq + first, start).sum())
        start = int(window["end"][-1])
        pace()
    return total


def _undeleted(rows: Rows) -> bytearray:
    """Rows as bytes, their deleted bytes 0; ten times as fast as through the dtype."""
    content = bytearray(rows.tobytes())
    content[ROW_BYTES - 1 :: ROW_BYTES] = bytes(len(rows))
    return content


def payload_sizes(rows: Rows, first_seq: int, start: int) -> Sizes:
    """Payload bytes (data plus meta) of consecutive rows, the first of which is at `start`."""
    starts = np.concatenate(([start], rows["end"][:-1].astype(np.int64)))
    return scattered_sizes(rows, np.arange(first_seq, first_seq + len(rows)), starts)


def scattered_sizes(rows: Rows, seqs: Sizes, starts: Sizes) -> Sizes:
    """Payload bytes of any rows, given their seqs and where their records start."""
    ends = rows["end"].astype(np.int64)
    # The prefix is {"$seq":N,"$ts":T, : 16 bytes and the digits of both numbers.
    prefixes = 16 + digits(seqs) + digits(rows["ts"])
    tails = rows["tail_len"].astype(np.int64)
    meta = np.where(tails > len(END), tails - len(END) - _META_LABEL_BYTES, 0)
    sizes: Sizes = ends - starts - prefixes - rows["head_len"] - tails + meta
    return sizes


def digits(values: Sizes) -> Sizes:
    """Decimal digits of positive integers."""
    if len(values) and (width := len(str(values.min()))) == len(str(values.max())):
        # Seqs and timestamps of one segment, nearly always.
        return np.full(len(values), width, dtype=np.int64)
    powers = 10 ** np.arange(1, 19, dtype=np.int64)
    return np.searchsorted(powers, values, side="right").astype(np.int64) + 1


def build_footer(
    rows: Rows, dat: memoryview, base_seq: int, *, vouch: bool = True, pace: Pace = _no_pause
) -> bytes:
    """Sums and footer, to be written right after the rows; `pace` is called now and then.

    Without `vouch` the sum of the rows is wrong on purpose: the seal then says where the
    segment ends, and readers verify every record by itself.
    """
    of_rows = row_sums(rows, pace).tobytes()
    sums = of_rows + block_sums(dat, pace).tobytes()
    row_sum = _hash(of_rows) ^ (not vouch)
    payload = _payload_total(rows, base_seq, pace) if vouch else 0
    totals = (len(rows), len(dat), row_sum, _hash(sums), payload)
    head = _FOOTER.pack(SEAL_MAGIC, SEAL_VERSION, *totals, 0)[: FOOTER_BYTES - 8]
    return sums + head + struct.pack("<Q", _hash(head))


def read_seal(size: int, read_at: Callable[[int, int], bytes]) -> Seal | None:
    """The seal at the end of an .idx file, or None when it is not (intactly) sealed.

    `read_at` takes a length and a position, and may find the file shorter than `size`: a
    segment that is being sealed shrinks, so a mapping's end must not be touched.
    """
    if size < place.IDX_HEADER_BYTES + FOOTER_BYTES:
        return None
    tail = read_at(FOOTER_BYTES, size - FOOTER_BYTES)
    if len(tail) < FOOTER_BYTES:
        return None
    magic, version, rows, dat_bytes, row_sum, sums_sum, payload, expected = _FOOTER.unpack(tail)
    known = magic == SEAL_MAGIC and version in (1, SEAL_VERSION)
    if not known or _hash(tail[: FOOTER_BYTES - 8]) != expected:
        return None
    groups = -(-rows // SUM_ROWS) if version == SEAL_VERSION else 0
    sums_bytes = (groups + -(-dat_bytes // SUM_BLOCK)) * 8
    start = place.IDX_HEADER_BYTES + rows * ROW_BYTES
    if start + sums_bytes + FOOTER_BYTES != size:
        return None
    content = read_at(sums_bytes, start)
    if _hash(content) != sums_sum:
        return None
    sums = np.frombuffer(content, dtype="<u8")
    of_rows = sums[:groups] if version == SEAL_VERSION else None
    return Seal(rows, dat_bytes, row_sum, payload, sums[groups:], of_rows)


def list_bases(files: Files, directory: Path) -> list[int]:
    """Base seqs of the segments that have files of their own, ascending."""
    names = files.list_directory(directory)
    return sorted(int(name[:-4]) for name in names if name.endswith(".idx"))


def seal(
    files: Files,
    root: Path,
    log_id: int,
    base_seq: int,
    counts: tuple[int, int],
    *,
    vouch: bool = True,
    pace: Pace = _no_pause,
) -> None:
    """Write the footer of a segment that will not grow, and make both files durable.

    `counts` are its rows and .dat bytes. Sealing again writes the same bytes.
    """
    rows, dat_bytes = counts
    idx_fd = files.open(place.idx_path(root, log_id, base_seq))
    dat_fd = files.open(place.dat_path(root, log_id, base_seq))
    try:
        row_bytes = files.read_at(idx_fd, rows * ROW_BYTES, place.IDX_HEADER_BYTES)
        dat = files.read_at(dat_fd, dat_bytes, 0)
        found = np.frombuffer(row_bytes, dtype=ROW_DTYPE)
        footer = build_footer(found, memoryview(dat), base_seq, vouch=vouch, pace=pace)
        position = place.IDX_HEADER_BYTES + rows * ROW_BYTES
        files.write_at(idx_fd, footer, position)
        files.truncate(idx_fd, position + len(footer))
        files.truncate(dat_fd, dat_bytes)
        files.sync(dat_fd)
        files.sync(idx_fd)
    finally:
        files.close(idx_fd)
        files.close(dat_fd)

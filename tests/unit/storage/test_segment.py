"""The formats of a segment's own files."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xxhash

from tests.faults.bytes import flip
from topicsd.model.record import DELETED, ROW_DTYPE
from topicsd.storage import place, segment
from topicsd.storage.fs import Files

LOG, BASE, ROWS, DAT_BYTES = 7, 101, 10, 150_000


def _rows() -> segment.Rows:
    rows = np.zeros(ROWS, dtype=ROW_DTYPE)
    rows["end"] = np.linspace(DAT_BYTES / ROWS, DAT_BYTES, ROWS)
    rows["ts"] = 1_700_000_000_000
    return rows


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    """A sealed segment; its preallocated tails are cut off."""
    (tmp_path / str(LOG)).mkdir()
    path = place.idx_path(tmp_path, LOG, BASE)
    content = segment.build_header(LOG, BASE) + _rows().tobytes()
    path.write_bytes(content.ljust(1 << 17, b"\0"))
    place.dat_path(tmp_path, LOG, BASE).write_bytes(bytes(1 << 20))
    segment.seal(Files(), tmp_path, LOG, BASE, (ROWS, DAT_BYTES))
    return path


def _read_seal(path: Path) -> segment.Seal | None:
    data = path.read_bytes()
    return segment.read_seal(len(data), lambda length, at: data[at : at + length])


def test_a_header_belongs_to_its_segment() -> None:
    """Magic, version, checksum, owner: each question has its own answer."""
    header = segment.build_header(LOG, BASE)
    assert len(header) == place.IDX_HEADER_BYTES
    assert segment.check_header(header, LOG, BASE) is None
    assert segment.check_header(header[:20], LOG, BASE) == "the file is shorter than its header"
    assert segment.check_header(b"X" + header[1:], LOG, BASE) == "no .idx magic"
    assert segment.check_header(header[:4] + b"\2" + header[5:], LOG, BASE) == (
        "version 2 is not known"
    )
    damaged = header[:8] + b"\xff" + header[9:]
    assert segment.check_header(damaged, LOG, BASE) == "header checksum mismatch"
    assert segment.check_header(header, LOG, 1) == "belongs to log 7, seq 101"


def test_a_seal_says_what_the_segment_holds(idx: Path) -> None:
    """Rows, bytes, their sums, and nothing behind them."""
    seal = _read_seal(idx)
    assert seal is not None
    assert (seal.rows, seal.dat_bytes) == (ROWS, DAT_BYTES)
    assert seal.rows_sum == segment.rows_sum(_rows())
    assert seal.sums.tolist() == segment.block_sums(memoryview(bytes(DAT_BYTES))).tolist()
    assert len(seal.sums) == 3
    assert idx.with_suffix(".dat").stat().st_size == DAT_BYTES


def test_sealing_again_changes_nothing(idx: Path) -> None:
    """A checkpoint that is repeated after a crash finds its own work."""
    before = idx.read_bytes()
    segment.seal(Files(), idx.parent.parent, LOG, BASE, (ROWS, DAT_BYTES))
    assert idx.read_bytes() == before


def test_a_delete_does_not_break_the_seal() -> None:
    """The deleted byte is taken as 0."""
    rows = _rows()
    rows["deleted"][3] = DELETED
    assert segment.rows_sum(rows) == segment.rows_sum(_rows())


def test_every_damaged_byte_of_a_seal_is_noticed(idx: Path) -> None:
    """Sums and footer are covered, byte for byte."""
    start = place.IDX_HEADER_BYTES + ROWS * ROW_DTYPE.itemsize
    for position in range(start, idx.stat().st_size):
        flip(idx, position)
        assert _read_seal(idx) is None, position
        flip(idx, position)
    assert _read_seal(idx) is not None


def test_an_unsealed_segment_has_no_seal(tmp_path: Path) -> None:
    """Neither an empty file nor preallocated zeros."""
    path = tmp_path / "file"
    for content in (b"", segment.build_header(1, 1), bytes(4096)):
        path.write_bytes(content)
        assert _read_seal(path) is None


def test_a_file_that_shrinks_while_it_is_read_has_no_seal(idx: Path) -> None:
    """The size was taken before sealing cut the file."""
    files = Files()
    fd = files.open_readonly(idx)
    assert segment.read_seal(1 << 17, partial(files.read_at, fd)) is None
    files.close(fd)


def test_bases_are_those_of_index_files(tmp_path: Path) -> None:
    """In order of seq; other files do not count."""
    for name in ("00000000000000000101.idx", "00000000000000000001.idx", "1.dat"):
        (tmp_path / name).touch()
    assert segment.list_bases(Files(), tmp_path) == [1, 101]
    assert segment.list_bases(Files(), tmp_path / "absent") == []


def _first_version(path: Path) -> None:
    """Rewrite a seal as it was before rows had sums of their own."""
    data = path.read_bytes()
    start = place.IDX_HEADER_BYTES + ROWS * ROW_DTYPE.itemsize
    groups = -(-ROWS // segment.SUM_ROWS) * 8
    sums, footer = data[start + groups : -64], bytearray(data[-64:])
    footer[4:8] = struct.pack("<I", 1)
    rows, digest = data[place.IDX_HEADER_BYTES : start], xxhash.xxh3_64_intdigest
    footer[24:40] = struct.pack("<QQ", digest(rows), digest(sums))
    footer[56:] = struct.pack("<Q", digest(bytes(footer[:56])))
    path.write_bytes(data[:start] + sums + footer)


def test_a_seal_of_the_first_version_is_still_read(idx: Path) -> None:
    """Its one sum over all rows is compared at once."""
    _first_version(idx)
    seal, rows = _read_seal(idx), _rows()
    assert seal is not None and seal.row_sums is None
    assert seal.sums.tolist() == segment.block_sums(memoryview(bytes(DAT_BYTES))).tolist()
    assert seal.vouches(rows) and seal.matches(rows) and seal.matches_group(rows, 0)
    rows["ts"][2] += 1
    assert not seal.vouches(rows) and not seal.matches(rows)


def test_a_damaged_row_shows_in_its_group() -> None:
    """Other groups are not touched by it; a deleted flag is no damage."""
    rows = np.concatenate([_rows()] * 60)
    data = segment.build_footer(rows, memoryview(b""), BASE)
    head = place.IDX_HEADER_BYTES + rows.nbytes
    whole = bytes(head) + data
    seal = segment.read_seal(len(whole), lambda length, at: whole[at : at + length])
    assert seal is not None and seal.vouches(rows) and seal.matches(rows)
    rows["deleted"][300] = DELETED
    assert seal.matches(rows)
    rows["ts"][300] += 1
    assert [seal.matches_group(rows, group) for group in range(3)] == [True, False, True]
    assert seal.vouches(rows) and not seal.matches(rows)

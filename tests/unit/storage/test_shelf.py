"""The reading side of segments: mapped, bounded, and checked before it is served."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.faults.bytes import flip
from tests.unit.storage.stored import Log
from topicsd.model.record import ROW_BYTES, ROW_DTYPE
from topicsd.storage import place
from topicsd.storage.fs import Files
from topicsd.storage.shelf import GROUP_ROWS, Region, SegmentKey, Shelf


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, rows_max=10_000)


def _shelf(root: Path, maps_max: int = 4) -> Shelf:
    return Shelf(Files(), (root, root), maps_max=maps_max)


def _key(base_seq: int = 1) -> SegmentKey:
    return SegmentKey(False, 1, base_seq)


def _open(root: Path, log: Log) -> Region:
    return _shelf(root).open(_key(), log.spot.rows, log.spot.end)


def test_a_packed_segment_is_a_private_copy(log: Log, tmp_path: Path) -> None:
    """What happens to the block afterwards does not show."""
    log.append(b"1", b"22")
    region = _shelf(tmp_path).open_packed(_key(), log.spot.location, 2, log.spot.end)
    flip(region.path, 512)
    assert list(region.check_rows(0, 2)) == []
    assert region.file_position(0) == 512 and region.position(1) == region.rows["end"][0]


def test_an_unsealed_segment_is_mapped_again_when_it_grew(log: Log, tmp_path: Path) -> None:
    """A map that covers the visible rows is kept."""
    log.append(*[b"1"] * 300)
    shelf = _shelf(tmp_path)
    first = shelf.open(_key(), log.spot.rows, log.spot.end)
    log.append(b"1")
    assert shelf.open(_key(), log.spot.rows, log.spot.end) is first
    log.append(*[b"1"] * 9000)
    assert shelf.open(_key(), log.spot.rows, log.spot.end) is not first


def test_a_sealed_segment_is_mapped_once(log: Log, tmp_path: Path) -> None:
    """Its rows are bounded by its seal."""
    log.append(*[b"1"] * 300)
    log.seal()
    shelf = _shelf(tmp_path)
    region = shelf.open(_key())
    assert region.seal is not None and len(region.rows) == 300
    assert shelf.open(_key()) is region
    shelf.forget()
    assert shelf.open(_key()) is not region


def test_a_seal_that_vouches_for_nothing_only_says_where_the_segment_ends(
    log: Log, tmp_path: Path
) -> None:
    """Rows beyond it are not there; those before it are verified one by one."""
    log.append(*[b"1"] * 300)
    log.volume.seal(log.spot)
    flip(place.dat_path(tmp_path, 1, 1), 30)
    region = _shelf(tmp_path).open(_key())
    assert region.seal is None and len(region.rows) == 300
    region.verify(0, 300, 300)
    assert region.bad == {0}


def test_maps_are_bounded(log: Log, tmp_path: Path) -> None:
    """The least recently used one goes."""
    log.append(*[b"1"] * 300)
    log.seal()
    for base in (1001, 2001):
        for path in (place.dat_path, place.idx_path):
            path(tmp_path, 1, base).write_bytes(path(tmp_path, 1, 1).read_bytes())
    shelf = _shelf(tmp_path, maps_max=2)
    for base in (1, 1001, 1, 2001):
        shelf.open(_key(base))
    assert [key.base_seq for key in shelf._regions] == [1, 2001]


def test_the_list_of_segments_is_kept_for_a_generation(log: Log, tmp_path: Path) -> None:
    """A new generation looks again."""
    log.append(*[b"1"] * 300)
    shelf = _shelf(tmp_path)
    assert shelf.list_segments(1, 1, tier=place.DISK).bases == [1]
    place.idx_path(tmp_path, 1, 301).touch()
    assert shelf.list_segments(1, 1, tier=place.DISK).bases == [1]
    assert shelf.list_segments(1, 2, tier=place.DISK).bases == [1, 301]


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "unsealed"])
def test_only_the_damaged_record_is_bad(
    log: Log, tmp_path: Path, sealed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours are not, and the log names file and position, once."""
    log.append(*[b'"%d"' % number for number in range(2000)])
    if sealed:
        log.seal()
    path = place.dat_path(tmp_path, 1, 1)
    position = path.read_bytes().index(b'"1500"')
    flip(path, position + 2)
    region = _open(tmp_path, log)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            region.verify(0, 2000, 2000)
    assert region.bad == {1500}
    (line,) = caplog.messages
    assert f"file={path} position={region.position(1500)} seq=1501" in line


def test_nothing_beyond_the_asked_rows_is_verified(log: Log, tmp_path: Path) -> None:
    """Neither another group of an unsealed segment, nor another block of a sealed one."""
    log.append(*[b'"%06d"' % number for number in range(6000)])
    path = place.dat_path(tmp_path, 1, 1)
    position = path.read_bytes().index(b'"005900"') + 2
    flip(path, position)
    region = _open(tmp_path, log)
    region.verify(0, GROUP_ROWS, 6000)
    assert region.bad == set()
    flip(path, position)
    log.seal()
    flip(path, path.read_bytes().index(b'"005800"') + 2)
    region = _open(tmp_path, log)
    region.verify(0, 100, 6000)
    assert region.bad == set()
    region.verify(5700, 5900, 6000)
    assert region.bad == {5800}


def test_rows_of_the_running_engine_are_trusted(log: Log, tmp_path: Path) -> None:
    """They were just written; the rows before them are verified."""
    log.append(*[b'"%d"' % number for number in range(300)])
    path = place.dat_path(tmp_path, 1, 1)
    content = path.read_bytes()
    flip(path, content.index(b'"90"') + 1)
    flip(path, content.index(b'"200"') + 1)
    region = _open(tmp_path, log)
    region.verify(0, 300, 150)
    assert region.bad == {90}


def test_a_record_that_spans_two_blocks_is_verified_with_either(log: Log, tmp_path: Path) -> None:
    """Damage in its second half is found by a read of its first block."""
    log.append(b'"%s"' % (b"x" * 60_000), b'"%s"' % (b"y" * 60_000), *[b"1"] * 300)
    log.seal()
    path = place.dat_path(tmp_path, 1, 1)
    flip(path, 100_000)
    region = _open(tmp_path, log)
    region.verify(1, 2, 302)
    assert region.bad == {1}


@pytest.mark.parametrize("size", [0, 10, 64, 70])
def test_an_index_cut_short_has_no_rows(log: Log, tmp_path: Path, size: int) -> None:
    """It is not an error to open it: a check wants to report it."""
    log.append(*[b"1"] * 300)
    path = place.idx_path(tmp_path, 1, 1)
    path.write_bytes(path.read_bytes()[:size])
    assert len(_shelf(tmp_path).open(_key()).rows) == 0


def _rot_row(root: Path, row: int, field: str) -> None:
    """Change one byte of a row where it lies in the file."""
    at = ROW_DTYPE.fields[field][1] if ROW_DTYPE.fields else 0
    flip(place.idx_path(root, 1, 1), place.IDX_HEADER_BYTES + row * ROW_BYTES + at)


@pytest.mark.parametrize("field", ["ts", "end", "sum", "head_len", "flags"])
def test_a_damaged_row_of_a_sealed_segment_is_found_when_it_is_looked_at(
    log: Log, tmp_path: Path, field: str
) -> None:
    """Not before: opening a long segment does not read all of its rows."""
    log.append(*[b'"%04d"' % number for number in range(2000)])
    log.seal()
    _rot_row(tmp_path, 1500, field)
    region = _open(tmp_path, log)
    assert region.seal is not None
    region.verify(0, 1000, 0)
    assert region.bad == set()
    region.verify(1400, 1600, 0)
    assert 1500 in region.bad and region.bad <= {1500, 1501}


def test_rows_and_records_damaged_at_once_are_both_found(log: Log, tmp_path: Path) -> None:
    """A block that fails is not blamed on records that damaged rows make out to be in it."""
    log.append(*[b'"%04d"' % number for number in range(2000)])
    log.seal()
    dat = place.dat_path(tmp_path, 1, 1)
    flip(dat, dat.read_bytes().index(b'"0100"') + 2)
    _rot_row(tmp_path, 1500, "end")
    region = _open(tmp_path, log)
    region.verify(0, 200, 0)
    assert region.bad == {100}
    region.verify(1490, 1510, 0)
    assert region.bad == {100, 1500, 1501}


def _sound(region: Region, rows: list[int], session_row: int) -> list[int]:
    found: list[int] = region.sound_rows(np.array(rows), session_row).tolist()
    return found


def test_single_rows_are_verified_alone(log: Log, tmp_path: Path) -> None:
    """Of rows far apart the damaged ones are left out, sealed or not."""
    log.append(*[b'"%04d"' % number for number in range(2000)])
    _rot_row(tmp_path, 1500, "sum")
    region = _open(tmp_path, log)
    assert _sound(region, [3, 700, 1500, 1999], 2000) == [3, 700, 1999]
    assert _sound(_open(tmp_path, log), [1500], 1000) == [1500]
    _rot_row(tmp_path, 1500, "sum")
    log.seal()
    _rot_row(tmp_path, 1500, "sum")
    region = _open(tmp_path, log)
    for _ in range(2):
        assert _sound(region, [3, 1499, 1500], 0) == [3, 1499]
        assert _sound(region, [3, 4], 0) == [3, 4]


def test_an_ended_segment_is_mapped_again_only_when_it_is_sealed(log: Log, tmp_path: Path) -> None:
    """Between its end and its seal nothing about it changes."""
    log.append(*[b"1"] * 300)
    shelf = _shelf(tmp_path)
    ended = shelf.open(_key())
    assert ended.seal is None and shelf.open(_key()) is ended
    log.seal()
    assert shelf.open(_key()).seal is not None

"""The writing side of segments: places grow, segments roll, reservations can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.faulty import FaultyFiles
from tests.unit.storage.stored import Log, records
from topicsd.model.record import ROW_BYTES
from topicsd.storage import place, segment
from topicsd.storage.volume import SYNC_ONE_BY_ONE_MAX, Limits, Spot, Volume

FRESH = Spot(1, 1, place.NOWHERE, 0, 0)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def volume(files: FaultyFiles, tmp_path: Path) -> Iterator[Volume]:
    made = Volume(files, tmp_path, handles_max=4, limits=Limits(400, 1 << 20))
    yield made
    made.close()


def _write(volume: Volume, spot: Spot, count: int) -> Spot:
    first = spot.base_seq + spot.rows
    rows, dat = records(first, [b"1"] * count)
    spot = volume.reserve(spot, count, len(dat))
    rows, dat = records(first, [b"1"] * count, end=spot.end)
    return volume.write(spot, rows, dat)


def test_a_growing_log_moves_through_blocks_to_files(volume: Volume) -> None:
    """4, 16 and 64 KiB, then files; what was written is there after every move."""
    spot, places = FRESH, []
    for count in (10, 10, 40, 190, 100):
        spot = _write(volume, spot, count)
        places.append(spot.location if spot.location == place.OWN_FILES else spot.location & 15)
        assert volume.read(spot) == records(1, [b"1"] * spot.rows)
    assert places == [1, 2, 2, 3, place.OWN_FILES]
    assert volume.packs.parked() == 3


def test_a_large_first_write_goes_to_files_at_once(volume: Volume) -> None:
    """No block is taken on the way."""
    spot = _write(volume, FRESH, 300)
    assert spot.location == place.OWN_FILES and volume.packs.parked() == 0


def test_a_full_segment_is_followed_by_the_next(volume: Volume, tmp_path: Path) -> None:
    """A batch that does not fit starts a segment; one larger than any gets its own."""
    spot = _write(volume, _write(volume, FRESH, 300), 101)
    assert (spot.base_seq, spot.rows) == (301, 101)
    spot = _write(volume, spot, 1000)
    assert (spot.base_seq, spot.rows) == (402, 1000)
    assert segment.list_bases(volume._files, tmp_path / "1") == [1, 301, 402]


def test_a_reservation_has_space_behind_it(volume: Volume, tmp_path: Path) -> None:
    """Both files are long enough before anything is written."""
    spot = volume.reserve(FRESH, 300, 1 << 19)
    assert place.dat_path(tmp_path, 1, 1).stat().st_size >= 1 << 19
    assert place.idx_path(tmp_path, 1, 1).stat().st_size >= 64 + 300 * ROW_BYTES
    assert spot == Spot(1, 1, place.OWN_FILES, 0, 0)


def test_a_cancelled_move_leaves_the_log_its_block(volume: Volume) -> None:
    """The block is not given to another log at the next checkpoint."""
    spot = _write(volume, FRESH, 10)
    reserved = volume.reserve(spot, 30, 1000)
    volume.cancel(spot, reserved.location)
    volume.packs.settle(volume.packs.parked())
    taken = {volume.packs.take(1) for _ in range(5)}
    assert spot.location not in taken
    assert volume.read(spot) == records(1, [b"1"] * 10)


def test_a_cancelled_move_to_files_leaves_no_files(volume: Volume, tmp_path: Path) -> None:
    """The log is still packed, so it has no files."""
    spot = _write(volume, FRESH, 10)
    volume.cancel(spot, volume.reserve(spot, 300, 1000).location)
    assert segment.list_bases(volume._files, tmp_path / "1") == []
    assert _write(volume, spot, 300).rows == 310


def test_a_cancelled_roll_leaves_no_segment_in_between(volume: Volume, tmp_path: Path) -> None:
    """A smaller batch may still go to the old segment."""
    spot = _write(volume, FRESH, 350)
    volume.cancel(spot, volume.reserve(spot, 100, 1000).location)
    spot = _write(volume, spot, 20)
    spot = _write(volume, spot, 100)
    assert segment.list_bases(volume._files, tmp_path / "1") == [1, 371]


@pytest.mark.parametrize("call", ["create", "allocate", "make_directory"])
def test_no_space_is_told_by_reserve(volume: Volume, files: FaultyFiles, call: str) -> None:
    """And cancelling leaves everything as it was."""
    spot = _write(volume, FRESH, 200)
    files.refuse(call)
    with pytest.raises(OSError, match="No space left"):
        volume.reserve(spot, 100, 1000)
    files.allow()
    volume.cancel(spot)
    assert volume.packs.parked() == 0
    assert volume.read(spot) == records(1, [b"1"] * 200)


def test_rolling_a_packed_segment_gives_it_files(volume: Volume, tmp_path: Path) -> None:
    """Only the active segment's place is on the board."""
    spot = _write(volume, FRESH, 10)
    assert volume.roll(spot, 50) == Spot(1, 50, place.OWN_FILES, 0, 0)
    assert segment.list_bases(volume._files, tmp_path / "1") == [1]
    volume.seal(spot)
    content = place.idx_path(tmp_path, 1, 1).read_bytes()
    seal = segment.read_seal(len(content), lambda length, at: content[at : at + length])
    assert seal is not None and seal.rows == 10


def test_recovery_discards_what_a_checkpoint_does_not_know(volume: Volume, tmp_path: Path) -> None:
    """Later segments of a log with files, all files of a packed one."""
    spot = _write(volume, FRESH, 350)
    _write(volume, _write(volume, spot, 100), 400)
    volume.discard_after(spot)
    assert segment.list_bases(volume._files, tmp_path / "1") == [1]
    volume.discard_after(spot._replace(location=place.pack_location(1, 0)))
    assert segment.list_bases(volume._files, tmp_path / "1") == []


def test_leaving_names_the_directory_to_remove(volume: Volume, tmp_path: Path) -> None:
    """A packed log only gives its block up."""
    packed = _write(volume, FRESH, 1)
    assert volume.leave(1, packed.location) is None
    assert volume.packs.parked() == 1
    spot = _write(volume, Spot(2, 1, place.NOWHERE, 0, 0), 300)
    assert volume.leave(2, spot.location) == tmp_path / "2"


def test_open_files_are_bounded(volume: Volume, files: FaultyFiles) -> None:
    """The least recently used ones are closed, and opened again when needed."""
    spots = [_write(volume, Spot(log, 1, place.NOWHERE, 0, 0), 300) for log in range(1, 11)]
    assert len(volume._handles) == 4 and len(files._open) == 8
    assert _write(volume, spots[0], 50).rows == 350
    assert volume.read(spots[0]._replace(rows=350))[0] == records(1, [b"1"] * 350)[0]


@pytest.mark.parametrize(
    ("segments", "call"), [(3, "sync"), (SYNC_ONE_BY_ONE_MAX + 1, "sync_volume")]
)
def test_many_segments_are_synced_in_one_call(
    volume: Volume, files: FaultyFiles, segments: int, call: str
) -> None:
    """A few one by one, many with the whole volume; what was dropped is skipped."""
    for log in range(1, segments):
        _write(volume, Spot(log, 1, place.NOWHERE, 0, 0), 300)
    volume.sync({(log, 1) for log in range(1, segments + 1)})
    assert files.count(call) == (1 if call == "sync_volume" else 2 * (segments - 1))


def test_a_handle_that_fails_to_open_leaks_nothing(volume: Volume, files: FaultyFiles) -> None:
    """Both descriptors are closed when the header cannot be written."""
    files.refuse("write_at")
    with pytest.raises(OSError, match="No space left"):
        volume.reserve(FRESH, 300, 1000)
    assert files._open == {}
    files.allow()


def test_a_log_reads_back_through_all_its_segments(tmp_path: Path) -> None:
    """The helper of the other tests does what the engine does."""
    log = Log(tmp_path, rows_max=300)
    for _ in range(10):
        log.append(*[b"1"] * 100)
    assert (log.head, log.spot.base_seq, log.spot.rows) == (1000, 901, 100)
    log.volume.close()

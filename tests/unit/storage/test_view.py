"""One instant of one log: floors, evictions and expiry over several segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.stored import TS, Log
from topicsd.storage import place
from topicsd.storage.fs import Files
from topicsd.storage.pick import pick
from topicsd.storage.shelf import Shelf
from topicsd.storage.view import Eviction, Snapshot, Stale, payload_sizes

STEP_MS = 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three segments of 300 records; ten records a second, payloads of 1 to 3 bytes."""
    made = Log(tmp_path, rows_max=300)
    for start in range(1, 901, 10):
        payloads = [b"%d" % seq for seq in range(start, start + 10)]
        made.append(*payloads, ts=TS + start // 10 * STEP_MS)
    return made


def _snapshot(log: Log, **changes: int) -> Snapshot:
    shelf = Shelf(Files(), (log.volume.root,) * 2, maps_max=8)
    return Snapshot(shelf, log.row(**changes), session=5)


def test_segments_are_found_by_seq(log: Log) -> None:
    """A seq below the first segment belongs to the first."""
    snapshot = _snapshot(log)
    assert snapshot.bases() == [1, 301, 601]
    assert [snapshot.find(seq) for seq in (0, 1, 300, 301, 900)] == [0, 0, 0, 1, 2]


def test_an_empty_log_has_one_empty_segment(tmp_path: Path) -> None:
    """No file is needed to read nothing."""
    snapshot = _snapshot(Log(tmp_path))
    region, rows = snapshot.region(0)
    assert (snapshot.bases(), rows, len(region.rows)) == ([1], 0, 0)
    assert snapshot.first_visible(1) == 1 and snapshot.live_between(1, 1) == (0, 0)


def test_a_segment_just_begun_needs_no_files(log: Log) -> None:
    """A roll by age shows a segment before its first record."""
    before = log.spot
    log.spot = log.volume.roll(before, 901)
    snapshot = _snapshot(log, shelf_generation=99)
    assert snapshot.bases()[-1] == 901
    assert snapshot.first_visible(895) == 895 and snapshot.first_visible(901) == 901


@pytest.mark.parametrize(
    ("first", "limit", "stop", "expected"),
    [
        (1, 3, None, [1, 2, 3]),
        (299, 4, None, [299, 300, 301, 302]),
        (899, 9, None, [899, 900]),
        (901, 9, None, []),
        (1, 0, None, []),
        (1, 9, 4, [1, 2, 3]),
    ],
)
def test_live_records_are_listed(
    log: Log, first: int, limit: int, stop: int | None, expected: list[int]
) -> None:
    """Over the ends of segments, no more than wanted, and none at or above the stop."""
    assert _snapshot(log).list_live(first, limit, stop) == expected


def test_single_records_are_picked(log: Log) -> None:
    """Whole and in order, from any segment; seqs that were never written are left out."""
    found = list(pick(_snapshot(log), [5, 300, 301, 900, 901]))
    assert [(each.seq, each.data, each.meta, each.tag, each.node) for each in found] == [
        (seq, b"%d" % seq, None, None, None) for seq in (5, 300, 301, 900)
    ]
    assert all(each.record.startswith(b'{"$seq":%d,' % each.seq) for each in found)


def test_a_missing_file_means_that_the_log_moved_on(log: Log) -> None:
    """The reader takes a new snapshot."""
    snapshot = _snapshot(log)
    snapshot.bases()
    place.idx_path(log.volume.root, 1, 1).unlink()
    with pytest.raises(Stale):
        snapshot.region(0)


@pytest.mark.parametrize(
    ("elapsed", "first_alive"), [(0, 1), (5000, 1), (5001, 11), (45_000, 401), (10**9, 901)]
)
def test_expiry_is_strict_and_found_by_time(log: Log, elapsed: int, first_alive: int) -> None:
    """A record expires when it is older than the TTL, not when it is as old."""
    snapshot = _snapshot(log, ttl_ms=5000)
    assert snapshot.expired_below(TS + elapsed) == first_alive


def test_expiry_never_goes_back(log: Log) -> None:
    """A clock that is set back brings nothing back."""
    assert _snapshot(log, ttl_ms=5000, ttl_floor=50).expired_below(TS) == 50
    assert _snapshot(log, ttl_ms=0, ttl_floor=50).expired_below(TS + 10**9) == 50


@pytest.mark.parametrize(("first", "stop"), [(1, 901), (295, 305), (1, 1), (899, 950), (600, 300)])
def test_live_records_are_counted_over_segments(log: Log, first: int, stop: int) -> None:
    """Records and payload bytes of a range, wherever its ends are."""
    seqs = range(first, min(stop, 901))
    expected = (len(seqs), sum(len(str(seq)) for seq in seqs))
    assert _snapshot(log).live_between(first, stop) == expected


@pytest.mark.parametrize(
    ("records", "size", "eviction"),
    [
        (1, 0, Eviction(1, 1, 1)),
        (0, 1, Eviction(1, 1, 1)),
        (0, 10, Eviction(10, 10, 11)),
        (0, 11, Eviction(10, 10, 11)),
        (350, 12, Eviction(350, 350, 942)),
        (1, 942, Eviction(350, 350, 942)),
        (900, 0, Eviction(900, 900, 2592)),
    ],
)
def test_eviction_takes_the_oldest_that_cover_both_excesses(
    log: Log, records: int, size: int, eviction: Eviction
) -> None:
    """Whole records, as few as possible, over as many segments as needed."""
    assert _snapshot(log).plan_eviction(records, size) == eviction


def test_eviction_starts_at_the_floor(log: Log) -> None:
    """What is gone already does not count again."""
    assert _snapshot(log, earliest_seq=310).plan_eviction(5, 0) == Eviction(314, 5, 15)


def test_payload_sizes_leave_everything_else_out(log: Log) -> None:
    """Prefixes of different lengths do not count."""
    region, rows = _snapshot(log).region(0)
    assert payload_sizes(region, 0, rows).tolist() == [len(str(seq)) for seq in range(1, rows + 1)]


@pytest.mark.parametrize(
    ("session", "session_seq", "expected"), [(4, 0, 300), (5, 0, 0), (5, 100, 100), (5, 900, 300)]
)
def test_rows_of_another_session_are_to_be_verified(
    log: Log, session: int, session_seq: int, expected: int
) -> None:
    """All of them in an old session, those before the present one otherwise."""
    snapshot = _snapshot(log, session=session, session_seq=session_seq)
    region, _ = snapshot.region(0)
    assert snapshot.session_row(region, 300) == expected


def test_a_packed_log_has_one_segment(tmp_path: Path) -> None:
    """Its rows are copied out of the block."""
    log = Log(tmp_path)
    log.append(b"1", b"22", b"333")
    snapshot = _snapshot(log)
    assert snapshot.bases() == [1]
    assert snapshot.live_between(2, 4) == (2, 5)

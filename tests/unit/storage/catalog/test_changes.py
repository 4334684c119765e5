"""Each change does what its name says, and repeats harmlessly where recovery repeats it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import get_args

import apsw
import pytest

from topicsd.storage.catalog import (
    BOOT_COLUMNS,
    CatalogWriter,
    Change,
    CreateLog,
    DropLog,
    DropSegment,
    ForgetKeys,
    LogState,
    Quarantine,
    RecordGap,
    SaveKeys,
    SaveSegment,
    SaveState,
    Segment,
    SetMeta,
    UpdateConfig,
)
from topicsd.storage.catalog.changes import APPLY

NewLog = Callable[..., CreateLog]


def segment(log_id: int = 1, base_seq: int = 1, **fields: object) -> Segment:
    values: dict[str, object] = {
        "rows": 10, "bytes": 4000, "payload_bytes": 2560, "live_rows": 9, "first_ts": 100,
        "last_ts": 200, "sealed_ts": 300, "checksum": 2**64 - 1, "state": "sealed",
    }  # fmt: skip
    return Segment(log_id=log_id, base_seq=base_seq, **(values | fields))  # type: ignore[arg-type]


@pytest.fixture
def two(writer: CatalogWriter, new_log: NewLog) -> CatalogWriter:
    writer.commit([new_log(1, "a"), new_log(2, "b")])
    return writer


def test_every_change_has_its_function() -> None:
    """The table and the union name the same classes."""
    assert set(APPLY) == set(get_args(Change))


@pytest.mark.parametrize(("row", "name"), [(1, "other"), (5, "a")])
def test_rows_and_names_are_unique(
    two: CatalogWriter, new_log: NewLog, row: int, name: str
) -> None:
    """Two live logs never share a board row or a name."""
    with pytest.raises(apsw.ConstraintError):
        two.commit([new_log(3, name, row=row)])


def test_a_dropped_row_and_name_can_be_taken_in_the_same_commit(
    two: CatalogWriter, new_log: NewLog
) -> None:
    """Changes apply in the order given."""
    two.commit([DropLog(1), new_log(3, "a", row=1, epoch=2)])
    log = two.find_log("a")
    assert log is not None
    assert (log.id, log.row, log.epoch) == (3, 1, 2)


def test_config_must_be_json_and_kind_known(two: CatalogWriter) -> None:
    """The catalog refuses what its views could not read."""
    with pytest.raises(apsw.ConstraintError):
        two.commit([UpdateConfig(1, "{")])
    with pytest.raises(apsw.ConstraintError):
        two.commit([CreateLog(3, 3, "c", "heap", 1, "{}", 0)])


def test_update_config_replaces_the_text(two: CatalogWriter) -> None:
    """The stored text is the given one; an unknown log is a bug, not a silent nothing."""
    two.commit([UpdateConfig(1, '{"type":"queue"}')])
    assert two.get_log(1).config_json == '{"type":"queue"}'
    with pytest.raises(LookupError, match="log 9"):
        two.commit([UpdateConfig(9, "{}")])


def test_drop_log_takes_everything_of_it(two: CatalogWriter) -> None:
    """Segments, gaps and keys go with their log; those of others stay."""
    for log_id in (1, 2):
        two.commit(
            [
                SaveSegment(segment(log_id)),
                RecordGap(log_id, 5, 9, "crash", 1),
                SaveKeys([(log_id, "k", 1, 2, 3)]),
            ]
        )
    two.commit([DropLog(1), DropLog(77)])
    assert two.find_log("a") is None
    assert (two.list_segments(1), two.gaps(1), two.find_key(1, "k")) == ([], [], None)
    assert two.list_segments(2) and two.gaps(2) and two.find_key(2, "k")


def test_segments_are_saved_replaced_and_dropped(two: CatalogWriter) -> None:
    """A segment is found by its log and first seq, oldest first."""
    two.commit([SaveSegment(segment(base_seq=11)), SaveSegment(segment(base_seq=1))])
    two.commit([SaveSegment(segment(base_seq=1, live_rows=3, checksum=0))])
    expected = [segment(base_seq=1, live_rows=3, checksum=0), segment(base_seq=11)]
    assert two.list_segments(1) == expected
    two.commit([DropSegment(1, 1), DropSegment(1, 555)])
    assert two.list_segments(1) == expected[1:]


def test_a_segment_insists_on_its_log(two: CatalogWriter) -> None:
    """A segment or gap of an unknown log is a bug that surfaces."""
    with pytest.raises(apsw.ConstraintError):
        two.commit([SaveSegment(segment(log_id=9))])
    with pytest.raises(apsw.ConstraintError):
        two.commit([RecordGap(9, 1, 2, "crash", 0)])


def test_gaps_repeat_harmlessly(two: CatalogWriter) -> None:
    """Recovering twice records a gap once, as long as it ever was, with its first notice."""
    two.commit([RecordGap(1, 5, 9, "crash", 100), RecordGap(1, 2, 3, "crash", 100)])
    two.commit([RecordGap(1, 5, 7, "again", 200), RecordGap(1, 2, 4, "again", 200)])
    assert two.gaps(1) == [(1, 2, 4, "crash", 100), (1, 5, 9, "crash", 100)]


def test_quarantine_repeats_harmlessly(writer: CatalogWriter) -> None:
    """Setting the same bytes aside again changes nothing."""
    for ts in (1, 2):
        writer.commit([Quarantine("wal/0/3.wal", 4096, 512, "bad checksum", ts)])
    assert writer.list_quarantine() == [("wal/0/3.wal", 4096, 512, "bad checksum", 1)]


def test_meta_is_replaced(writer: CatalogWriter) -> None:
    """The last value wins, within a commit and across."""
    writer.commit([SetMeta("boot", "1"), SetMeta("boot", "2")])
    assert writer.meta("boot") == "2"
    writer.commit([SetMeta("boot", "")])
    assert writer.meta("boot") == ""


def test_save_state_sets_every_column(two: CatalogWriter) -> None:
    """Each field lands in the column of its name, up to the largest 64-bit number."""
    state = LogState._make([2, *range(101, 115), 2**63 - 1])
    two.commit([SaveState([state])])
    untouched, saved = (dict(zip(BOOT_COLUMNS, row, strict=True)) for row in two.load_states())
    assert {name: saved[name] for name in LogState._fields} == state._asdict()
    assert {name: untouched[name] for name in LogState._fields} == LogState(1)._asdict()


def test_a_checkpoint_skips_logs_that_are_gone(two: CatalogWriter) -> None:
    """State and keys of a log dropped meanwhile are no error and leave nothing behind."""
    two.commit([DropLog(1)])
    two.commit([SaveState([LogState(1, head_seq=3), LogState(2, head_seq=4)])])
    two.commit([SaveKeys([(1, "k", 1, 1, 1), (2, "k", 1, 1, 1)])])
    assert [row[0] for row in two.load_states()] == [2]
    assert two.find_key(1, "k") is None
    assert two.find_key(2, "k") is not None


def test_keys_are_saved_replaced_and_forgotten(two: CatalogWriter) -> None:
    """A key belongs to its log, byte for byte, and expires by the time of that log."""
    two.commit([SaveKeys([(1, "k", 1, 2, 10), (1, "K", 3, 4, 20), (2, "k", 5, 6, 10)])])
    two.commit([SaveKeys([(1, "k", 7, 8, 30)])])
    assert two.find_key(1, "k") == (1, "k", 7, 8, 30)
    assert two.find_key(1, "K") == (1, "K", 3, 4, 20)
    two.commit([ForgetKeys([(1, 30), (2, 10)])])
    assert two.find_key(1, "K") is None
    assert two.find_key(1, "k") is not None
    assert two.find_key(2, "k") is not None


def test_a_window_beyond_all_time_forgets_nothing(two: CatalogWriter) -> None:
    """The longest window reaches further back than SQLite can count."""
    two.commit([SaveKeys([(1, "k", 1, 2, 0)])])
    two.commit([ForgetKeys([(1, 1_000 - (2**64 - 1))])])
    assert two.find_key(1, "k") is not None


def test_forgetting_keys_seeks(writer: CatalogWriter) -> None:
    """Expiry reads only what it deletes."""
    plan = writer._rows(
        "EXPLAIN QUERY PLAN DELETE FROM idempotency WHERE log_id = ? AND ts < ?", 1, 1
    )
    assert "idempotency_by_ts (log_id=? AND ts<?)" in plan[0][3]


def test_a_failed_commit_changes_nothing(two: CatalogWriter, new_log: NewLog) -> None:
    """All changes or none, and the next commit works."""
    with pytest.raises(apsw.ConstraintError):
        two.commit([new_log(3, "c"), DropLog(1), SetMeta("x", "y"), new_log(4, "b")])
    assert two.find_log("c") is None
    assert two.find_log("a") is not None
    assert two.meta("x") is None
    two.commit([new_log(3, "c")])
    assert two.next_id() == 4


def test_a_failure_inside_a_bulk_change_changes_nothing(two: CatalogWriter) -> None:
    """A bad value in the middle of a checkpoint undoes its beginning."""
    broken = LogState(2, head_seq="many")  # type: ignore[arg-type]
    with pytest.raises(apsw.ConstraintError):
        two.commit([SaveState([LogState(1, head_seq=5), broken])])
    assert [row[3] for row in two.load_states()] == [0, 0]


def test_a_checkpoint_of_many_logs_is_quick(writer: CatalogWriter, new_log: NewLog) -> None:
    """100,000 states are saved well within a second."""
    writer.commit([new_log(n, f"t{n}") for n in range(1, 100_001)])
    states = [LogState(n, *range(n, n + 15)) for n in range(1, 100_001)]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        writer.commit([SaveState(states)])
        times.append(time.perf_counter() - start)
    assert min(times) < 1

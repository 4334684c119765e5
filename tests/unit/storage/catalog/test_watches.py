"""Watch sessions in the catalog: added, opened, saved, interrupted, dropped, found when old."""

from __future__ import annotations

import apsw
import pytest

from topicsd.storage.catalog import (
    WATCH_IDLE,
    WATCH_INTERRUPTED,
    WATCH_OPEN,
    AddWatch,
    CatalogWriter,
    DropWatches,
    InterruptWatches,
    OpenWatch,
    SaveWatches,
    WatchRecord,
)
from topicsd.storage.catalog.queries import _OLD_WATCHES


def watch(wid: str, access_ts: int = 100, state: int = WATCH_IDLE) -> WatchRecord:
    return WatchRecord(wid, "key", "{}", '{"t":[1,0]}', "[]", 0, state, 50, access_ts)


def get(writer: CatalogWriter, wid: str) -> WatchRecord:
    found = writer.find_watch(wid)
    assert found is not None
    return found


def test_a_session_is_found_as_it_was_added(writer: CatalogWriter) -> None:
    """By its wid, letter for letter, and only once."""
    writer.commit([AddWatch(watch("w"))])
    assert writer.find_watch("w") == watch("w")
    assert writer.find_watch("W") is None
    assert writer.count_watches() == 1
    with pytest.raises(apsw.ConstraintError):
        writer.commit([AddWatch(watch("w"))])


def test_opening_notes_generation_cursors_and_openings(writer: CatalogWriter) -> None:
    """Spec, key and creation stay."""
    writer.commit([AddWatch(watch("w")), OpenWatch("w", 3, '{"t":[1,9]}', "[[3,{}]]", 200)])
    expected = watch("w", 200, WATCH_OPEN)._replace(
        generation=3, cursors='{"t":[1,9]}', openings="[[3,{}]]"
    )
    assert get(writer, "w") == expected


def test_saving_changes_many_at_once(writer: CatalogWriter) -> None:
    """Without cursors it keeps those there are; a session that is gone stays gone."""
    writer.commit([AddWatch(watch("a")), AddWatch(watch("b")), AddWatch(watch("c"))])
    saves = [("a", "{}", WATCH_OPEN, 300), ("b", None, WATCH_INTERRUPTED, 300)]
    writer.commit([SaveWatches([*saves, ("gone", "{}", WATCH_OPEN, 300)])])
    assert get(writer, "a") == watch("a", 300, WATCH_OPEN)._replace(cursors="{}")
    assert get(writer, "b") == watch("b", 300, WATCH_INTERRUPTED)
    assert get(writer, "c") == watch("c")
    assert writer.find_watch("gone") is None


def test_old_sessions_are_listed_oldest_first(writer: CatalogWriter) -> None:
    """Those without a stream only, strictly before the time, as many as asked for."""
    ages = {"a": 30, "b": 10, "c": 20, "d": 40}
    writer.commit([AddWatch(watch(wid, ts)) for wid, ts in ages.items()])
    writer.commit([AddWatch(watch("open", 1, WATCH_OPEN))])
    writer.commit([AddWatch(watch("lost", 15, WATCH_INTERRUPTED))])
    assert writer.list_old_watches(40, 10) == ["b", "lost", "c", "a"]
    assert writer.list_old_watches(30, 2) == ["b", "lost"]
    assert writer.list_old_watches(10, 10) == []


def test_looking_for_old_sessions_does_not_pass_open_ones(writer: CatalogWriter) -> None:
    """An index leads straight to those without a stream."""
    plan = writer._rows(f"EXPLAIN QUERY PLAN {_OLD_WATCHES}", 5, 10)
    assert [row[3] for row in plan] == [
        "SEARCH watch_sessions USING INDEX watch_sessions_by_access (last_access_ts<?)"
    ]


def test_a_start_interrupts_what_was_open(writer: CatalogWriter) -> None:
    """Idle and already interrupted sessions keep their time."""
    writer.commit([AddWatch(watch(f"w{state}", 5, state)) for state in (0, 1, 2)])
    writer.commit([InterruptWatches(900)])
    found = [get(writer, f"w{state}") for state in (0, 1, 2)]
    assert [(each.open, each.last_access_ts) for each in found] == [(0, 5), (2, 900), (2, 5)]


def test_dropping_takes_those_named(writer: CatalogWriter) -> None:
    """Also none, and also some that are not there."""
    writer.commit([AddWatch(watch(wid)) for wid in "abc"])
    writer.commit([DropWatches(["a", "c", "absent"]), DropWatches([])])
    assert [wid for wid in "abc" if writer.find_watch(wid)] == ["b"]


@pytest.mark.parametrize("field", ["cursors", "openings"])
def test_what_people_read_is_json(writer: CatalogWriter, field: str) -> None:
    """The views could not read anything else."""
    with pytest.raises(apsw.ConstraintError):
        writer.commit([AddWatch(watch("w")._replace(**{field: "{"}))])

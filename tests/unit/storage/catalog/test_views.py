"""People read the catalog with the SQLite of their machine."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from topicsd.storage.catalog import (
    AddWatch,
    CatalogWriter,
    CreateLog,
    DropLog,
    LogState,
    QueueRecord,
    SaveLeases,
    SaveSegment,
    SaveState,
    Segment,
    WatchRecord,
)


@pytest.fixture
def filled(writer: CatalogWriter, new_log: Callable[..., CreateLog]) -> CatalogWriter:
    stream = CreateLog(3, 3, "s", "stream", 1, "{}", 0)
    state = LogState(2, head_seq=9, earliest_seq=4, count=6, bytes=60,
                     last_write_ts=1_700_000_060_007)  # fmt: skip
    segment = Segment(
        log_id=2, base_seq=4, rows=6, bytes=600, payload_bytes=60, live_rows=6,
        first_ts=1_700_000_000_000, last_ts=1_700_000_001_000, sealed_ts=0, checksum=0xAB,
        state="active",
    )  # fmt: skip
    writer.commit([new_log(1, "b"), new_log(2, "a"), stream])
    writer.commit([SaveState([state]), SaveSegment(segment)])
    for wid, key, state_number, created_ts in (
        ("w2", "", 2, 1),
        ("w1", "k", 1, 1),
        ("w0", "", 0, 2),
    ):
        watch = WatchRecord(wid, key, "{}", '{"a":[1,5],"b":[1,0]}', "[]", 3, state_number,
                            1_700_000_000_000 + created_ts, 1_700_000_060_007)  # fmt: skip
        writer.commit([AddWatch(watch)])
    return writer


TOPICS = "select name, type, durability, head_seq, earliest_seq, count, bytes, created, last_write"
TOPIC_LINES = [
    "a|log|disk|9|4|6|60|2023-11-14T22:13:20.123Z|2023-11-14T22:14:20.007Z",
    "b|log|disk|0|0|0|0|2023-11-14T22:13:20.123Z|",
]
WATCHES = "select wid, key, state, generation, topics, created, last_access"
WATCH_LINES = [
    "w1|k|open|3|2|2023-11-14T22:13:20.001Z|2023-11-14T22:14:20.007Z",
    "w2||interrupted|3|2|2023-11-14T22:13:20.001Z|2023-11-14T22:14:20.007Z",
    "w0||idle|3|2|2023-11-14T22:13:20.002Z|2023-11-14T22:14:20.007Z",
]
SEGMENTS = "select topic, base_seq, last_seq, rows, bytes, state, first_record, sealed, checksum"
SEGMENT_LINES = ["a|4|9|6|600|active|2023-11-14T22:13:20.000Z||00000000000000ab"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"{TOPICS} from v_topics", TOPIC_LINES),
        (f"{SEGMENTS} from v_segments", SEGMENT_LINES),
        (f"{WATCHES} from v_watches", WATCH_LINES),
    ],
)
def test_views_read_like_tables(
    filled: CatalogWriter, path: Path, query: str, expected: list[str]
) -> None:
    """Names in order, times as text, nothing but topics, 0 shown as nothing."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute(query).fetchall()
    connection.close()
    lines = ["|".join("" if value is None else str(value) for value in row) for row in rows]
    assert lines == expected


# Python's own module uses the machine's SQLite library, as the shell does. In a process of
# its own, because two SQLite libraries in one process break each other's locks.
ELSEWHERE = """
import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print("|".join("" if value is None else str(value) for value in row))
"""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"{TOPICS} from v_topics", TOPIC_LINES),
        (f"{SEGMENTS} from v_segments", SEGMENT_LINES),
        (f"{WATCHES} from v_watches", WATCH_LINES),
        ("select count(*) from v_topics where name = 'a'", ["1"]),
    ],
)
def test_an_older_library_reads_a_catalog_in_use(
    filled: CatalogWriter, path: Path, query: str, expected: list[str]
) -> None:
    """The machine's own SQLite, usually older than ours, works while the writer is open."""
    command = [sys.executable, "-c", ELSEWHERE, str(path), query]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected


def test_queues_are_shown_with_their_jobs(
    writer: CatalogWriter, path: Path, new_log: Callable[..., CreateLog]
) -> None:
    """Leases that ran out count as ready; logs are no queues."""
    config = '{"type":"queue","lease_ms":1000,"max_deliveries":5,"dead_letter":"d"}'
    queue = dataclasses.replace(new_log(1, "q"), config_json=config)
    later = 4_000_000_000_000
    held, over, put_off = (1, 1, later, 7, "w", 1), (1, 2, 5, 8, "w", 2), (1, 3, later, 0, "", 1)
    gone = (9, 1, later, 7, "w", 1)
    writer.commit([queue, new_log(2, "log"), SaveState([LogState(1, count=10)])])
    writer.commit([SaveLeases([QueueRecord(1, 4, 6)], [held, over, put_off, gone], [])])
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    columns = "name, ready, in_flight, delayed, dead_lettered, jobs, max_deliveries, dead_letter"
    rows = connection.execute(f"select {columns} from v_queues").fetchall()
    connection.close()
    assert rows == [("q", 8, 1, 1, 6, 10, 5, "d")]
    assert writer.find_queue(1) == QueueRecord(1, 4, 6)
    assert len(writer.list_leases(1)) == 3 and writer.list_leases(9) == []
    writer.commit([SaveLeases([], [], [(1, 1)]), DropLog(1)])
    assert writer.list_leases(1) == [] and writer.find_queue(1) is None

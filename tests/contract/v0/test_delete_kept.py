"""A delete outlives restarts, killed engines and checkpoints (API 5, DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.v0.test_delete import ask, deleted, fill, left
from tests.harness.answers import good, seqs
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.waiting import until

KEPT = ("memory", "disk", "fsync")
SMALL_SEGMENTS = {"TOPICS_SEGMENT_MAX_EVENTS": "100", "TOPICS_CHECKPOINT_INTERVAL_MS": "100"}


def watermarks(api: Api, topic: str) -> tuple[int, int, int, int]:
    state = good(api.state(topic))
    return state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]


def segment_files(server: Server, suffix: str) -> set[str]:
    root: Path = server.data_dir / "segments"
    return {str(path.relative_to(root)) for path in root.glob(f"*/*{suffix}")}


@pytest.mark.parametrize("durability", KEPT)
def test_a_delete_survives_a_restart_and_a_crash(
    mortal: Server, mortal_api: Api, topic: str, durability: str
) -> None:
    """DESIGN 7: committed and WAL-logged, in every class that keeps records."""
    fill(mortal_api, topic, "x", "y", "x", "y", "x", "y", durability=durability)
    assert deleted(mortal_api, topic, match="x") == 3
    assert deleted(mortal_api, topic, before_seq=4) == 1
    for again in (mortal.crash, mortal.restart, mortal.crash):
        again()
        assert left(mortal_api, topic) == [4, 6]
        assert watermarks(mortal_api, topic) == (6, 4, 2, 2)
        assert good(mortal_api.diff(topic, 0))["tombstone"] is None
        assert deleted(mortal_api, topic, match="x") == 0


def test_consecutive_deletes_are_counted_once_after_a_crash(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """Replay meets records that are marked by deletes it has not come to yet."""
    fill(mortal_api, topic, "a", "b", "c", "d", "e")
    mortal.restart()
    for tag in ("a", "b", "d"):
        assert deleted(mortal_api, topic, match=tag) == 1
    before = watermarks(mortal_api, topic)
    mortal.crash()
    assert watermarks(mortal_api, topic) == before == (5, 3, 2, 2)
    assert left(mortal_api, topic) == [3, 5]


def test_evicted_records_do_not_come_back_after_a_delete(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """DESIGN 5.1: earliest_seq never decreases, also when a crash repeats evict and delete."""
    fill(mortal_api, topic, *(["x"] * 7), "y", "y", "y", cap_records=5)
    assert deleted(mortal_api, topic, match="x") == 2
    mortal.crash()
    assert left(mortal_api, topic) == [8, 9, 10]
    assert good(mortal_api.diff(topic, 0))["tombstone"]["reason"] == "cap"
    assert good(mortal_api.diff(topic, 5))["tombstone"] is None


def test_records_after_a_delete_survive_with_it(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """Replay keeps the order of appends and deletes: a later record with the tag stays."""
    for number in range(1, 6):
        good(mortal_api.write(topic, [{"data": number, "tag": "v"}]), 201 if number == 1 else 200)
        deleted(mortal_api, topic, match="v", before_seq=number)
    mortal.crash()
    assert left(mortal_api, topic) == [5]
    assert watermarks(mortal_api, topic) == (5, 5, 1, 1)


def test_a_checkpoint_keeps_what_it_lets_go_of_in_the_wal(launch: Callable[..., Server]) -> None:
    """API 5: the flag in the sealed segment is a witness of its own."""
    server = launch(**SMALL_SEGMENTS)
    api = Api(server)
    for first in range(0, 650, 50):
        records = [{"data": 1, "tag": f"k{number % 7}"} for number in range(first, first + 50)]
        good(api.write("t", records), 200 if first else 201)
    until(lambda: len(segment_files(server, ".tag")) >= 4, 10, why="sealed segments")
    assert deleted(api, "t", match="k3") == 93
    assert deleted(api, "t", match=["tag", "Glob", "k5*"], before_seq=300) == 42
    wal = {path.name for path in (server.data_dir / "wal").rglob("*.wal")}

    def trimmed() -> bool:
        return not wal & {path.name for path in (server.data_dir / "wal").rglob("*.wal")}

    until(trimmed, 10, why="a checkpoint to remove the WAL files")
    before = watermarks(api, "t")
    kept = left_all(api)
    server.crash()
    assert (watermarks(api, "t"), left_all(api)) == (before, kept)
    gone = {
        seq for seq in range(1, 651) if (seq - 1) % 7 == 3 or ((seq - 1) % 7 == 5 and seq < 300)
    }
    assert kept == [seq for seq in range(1, 651) if seq not in gone]
    api.close()


def left_all(api: Api) -> list[int]:
    return seqs(good(api.diff("t", limit=1000)))


def test_a_cleared_segment_is_dropped_whole(launch: Callable[..., Server]) -> None:
    """DESIGN 7.4: its files go in one operation, those of the others stay."""
    server = launch(**SMALL_SEGMENTS)
    api = Api(server)
    records = [{"data": number, "tag": "t"} for number in range(100)]
    for first in range(0, 500, 100):
        good(api.write("t", records), 200 if first else 201)
    until(lambda: len(segment_files(server, ".tag")) >= 3, 10, why="sealed segments")
    files = segment_files(server, ".dat")
    assert good(ask(api, "t", before_seq=301))["deleted"] == 300
    until(lambda: len(segment_files(server, ".dat")) == len(files) - 2, 10, why="dropped segments")
    assert left_all(api) == list(range(301, 501))
    assert deleted(api, "t", match="t", before_seq=401) == 100
    until(lambda: len(segment_files(server, ".dat")) == len(files) - 3, 10, why="dropped segment")
    server.restart()
    assert left_all(api) == list(range(401, 501))
    api.close()


def test_an_ephemeral_topic_deletes_too(mortal: Server, mortal_api: Api, topic: str) -> None:
    """DESIGN 2.2: resident-only records are deleted like others, and gone after a restart."""
    fill(mortal_api, topic, "x", "y", "x", durability="ephemeral")
    assert deleted(mortal_api, topic, match="x") == 2
    assert left(mortal_api, topic) == [2]
    mortal.restart()
    assert left(mortal_api, topic) == []

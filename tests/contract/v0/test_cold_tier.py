"""The cold tier (DESIGN 5.6): older sealed segments in another directory, the same answers."""

from __future__ import annotations

from pathlib import Path

from tests.harness.answers import good, payloads
from tests.harness.api import Api
from tests.harness.server import Shape, start_server
from tests.harness.waiting import until

RECORDS = 2000


def cold_files(cold: Path) -> list[Path]:
    return sorted(cold.glob("topicsd-*/*/*.idx"))


def read_all(api: Api, topic: str) -> list[int]:
    found: list[int] = []
    cursor = 0
    while True:
        page = good(api.diff(topic, from_seq=cursor, limit=1000))
        assert page["tombstone"] is None
        found += payloads(page)
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return found


def test_segments_move_while_the_topic_is_in_use(shape: Shape, tmp_path: Path) -> None:
    """Reads, deletes and a killed engine: nothing differs but the place of the files."""
    cold = tmp_path / "cold"
    server = start_server(
        tmp_path,
        shape,
        TOPICS_COLD_DIR=str(cold),
        TOPICS_HOT_RETAIN_SEGMENTS="2",
        TOPICS_SEGMENT_MAX_EVENTS="300",
        TOPICS_CHECKPOINT_INTERVAL_MS="100",
    )
    api = Api(server)
    for first in range(0, RECORDS, 100):
        good(api.append("t", *range(first, first + 100)), 201 if first == 0 else 200)
    until(lambda: len(cold_files(cold)) >= 4, 10, why="segments move")
    assert read_all(api, "t") == list(range(RECORDS))
    reply = good(api.request("POST", "/v0/topics/t/delete", json={"before_seq": 401}))
    assert (reply["deleted"], reply["earliest_seq"]) == (400, 401)
    assert read_all(api, "t") == list(range(400, RECORDS))
    server.crash()
    assert read_all(api, "t") == list(range(400, RECORDS))
    good(api.append("t", RECORDS))
    server.restart()
    assert read_all(api, "t") == list(range(400, RECORDS + 1))
    good(api.delete("t"))
    until(lambda: not cold_files(cold), 10, why="segments of a deleted topic go")
    api.close()
    server.finish()

"""What survives a clean restart and a killed engine (API 0.10, DESIGN 2.2, 4; decision 2.11)."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.contract.v0.config_defaults import DEFAULTS
from tests.harness.answers import good, payloads, refused, seqs
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.waiting import until

KEPT = ("memory", "disk", "fsync")


def write_all_classes(api: Api, topic: str) -> None:
    for durability in ("ephemeral", *KEPT):
        config = {"durability": durability, "priority": 7}
        good(api.append(f"{topic}-{durability}", 1, 2, 3, config=config), 201)


def test_a_clean_restart_keeps_what_each_class_promises(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 0.10: memory, disk and fsync records are there, every configuration is."""
    write_all_classes(mortal_api, topic)
    before = {name: good(mortal_api.diff(f"{topic}-{name}"))["records"] for name in KEPT}
    mortal.restart()
    for durability in KEPT:
        name = f"{topic}-{durability}"
        page = good(mortal_api.diff(name))
        assert page["records"] == before[durability]
        assert (page["tombstone"], page["caught_up"]) == (None, True)
        state = good(mortal_api.state(name))
        assert (state["head_seq"], state["earliest_seq"], state["count"]) == (3, 1, 3)
        assert state["bytes"] == 3
        assert state["last_write_ts"] == before[durability][-1]["$ts"]
        assert state["config"]["priority"] == 7
        assert good(mortal_api.append(name, 4))["seqs"] == [4]


def test_an_ephemeral_topic_restarts_empty_with_its_head(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """Decision 2.11: records are gone, configuration and head are kept, seqs go on."""
    good(mortal_api.append(topic, 1, 2, 3, config={"durability": "ephemeral"}), 201)
    mortal.restart()
    state = good(mortal_api.state(topic))
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (3, 4, 4)
    assert (state["count"], state["bytes"]) == (0, 0)
    assert state["config"]["durability"] == "ephemeral"
    page = good(mortal_api.diff(topic))
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 3, True)
    assert good(mortal_api.append(topic, "new"))["seqs"] == [4]
    assert payloads(good(mortal_api.diff(topic))) == ["new"]


def test_lost_ephemeral_records_are_not_lost_silently(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """DESIGN 4, 9: a gap of lost acknowledged writes looks like eviction to a consumer."""
    good(mortal_api.append(topic, 1, 2, 3, config={"durability": "ephemeral"}), 201)
    mortal.restart()
    tombstone = good(mortal_api.diff(topic, 1))["tombstone"]
    assert tombstone is not None
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (2, 3)
    assert good(mortal_api.diff(topic, 3))["tombstone"] is None


def test_configurations_and_deletions_survive_a_restart(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 1: the control plane is durable, whatever the class of the records."""
    config: dict[str, Any] = {**DEFAULTS, "type": "queue", "ttl_ms": 9_000_000, "priority": -3}
    good(mortal_api.put(f"{topic}-kept", config), 201)
    good(mortal_api.put(f"{topic}-changed", {"cap_records": 5}), 201)
    good(mortal_api.put(f"{topic}-changed", {"cap_records": 6}))
    good(mortal_api.append(f"{topic}-deleted", 1, 2), 201)
    good(mortal_api.delete(f"{topic}-deleted"))
    good(mortal_api.append(f"{topic}-again", "old", "old"), 201)
    good(mortal_api.delete(f"{topic}-again"))
    good(mortal_api.append(f"{topic}-again", "new"), 201)
    mortal.restart()
    assert good(mortal_api.state(f"{topic}-kept"))["config"] == config
    assert good(mortal_api.state(f"{topic}-changed"))["config"]["cap_records"] == 6
    refused(mortal_api.state(f"{topic}-deleted"), 404, "topic_not_found")
    assert good(mortal_api.append(f"{topic}-deleted", 1), 201)["seqs"] == [1]
    assert payloads(good(mortal_api.diff(f"{topic}-again"))) == ["new"]
    listed = good(mortal_api.list(prefix=f"{topic}-"))["topics"]
    assert [entry["topic"].rpartition("-")[2] for entry in listed] == [
        "again",
        "changed",
        "deleted",
        "kept",
    ]


def test_floors_and_payloads_survive_a_restart(mortal: Server, mortal_api: Api, topic: str) -> None:
    """API 3.3: an eviction before the restart is still a tombstone after it."""
    good(mortal_api.put(topic, {"cap_records": 2}), 201)
    body = b'{"records":[{"data":1.10,"tag":"t","node":"n","meta":{"b":1e2,"a":1}}]}'
    for _ in range(4):
        good(mortal_api.write_bytes(topic, body))
    before = mortal_api.diff(topic, include_tags=True)
    mortal.restart()
    after = mortal_api.diff(topic, include_tags=True)
    assert (
        after.content.partition(b'"performance"')[0]
        == before.content.partition(b'"performance"')[0]
    )
    assert b'"data":1.10' in after.content and b'"meta":{"b":1e2,"a":1}' in after.content
    tombstone = good(after)["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (1, 2, "cap")


def test_idempotency_keys_survive_a_restart_and_a_crash(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """Decision 2.12: a retry after a restart or a kill -9 is still recognized."""
    good(mortal_api.put(topic, {"durability": "fsync"}), 201)
    good(mortal_api.append(topic, "a", "b", idempotency_key="k1"))
    mortal.restart()
    retry = good(mortal_api.append(topic, "a", "b", idempotency_key="k1"))
    assert (retry["seqs"], retry["deduped"]) == ([1, 2], True)
    good(mortal_api.append(topic, "c", idempotency_key="k2"))
    mortal.crash()
    for key, expected in (("k1", [1, 2]), ("k2", [3])):
        retry = good(mortal_api.append(topic, "x", idempotency_key=key))
        assert (retry["seqs"], retry["deduped"]) == (expected, True)
    assert payloads(good(mortal_api.diff(topic))) == ["a", "b", "c"]
    assert good(mortal_api.append(topic, "d", idempotency_key="k3"))["seqs"] == [4]


def test_a_killed_engine_loses_no_synced_record(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 0.10: fsync survives any crash, and seqs go on where they were."""
    good(mortal_api.put(topic, {"durability": "fsync"}), 201)
    for number in range(1, 21):
        good(mortal_api.append(topic, number))
    mortal.crash()
    page = good(mortal_api.diff(topic))
    assert payloads(page) == list(range(1, 21))
    assert page["tombstone"] is None
    assert good(mortal_api.append(topic, 21))["seqs"] == [21]
    mortal.crash()
    assert payloads(good(mortal_api.diff(topic))) == list(range(1, 22))


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_a_killed_engine_invents_nothing(
    mortal: Server, mortal_api: Api, topic: str, durability: str
) -> None:
    """DESIGN 4: what remains is a prefix of what was written."""
    good(mortal_api.put(topic, {"durability": durability}), 201)
    for number in range(1, 51):
        good(mortal_api.append(topic, number))
    mortal.crash()
    page = good(mortal_api.diff(topic))
    kept = payloads(page)
    assert kept == list(range(1, len(kept) + 1))
    body = good(mortal_api.append(topic, "after"))
    if durability == "disk":
        assert body["first_seq"] >= 51, "an acknowledged seq was handed out again"
    else:
        assert body["first_seq"] > len(kept)


def test_a_killed_engine_never_reuses_an_ephemeral_seq_it_published(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 0.10: after a crash an ephemeral topic is empty and its configuration is there."""
    good(mortal_api.put(topic, {"durability": "ephemeral", "priority": 5}), 201)
    good(mortal_api.append(topic, 1, 2, 3))
    mortal.crash()
    state = good(mortal_api.state(topic))
    assert (state["count"], state["config"]["priority"]) == (0, 5)
    body = good(mortal_api.append(topic, "after"))
    assert body["first_seq"] == state["next_seq"]
    assert payloads(good(mortal_api.diff(topic, body["first_seq"] - 1))) == ["after"]


def test_topics_created_and_deleted_before_a_crash_stay_so(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 1: an answered PUT or DELETE survives kill -9."""
    good(mortal_api.put(f"{topic}-kept", {"ttl_ms": 9_000_000}), 201)
    good(mortal_api.append(f"{topic}-gone", 1, config={"durable": True}), 201)
    good(mortal_api.delete(f"{topic}-gone"))
    mortal.crash()
    assert good(mortal_api.state(f"{topic}-kept"))["config"]["ttl_ms"] == 9_000_000
    refused(mortal_api.state(f"{topic}-gone"), 404, "topic_not_found")


class SyncedWriter(threading.Thread):
    """Appends numbered records to an fsync topic until told to stop; notes what was acked."""

    def __init__(self, api: Api, topic: str) -> None:
        super().__init__(daemon=True)
        self.api = api
        self.topic = topic
        self.acked: dict[int, int] = {}
        self.refusals: list[httpx.Response] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            try:
                answer = self.api.append(self.topic, number)
            except httpx.TransportError:
                self.stopped.wait(0.01)
                continue
            if answer.status_code == 200:
                self.acked[answer.json()["first_seq"]] = number
            else:
                self.refusals.append(answer)


def test_writes_during_a_crash_are_kept_or_refused(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 0.10, 8.2: acknowledged means kept; everything else is 503 with Retry-After."""
    good(mortal_api.put(topic, {"durability": "fsync"}), 201)
    writer = SyncedWriter(mortal_api, topic)
    writer.start()
    try:
        until(lambda: len(writer.acked) > 20, why="some acknowledged writes")
        mortal.crash()
        count = len(writer.acked)
        until(lambda: len(writer.acked) > count + 5, 10, why="writes to go on")
    finally:
        writer.stopped.set()
        writer.join(timeout=30)
    for answer in writer.refusals:
        refused(answer, 503, "not_ready")
        assert int(answer.headers["retry-after"]) >= 1
    found: dict[int, int] = {}
    page = good(mortal_api.diff(topic, limit=1000))
    found.update(zip(seqs(page), payloads(page), strict=True))
    while not page["caught_up"]:
        page = good(mortal_api.diff(topic, page["next_from_seq"], limit=1000))
        found.update(zip(seqs(page), payloads(page), strict=True))
    assert {seq: found.get(seq) for seq in writer.acked} == writer.acked
    assert len(set(found.values())) == len(found)

"""The examples of API 0 to 5 and 8, sent and compared as they are printed there."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api

EXAMPLE_TOPICS = ("jobs", "events")


@pytest.fixture(autouse=True)
def fresh_names(api: Api) -> Iterator[None]:
    """The examples use fixed names: absent before, absent after."""
    for name in EXAMPLE_TOPICS:
        good(api.delete(name))
    yield
    for name in EXAMPLE_TOPICS:
        good(api.delete(name))


def send(api: Api, method: str, path: str, body: str) -> httpx.Response:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return api.request(method, path, content=body.encode(), headers=headers)


def test_the_example_of_an_error(api: Api) -> None:
    """API 0.5: topic_not_found for jobs, word for word."""
    error = refused(api.state("jobs"), 404, "topic_not_found")
    assert error == {
        "code": "topic_not_found",
        "message": 'topic "jobs" does not exist',
        "detail": {"topic": "jobs"},
    }


def test_the_example_of_a_configuration(api: Api) -> None:
    """API 0.10: the printed object is what an empty PUT gives, and what it takes."""
    body = """{
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old",
    "durable": false, "durability": "disk", "priority": null, "auto_priority": true,
    "auto_create": true, "idempotency_window_ms": 120000, "dedupe_node": true,
    "lease_ms": 30000, "claim_jitter_ms": 0, "max_deliveries": 0, "dead_letter": null,
    "leases_durable": false }"""
    assert good(send(api, "PUT", "/v0/topics/jobs", "{}"), 201)["config"] == json.loads(body)
    again = good(send(api, "PUT", "/v0/topics/jobs", body))
    assert (again["created"], again["config"]) == (False, json.loads(body))


def test_the_example_of_a_topic(api: Api) -> None:
    """API 1.1: the PUT example and the config it echoes."""
    body = (
        '{ "ttl_ms": 60000, "cap_records": 1000000, "discard": "old", '
        '"durable": true, "priority": 10 }'
    )
    expected = json.loads(
        """{ "type": "log", "ttl_ms": 60000, "cap_records": 1000000, "cap_bytes": 0,
        "discard": "old", "durable": true, "durability": "fsync", "priority": 10,
        "auto_priority": true, "auto_create": true,
        "idempotency_window_ms": 120000, "dedupe_node": true,
        "lease_ms": 30000, "claim_jitter_ms": 0, "max_deliveries": 0,
        "dead_letter": null, "leases_durable": false }"""
    )
    answer = good(send(api, "PUT", "/v0/topics/jobs", body), 201)
    assert set(answer) == {"topic", "created", "config", "performance"}
    assert (answer["topic"], answer["created"], answer["config"]) == ("jobs", True, expected)


def test_the_example_of_a_queue(api: Api) -> None:
    """API 1.1: a queue with discard reject and a dead-letter topic."""
    body = """{ "type": "queue", "durable": true, "discard": "reject",
        "lease_ms": 30000, "claim_jitter_ms": 0, "max_deliveries": 5, "dead_letter": "jobs.dlq" }"""
    config = good(send(api, "PUT", "/v0/topics/jobs", body), 201)["config"]
    assert {**config, **json.loads(body)} == config


STATE_FIELDS = {
    "topic",
    "type",
    "head_seq",
    "earliest_seq",
    "next_seq",
    "count",
    "bytes",
    "config",
    "effective_priority",
    "last_write_ts",
    "last_read_ts",
    "performance",
}


def test_the_example_of_a_state(api: Api) -> None:
    """API 1.2: exactly the fields of the example; reading makes the topic hot."""
    good(api.append("jobs", "a", "b"), 201)
    good(api.request("POST", "/v0/topics/jobs/delete", json={"before_seq": 2}))
    good(api.diff("jobs"))
    state = good(api.state("jobs"))
    assert set(state) == STATE_FIELDS
    seqs = (state["head_seq"], state["earliest_seq"], state["next_seq"])
    assert (state["topic"], state["type"], seqs) == ("jobs", "log", (2, 2, 3))
    assert (state["count"], state["bytes"], state["effective_priority"]) == (1, 3, 500)
    assert 0 < state["last_write_ts"] <= state["last_read_ts"]
    assert set(state["performance"]) == {"server_total_ms"}


def test_the_example_of_a_queue_state(api: Api) -> None:
    """API 1.2: a queue has the same fields and its counters."""
    good(api.put("jobs", {"type": "queue", "lease_ms": 30000}), 201)
    good(api.append("jobs", 1, 2, 3))
    state = good(api.state("jobs"))
    assert set(state) == {*STATE_FIELDS, "queue"}
    assert (state["type"], state["config"]["type"]) == ("queue", "queue")
    assert state["queue"] == {"ready": 3, "in_flight": 0, "dead_lettered": 0}


WRITE_FIELDS = {
    "topic",
    "first_seq",
    "last_seq",
    "head_seq",
    "count",
    "created",
    "deduped",
    "performance",
}
PAGE_FIELDS = {
    "topic",
    "records",
    "next_from_seq",
    "head_seq",
    "earliest_seq",
    "caught_up",
    "tombstone",
    "lag",
    "performance",
}


def test_the_example_of_a_write_and_its_diff(api: Api) -> None:
    """API 2 and 3: the write example, then a read with the fields of the diff example."""
    body = """{
    "records": [
    { "data": { "type": "resize", "url": "s3://b/a.png", "w": 256 },
    "tag": "tenant42:job-9001", "node": "worker-eu-1", "meta": { "trace": "abc123" } },
    { "data": "raw-opaque-or-base64", "tag": "tenant42:job-9002" }
    ],
    "node": "worker-eu-1",
    "idempotency_key": "client-batch-7f3a",
    "create": true,
    "config": { "ttl_ms": 60000, "cap_records": 1000000 },
    "disable_backpressure": false
    }"""
    answer = good(send(api, "POST", "/v0/topics/jobs", body), 201)
    assert (answer["first_seq"], answer["last_seq"], answer["seqs"]) == (1, 2, [1, 2])
    assert (answer["head_seq"], answer["count"], answer["created"]) == (2, 2, True)
    assert set(answer) == {*WRITE_FIELDS, "seqs"}
    assert answer["deduped"] is False
    assert set(answer["performance"]) >= {"server_total_ms", "wal_append_ms", "fsync_ms"}
    retry = good(send(api, "POST", "/v0/topics/jobs", body))
    assert (retry["seqs"], retry["deduped"], retry["created"]) == ([1, 2], True, False)
    diff = """{ "from_seq": 0, "limit": 500, "node": "worker-us-2",
        "include_tags": true, "include_meta": true, "wait_ms": 0 }"""
    page = good(send(api, "POST", "/v0/topics/jobs/diff", diff))
    assert set(page) == PAGE_FIELDS
    assert page["performance"]["records_scanned"] == 2
    first, second = page["records"]
    assert (first.pop("$ts"), second.pop("$ts")) > (0, 0)
    assert first == {
        "$seq": 1,
        "$node": "worker-eu-1",
        "$tag": "tenant42:job-9001",
        "data": {"type": "resize", "url": "s3://b/a.png", "w": 256},
        "meta": {"trace": "abc123"},
    }
    assert second == {
        "$seq": 2,
        "$node": "worker-eu-1",
        "$tag": "tenant42:job-9002",
        "data": "raw-opaque-or-base64",
    }
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, True, 0)
    own = good(api.diff("jobs", node="worker-eu-1"))
    assert (own["records"], own["next_from_seq"], own["caught_up"]) == ([], 2, True)


def test_the_example_of_suppressed_seqs(api: Api) -> None:
    """API 2: ?return_seqs=false leaves first_seq and last_seq."""
    body = '{"records": [{"data": 1}, {"data": 2}, {"data": 3}]}'
    answer = good(send(api, "POST", "/v0/topics/jobs?return_seqs=false", body), 201)
    assert set(answer) == WRITE_FIELDS
    assert (answer["first_seq"], answer["last_seq"], answer["count"]) == (1, 3, 3)


def test_the_example_of_an_unfinished_diff(api: Api) -> None:
    """API 3: the request as printed, and a page that ends before the head."""
    api.write("jobs", [{"data": n, "node": "worker-us-2", "tag": "t"} for n in range(600)])
    body = """{
    "from_seq": 80, "limit": 500, "node": "worker-eu-1",
    "include_tags": false, "include_meta": true, "wait_ms": 0 }"""
    page = good(send(api, "POST", "/v0/topics/jobs/diff", body))
    assert set(page["records"][0]) == {"$seq", "$ts", "$node", "data"}
    assert (page["records"][0]["$seq"], len(page["records"])) == (81, 500)
    assert (page["next_from_seq"], page["head_seq"], page["lag"]) == (580, 600, 20)
    assert (page["caught_up"], page["tombstone"]) == (False, None)


def test_the_example_of_a_tombstone(api: Api) -> None:
    """API 3.3: the lost range of the example, a little smaller."""
    good(api.put("jobs", {"cap_records": 100}), 201)
    good(api.append("jobs", *range(700)))
    page = good(api.diff("jobs", 50, limit=10))
    assert set(page) == PAGE_FIELDS
    assert page["tombstone"] == {
        "gap_from": 51,
        "gap_to": 600,
        "reason": "cap",
        "missed_estimate": 550,
        "earliest_seq": 601,
        "head_seq": 700,
    }
    assert (page["records"][0]["$seq"], page["next_from_seq"]) == (601, 610)
    assert (page["earliest_seq"], page["head_seq"], page["caught_up"]) == (601, 700, False)


def test_the_example_of_several_nodes(api: Api) -> None:
    """API 4.5: `"node": ["a","b"]` drops the records of both."""
    api.write("jobs", [{"data": node, "node": node} for node in "abc"])
    page = good(send(api, "POST", "/v0/topics/jobs/diff", '{"node": ["a","b"]}'))
    assert [record["$node"] for record in page["records"]] == ["c"]
    assert (page["next_from_seq"], page["caught_up"]) == (3, True)


TAGGED = ("tenant42:job-9001", "chat-42:1", "chat-42:2", "msg-123", "msg-123", None, "msg-123")


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ('{ "before_seq": 6 }', [6, 7]),
        ('{ "match": "tenant42:job-9001" }', [2, 3, 4, 5, 6, 7]),
        ('{ "match": ["tag","Eq","tenant42:job-9001"] }', [2, 3, 4, 5, 6, 7]),
        ('{ "match": ["tag","Glob","chat-42:*"] }', [1, 4, 5, 6, 7]),
        ('{ "match": ["tag","Eq","msg-123"], "before_seq": 7 }', [1, 2, 3, 6, 7]),
    ],
)
def test_the_examples_of_deletes(api: Api, body: str, kept: list[int]) -> None:
    """API 5: a snapshot, a cancelled job, a revoked chat, the prior versions of a message."""
    api.write("jobs", [{"data": n} | ({"tag": tag} if tag else {}) for n, tag in enumerate(TAGGED)])
    answer = good(send(api, "POST", "/v0/topics/jobs/delete", body))
    fields = {"topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance"}
    assert set(answer) == fields
    assert (answer["deleted"], answer["count"]) == (len(TAGGED) - len(kept), len(kept))
    assert (answer["earliest_seq"], answer["head_seq"], answer["bytes"]) == (kept[0], 7, len(kept))
    page = good(api.diff("jobs"))
    assert ([record["$seq"] for record in page["records"]], page["tombstone"]) == (kept, None)


def test_the_example_of_a_listing(api: Api) -> None:
    """API 1.3: two topics, and the cursor printed in the example."""
    good(api.put("jobs", {"durable": True}), 201)
    good(api.put("events"), 201)
    entries: dict[str, Any] = {}
    for name in EXAMPLE_TOPICS:
        entries |= {entry["topic"]: entry for entry in good(api.list(prefix=name))["topics"]}
    assert (entries["jobs"]["durable"], entries["events"]["durable"]) == (True, False)
    assert set(entries["jobs"]) == {
        "topic",
        "head_seq",
        "earliest_seq",
        "count",
        "bytes",
        "durable",
        "effective_priority",
    }
    cursor = "eyJhZnRlciI6ImpvYnMifQ=="
    assert json.loads(base64.b64decode(cursor)) == {"after": "jobs"}
    following = good(api.list(cursor=cursor, page_size=1000))["topics"]
    assert all(entry["topic"] > "jobs" for entry in following)


def test_the_example_of_a_deletion(api: Api) -> None:
    """API 1.4: deleted true with the routers that went, then deleted false."""
    good(api.put("jobs"), 201)
    answer = good(api.delete("jobs"))
    assert set(answer) == {"topic", "deleted", "routers_removed", "performance"}
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == ("jobs", True, [])
    again = good(api.delete("jobs"))
    assert (again["deleted"], again["routers_removed"]) == (False, [])


def test_the_examples_of_the_probes(api: Api) -> None:
    """API 8.1 and 8.2: the keys of the examples."""
    health = api.request("GET", "/v0/health").json()
    assert {"status", "version", "uptime_ms"} <= set(health)
    ready = api.request("GET", "/v0/ready").json()
    assert {"status", "wal_replay_complete", "topics"} <= set(ready)


def test_the_example_of_metrics(api: Api) -> None:
    """API 8.3: HELP, TYPE and the lines of the example."""
    good(api.append("jobs", 1, 2, 3), 201)
    good(api.request("POST", "/v0/topics/jobs/delete", json={"before_seq": 2}))
    lines = api.request("GET", "/v0/metrics").text.splitlines()
    assert {
        "# HELP topics_topic_head_seq Highest assigned seq per topic.",
        "# TYPE topics_topic_head_seq gauge",
        'topics_topic_head_seq{topic="jobs"} 3',
        'topics_topic_earliest_seq{topic="jobs"} 2',
        'topics_topic_records_live{topic="jobs"} 2',
    } <= set(lines)
    names = {line.partition(" ")[0] for line in lines}
    assert {
        "topics_wal_fsyncs_total",
        'topics_wal_fsync_latency_us_bucket{le="500"}',
        "topics_wal_fsync_latency_us_count",
    } <= names

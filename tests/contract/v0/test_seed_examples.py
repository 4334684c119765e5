"""The examples of API 0 to 3 and 8, sent and compared as they are printed there."""

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
    assert (answer["topic"], answer["created"], answer["config"]) == ("jobs", True, expected)


def test_the_example_of_a_queue(api: Api) -> None:
    """API 1.1: a queue with discard reject and a dead-letter topic."""
    body = """{ "type": "queue", "durable": true, "discard": "reject",
        "lease_ms": 30000, "claim_jitter_ms": 0, "max_deliveries": 5, "dead_letter": "jobs.dlq" }"""
    config = good(send(api, "PUT", "/v0/topics/jobs", body), 201)["config"]
    assert {**config, **json.loads(body)} == config
    state = good(api.state("jobs"))
    assert (state["type"], state["config"]["type"]) == ("queue", "queue")


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
    assert answer["deduped"] is False
    assert set(answer["performance"]) >= {"server_total_ms", "wal_append_ms", "fsync_ms"}
    retry = good(send(api, "POST", "/v0/topics/jobs", body))
    assert (retry["seqs"], retry["deduped"], retry["created"]) == ([1, 2], True, False)
    diff = """{ "from_seq": 0, "limit": 500, "node": "worker-us-2",
        "include_tags": true, "include_meta": true, "wait_ms": 0 }"""
    page = good(send(api, "POST", "/v0/topics/jobs/diff", diff))
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


def test_the_example_of_a_listing(api: Api) -> None:
    """API 1.3: two topics, and the cursor printed in the example."""
    good(api.put("jobs", {"durable": True}), 201)
    good(api.put("events"), 201)
    entries: dict[str, Any] = {}
    for name in EXAMPLE_TOPICS:
        entries |= {entry["topic"]: entry for entry in good(api.list(prefix=name))["topics"]}
    assert (entries["jobs"]["durable"], entries["events"]["durable"]) == (True, False)
    cursor = "eyJhZnRlciI6ImpvYnMifQ=="
    assert json.loads(base64.b64decode(cursor)) == {"after": "jobs"}
    following = good(api.list(cursor=cursor, page_size=1000))["topics"]
    assert all(entry["topic"] > "jobs" for entry in following)


def test_the_example_of_a_deletion(api: Api) -> None:
    """API 1.4: deleted true with the routers that went, then deleted false."""
    good(api.put("jobs"), 201)
    answer = good(api.delete("jobs"))
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == ("jobs", True, [])
    again = good(api.delete("jobs"))
    assert (again["deleted"], again["routers_removed"]) == (False, [])


def test_the_examples_of_the_probes(api: Api) -> None:
    """API 8.1 and 8.2: the keys of the examples."""
    health = api.request("GET", "/v0/health").json()
    assert {"status", "version", "uptime_ms"} <= set(health)
    ready = api.request("GET", "/v0/ready").json()
    assert {"status", "wal_replay_complete", "topics"} <= set(ready)

"""POST /v0/topics/:topic (API 2): what a write answers and what it leaves behind."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused, seqs
from tests.harness.api import Api

FIELDS = {
    "topic",
    "first_seq",
    "last_seq",
    "seqs",
    "head_seq",
    "count",
    "created",
    "deduped",
    "performance",
}


def test_the_first_write_creates_the_topic(api: Api, topic: str) -> None:
    """API 2: 201 and created true when this write created the topic; seqs start at 1."""
    body = good(api.append(topic, {"n": 1}), 201)
    assert set(body) == FIELDS
    assert body["topic"] == topic
    assert (body["first_seq"], body["last_seq"], body["seqs"]) == (1, 1, [1])
    assert (body["head_seq"], body["count"]) == (1, 1)
    assert (body["created"], body["deduped"]) == (True, False)


def test_later_writes_answer_200(api: Api, topic: str) -> None:
    """API 2: created is true only once, seqs continue."""
    good(api.append(topic, 1), 201)
    body = good(api.append(topic, 2))
    assert (body["created"], body["seqs"], body["head_seq"]) == (False, [2], 2)


def test_a_batch_gets_contiguous_seqs_in_array_order(api: Api, topic: str) -> None:
    """API 2: seqs are assigned in array order, contiguously."""
    good(api.append(topic, "first"), 201)
    body = good(api.append(topic, "a", "b", "c"))
    assert (body["first_seq"], body["last_seq"], body["seqs"]) == (2, 4, [2, 3, 4])
    assert (body["count"], body["head_seq"]) == (3, 4)
    page = good(api.diff(topic))
    assert payloads(page) == ["first", "a", "b", "c"]
    assert seqs(page) == [1, 2, 3, 4]


@pytest.mark.parametrize("flag, listed", [("false", False), ("true", True)])
def test_seqs_can_be_suppressed(api: Api, topic: str, flag: str, listed: bool) -> None:
    """API 2: ?return_seqs=false leaves only first_seq and last_seq."""
    records = {"records": [{"data": 1}, {"data": 2}]}
    body = good(api.request("POST", f"/v0/topics/{topic}?return_seqs={flag}", json=records), 201)
    assert ("seqs" in body) is listed
    assert (body["first_seq"], body["last_seq"], body["count"]) == (1, 2, 2)


def test_a_mistyped_return_seqs_is_refused(api: Api, topic: str) -> None:
    """API 0.6: a bad type is 400 and nothing is written."""
    path = f"/v0/topics/{topic}?return_seqs=perhaps"
    answer = api.request("POST", path, json={"records": [{"data": 1}]})
    refused(answer, 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


def test_create_false_refuses_an_absent_topic(api: Api, topic: str) -> None:
    """API 2: create false prevents topics born of a typo."""
    refused(api.append(topic, 1, create=False), 404, "topic_not_found")
    refused(api.state(topic), 404, "topic_not_found")
    good(api.put(topic), 201)
    assert good(api.append(topic, 1, create=False))["seqs"] == [1]


def test_create_true_creates(api: Api, topic: str) -> None:
    """API 2: create true creates if absent, and is harmless if present."""
    assert good(api.append(topic, 1, create=True), 201)["created"] is True
    assert good(api.append(topic, 2, create=True))["created"] is False


def test_auto_create_false_does_not_refuse_writes_to_what_exists(api: Api, topic: str) -> None:
    """API 0.10: auto_create is about lazy creation only."""
    good(api.put(topic, {"auto_create": False}), 201)
    assert good(api.append(topic, 1))["seqs"] == [1]


def test_inline_config_applies_when_the_write_creates(api: Api, topic: str) -> None:
    """API 2: config is applied only if this write creates the topic."""
    config = {"ttl_ms": 60_000, "cap_records": 1_000_000, "priority": 2000}
    good(api.append(topic, 1, config=config), 201)
    found = good(api.state(topic))["config"]
    assert (found["ttl_ms"], found["cap_records"], found["priority"]) == (60_000, 1_000_000, 1000)


def test_inline_config_is_ignored_when_the_topic_exists(api: Api, topic: str) -> None:
    """API 2: changes to an existing topic go through PUT."""
    good(api.put(topic, {"ttl_ms": 5_000_000}), 201)
    good(api.append(topic, 1, config={"ttl_ms": 1, "type": "queue"}))
    config = good(api.state(topic))["config"]
    assert (config["ttl_ms"], config["type"]) == (5_000_000, "log")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (None, "config"),
        ([], "config"),
        ("x", "config"),
        ({"ttl_ms": "1"}, "config.ttl_ms"),
        ({"discard": "new"}, "config.discard"),
    ],
)
def test_a_bad_inline_config_is_refused(api: Api, topic: str, config: Any, field: str) -> None:
    """API 2: the inline config is validated like a PUT, and nothing is created."""
    error = refused(api.append(topic, 1, config=config), 400, "invalid_request")
    assert error["detail"]["field"] == field
    refused(api.state(topic), 404, "topic_not_found")


def test_an_inline_dead_letter_must_differ_from_the_topic(api: Api, topic: str) -> None:
    """API 1.1: also when the configuration comes with a write."""
    refused(api.append(topic, 1, config={"dead_letter": topic}), 400, "invalid_request")


def test_tag_node_and_meta_are_echoed_as_canonical(api: Api, topic: str) -> None:
    """API 0.4: node and tag come back as $node and $tag, data and meta as they went in."""
    record = {"data": {"a": 1}, "tag": "tenant42:job-9", "node": "n-1", "meta": {"trace": "z"}}
    good(api.write(topic, [record]), 201)
    found = good(api.diff(topic, include_tags=True))["records"][0]
    assert set(found) == {"$seq", "$ts", "$tag", "$node", "data", "meta"}
    assert (found["$tag"], found["$node"]) == ("tenant42:job-9", "n-1")
    assert (found["data"], found["meta"]) == ({"a": 1}, {"trace": "z"})


def test_absent_fields_are_absent_and_not_null(api: Api, topic: str) -> None:
    """API 0.4: $node, $tag and meta are omitted when absent; data is always there."""
    good(api.append(topic, None), 201)
    found = good(api.diff(topic, include_tags=True))["records"][0]
    assert set(found) == {"$seq", "$ts", "data"}
    assert found["data"] is None


def test_the_batch_node_is_a_default(api: Api, topic: str) -> None:
    """API 2: a record's own node overrides the batch-level node."""
    good(api.write(topic, [{"data": 1}, {"data": 2, "node": "own"}], node="batch"), 201)
    records = good(api.diff(topic))["records"]
    assert [record["$node"] for record in records] == ["batch", "own"]


def test_tags_and_nodes_keep_every_character(api: Api, topic: str) -> None:
    """API 2: a tag is any string; quotes, controls and emoji come back equal."""
    tag, node = 'q"\\/\n\t\u0001 é\U0001f600', "\u2028\x7f<&>"
    good(api.write(topic, [{"data": 1, "tag": tag, "node": node}]), 201)
    found = good(api.diff(topic, include_tags=True))["records"][0]
    assert (found["$tag"], found["$node"]) == (tag, node)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"tag": "no data"},
        None,
        5,
        "text",
        [],
        {"data": 1, "tag": 5},
        {"data": 1, "node": ["n"]},
        {"data": 1, "meta": "text"},
        {"data": 1, "meta": []},
        {"data": 1, "meta": 5},
        {"data": 1, "tag": "t" * 257},
    ],
)
def test_a_bad_record_in_the_middle_leaves_nothing(api: Api, topic: str, record: Any) -> None:
    """API 2: a write is atomic; one bad record refuses all, and creates no topic."""
    records = [{"data": "before"}, record, {"data": "after"}]
    refused(api.write(topic, records), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")
    good(api.append(topic, "kept"), 201)
    refused(api.write(topic, records), 400, "invalid_request")
    assert payloads(good(api.diff(topic))) == ["kept"]
    assert good(api.append(topic, "next"))["seqs"] == [2]


@pytest.mark.parametrize(
    "fields",
    [
        {"records": None},
        {"records": {}},
        {"records": "x"},
        {"records": []},
        {"records": [{"data": 1}], "node": 5},
        {"records": [{"data": 1}], "idempotency_key": 5},
        {"records": [{"data": 1}], "create": "yes"},
        {"records": [{"data": 1}], "create": 1},
        {"records": [{"data": 1}], "disable_backpressure": "no"},
        {},
    ],
)
def test_mistyped_fields_are_refused(api: Api, topic: str, fields: dict[str, Any]) -> None:
    """API 0.6: a bad type is 400 invalid_request."""
    answer = api.request("POST", f"/v0/topics/{topic}", json=fields)
    refused(answer, 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


def test_unknown_fields_are_ignored(api: Api, topic: str) -> None:
    """Decision 2.9: also inside records, where they are not stored."""
    good(api.write(topic, [{"data": 1, "$seq": 99, "color": "red"}], shade="dark"), 201)
    found = good(api.diff(topic))["records"][0]
    assert (found["$seq"], set(found)) == (1, {"$seq", "$ts", "data"})


def test_disable_backpressure_is_accepted(api: Api, topic: str) -> None:
    """API 0.6: the trusted loader's opt-out."""
    assert good(api.append(topic, 1, disable_backpressure=True), 201)["seqs"] == [1]


def test_the_performance_block_measures_the_write(api: Api, topic: str) -> None:
    """API 0.9: wal_append_ms and fsync_ms; fsync_ms is 0 unless the class is fsync."""
    disk = good(api.append(topic, 1), 201)["performance"]
    assert disk["wal_append_ms"] >= 0
    assert disk["fsync_ms"] == 0
    synced = good(api.append(f"{topic}s", 1, config={"durable": True}), 201)["performance"]
    assert synced["fsync_ms"] > 0
    assert synced["server_total_ms"] >= synced["fsync_ms"]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_is_readable_right_after_the_answer(
    api: Api, topic: str, durability: str
) -> None:
    """API 0.10: records of every class are fully queryable while the server runs."""
    good(api.put(topic, {"durability": durability}), 201)
    for number in range(1, 11):
        assert good(api.append(topic, number))["seqs"] == [number]
        assert good(api.diff(topic, number - 1))["records"][0]["data"] == number
        assert good(api.state(topic))["count"] == number


def test_commit_times_never_go_back(api: Api, topic: str) -> None:
    """DESIGN 5.2: $ts is non-decreasing in seq within a topic."""
    for number in range(20):
        api.append(topic, number, number)
    stamps = [record["$ts"] for record in good(api.diff(topic))["records"]]
    assert len(stamps) == 40
    assert stamps == sorted(stamps)


def test_concurrent_writers_share_one_sequence(api: Api, topic: str) -> None:
    """DESIGN 4: each batch is contiguous, no seq is given twice, none is skipped."""

    def write(writer: int) -> list[list[int]]:
        batches = []
        for number in range(10):
            answer = api.append(topic, [writer, number, 0], [writer, number, 1])
            assert answer.status_code in (200, 201)
            batches.append(answer.json()["seqs"])
        return batches

    with ThreadPoolExecutor(8) as pool:
        batches = [batch for result in pool.map(write, range(8)) for batch in result]
    assert all(last == first + 1 for first, last in batches)
    assert sorted(seq for batch in batches for seq in batch) == list(range(1, 161))
    page = good(api.diff(topic, limit=1000))
    assert seqs(page) == list(range(1, 161))
    written = payloads(page)
    assert len({json.dumps(data) for data in written}) == 160
    for writer in range(8):
        own = [data[1:] for data in written if data[0] == writer]
        assert own == sorted(own)


def test_concurrent_first_writes_create_one_topic(api: Api, topic: str) -> None:
    """API 2: exactly one of them is told that it created the topic."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: api.append(topic, number), range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]
    assert sum(answer.json()["created"] for answer in answers) == 1
    assert good(api.state(topic))["count"] == 16

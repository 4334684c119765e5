"""`POST /v0/write`: atomic appends to several topics, our extension of API 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.server import Server


def write(api: Api, *writes: dict[str, Any], query: str = "", **fields: Any) -> Any:
    return api.request("POST", f"/v0/write{query}", json={"writes": list(writes), **fields})


def part(topic: str, *data: Any, **fields: Any) -> dict[str, Any]:
    return {"topic": topic, "records": [{"data": entry} for entry in data], **fields}


def names(topic: str, count: int) -> list[str]:
    return [f"{topic}.{letter}" for letter in "abcdefgh"[:count]]


def test_each_topic_gets_its_records_and_its_answer(api: Api, topic: str) -> None:
    """One object a part, in the order of the request, shaped like an append's answer."""
    a, b, c = names(topic, 3)
    good(api.append(b, 0), 201)
    answer = good(write(api, part(c, 1, 2), part(b, 3), part(a, 4)), 201)
    assert answer["writes"] == [
        {
            "topic": c,
            "first_seq": 1,
            "last_seq": 2,
            "seqs": [1, 2],
            "head_seq": 2,
            "count": 2,
            "created": True,
            "deduped": False,
        },
        {
            "topic": b,
            "first_seq": 2,
            "last_seq": 2,
            "seqs": [2],
            "head_seq": 2,
            "count": 1,
            "created": False,
            "deduped": False,
        },
        {
            "topic": a,
            "first_seq": 1,
            "last_seq": 1,
            "seqs": [1],
            "head_seq": 1,
            "count": 1,
            "created": True,
            "deduped": False,
        },
    ]
    assert set(answer) == {"writes", "performance"}
    assert answer["performance"]["wal_append_ms"] > 0
    assert [payloads(good(api.diff(name))) for name in (a, b, c)] == [[4], [0, 3], [1, 2]]


def test_nothing_created_answers_200_and_seqs_can_be_left_out(api: Api, topic: str) -> None:
    """The status and `return_seqs` mean what they mean for one topic."""
    a, b = names(topic, 2)
    good(write(api, part(a, 1), part(b, 1)), 201)
    answer = good(write(api, part(a, 2), part(b, 2), query="?return_seqs=false"))
    assert [("seqs" in entry, entry["last_seq"]) for entry in answer["writes"]] == [(False, 2)] * 2


def test_tags_nodes_meta_and_payload_bytes_are_kept(api: Api, topic: str) -> None:
    """A part is decoded and stored like an append: verbatim."""
    a, b = names(topic, 2)
    body = (
        '{"writes":[{"topic":"TOPIC_A","node":"n1","records":[{"data":1e2,"tag":"t"},'
        '{"data":{"b":1.10,\n"a":"\\ud800"},"node":"n2","meta":{"k":12345678901234567890.50}}]},'
        '{"topic":"TOPIC_B","records":[{"data":null}]}]}'
    )
    body = body.replace("TOPIC_A", a).replace("TOPIC_B", b)
    path, headers = "/v0/write", {"Content-Type": "application/json"}
    good(api.request("POST", path, content=body.encode(), headers=headers), 201)
    answer = api.diff(a, include_tags=True).content
    assert b'"$tag":"t","$node":"n1","data":1e2}' in answer
    assert b'"$node":"n2","data":{"b":1.10, "a":"\\ud800"}' in answer
    assert b'"meta":{"k":12345678901234567890.50}}' in answer
    assert payloads(good(api.diff(b))) == [None]


def refusals(topic: str) -> list[tuple[dict[str, Any], int, str, str]]:
    a = f"{topic}.bad"
    return [
        (part(f"{topic}.full", 1), 422, "topic_full", ""),
        (part(a, 1, create=False), 404, "topic_not_found", ""),
        (
            part(a, 1, config={"cap_bytes": 0, "cap_records": "x"}),
            400,
            "invalid_request",
            "cap_records",
        ),
        (part(a), 400, "invalid_request", "records"),
        ({"topic": a, "records": [{}]}, 400, "invalid_request", "records[0].data"),
        ({"topic": a, "records": [{"data": 1, "tag": "t" * 257}]}, 400, "invalid_request", "tag"),
        (part(a, 1, idempotency_key=""), 400, "invalid_request", "idempotency_key"),
        (part(a, "x" * 1_100_000), 400, "record_too_large", ""),
        (part("no/name", 1), 400, "invalid_request", "topic"),
        (part(f"{topic}.old", 1), 400, "invalid_request", "topic"),
        ({"topic": 7, "records": []}, 400, "invalid_request", "topic"),
        ({"records": [{"data": 1}]}, 400, "invalid_request", "topic"),
        (
            part(a, 1, 2, config={"cap_records": 1, "discard": "reject"}),
            400,
            "record_too_large",
            "",
        ),
    ]


@pytest.mark.parametrize("number", range(13))
def test_a_refused_part_leaves_nothing(api: Api, topic: str, number: int) -> None:
    """Whatever is wrong with the last part: no record, no created topic, no used key."""
    old, new, full = f"{topic}.old", f"{topic}.new", f"{topic}.full"
    good(api.append(old, 0), 201)
    good(api.append(full, 0, config={"cap_records": 1, "discard": "reject"}), 201)
    bad, status, code, field = refusals(topic)[number]
    first = part(old, 1, idempotency_key="k")
    error = refused(write(api, first, part(new, 1), bad), status, code)
    assert field in json.dumps(error)
    assert payloads(good(api.diff(old))) == [0]
    refused(api.state(new), 404, "topic_not_found")
    refused(api.state(f"{topic}.bad"), 404, "topic_not_found")
    again = good(write(api, first, part(new, 1)), 201)
    assert [entry["deduped"] for entry in again["writes"]] == [False, False]
    assert [entry["first_seq"] for entry in again["writes"]] == [2, 1]


@pytest.mark.parametrize("body", [b"{}", b'{"writes":[]}', b'{"writes":{}}', b"[]", b"", b"{"])
def test_a_body_of_another_shape_is_refused(api: Api, body: bytes) -> None:
    """`writes` is an array of at least one part."""
    headers = {"Content-Type": "application/json"}
    refused(api.request("POST", "/v0/write", content=body, headers=headers), 400, "invalid_request")


def test_a_retry_with_the_same_keys_appends_nothing(api: Api, topic: str) -> None:
    """Each part's key is its own; the first answer's seqs come back."""
    a, b = names(topic, 2)
    parts = [part(a, 1, 2, idempotency_key="x"), part(b, 3, idempotency_key="y")]
    first = good(write(api, *parts), 201)["writes"]
    again = good(write(api, *parts))["writes"]
    assert [entry["seqs"] for entry in first] == [entry["seqs"] for entry in again]
    assert [(entry["deduped"], entry["created"]) for entry in again] == [(True, False)] * 2
    mixed = good(write(api, parts[0], part(b, 4, idempotency_key="z")))["writes"]
    assert [entry["deduped"] for entry in mixed] == [True, False]
    assert good(api.append(a, 1, idempotency_key="x"))["deduped"] is True
    assert [payloads(good(api.diff(name))) for name in (a, b)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_classes_can_be_mixed(api: Api, topic: str, durability: str) -> None:
    """The reply waits for a sync when a topic of the write demands it."""
    a, b = names(topic, 2)
    config = {"durability": durability}
    answer = good(write(api, part(a, 1), part(b, 2, config=config)), 201)
    assert (answer["performance"]["fsync_ms"] > 0) == (durability == "fsync")
    again = good(write(api, part(a, 1), part(b, 2)))
    assert (again["performance"]["fsync_ms"] > 0) == (durability == "fsync")
    assert good(api.state(b))["config"]["durability"] == durability
    assert payloads(good(api.diff(b))) == [2, 2]


def test_what_was_written_survives_crash_and_restart(mortal_api: Api, topic: str) -> None:
    """All topics come back with all records, keys included; appends go on behind them."""
    everything = names(topic, 8)
    parts = [part(name, name, idempotency_key="k") for name in everything]
    good(write(mortal_api, *parts), 201)
    good(write(mortal_api, *(part(name, 2, 3) for name in everything)))
    good(mortal_api.append(everything[0], 4))
    server: Server = mortal_api.server
    for again in (server.crash, server.restart):
        again()
        for name in everything[1:]:
            assert payloads(good(mortal_api.diff(name))) == [name, 2, 3]
        assert payloads(good(mortal_api.diff(everything[0]))) == [everything[0], 2, 3, 4]
        retried = good(write(mortal_api, *parts))["writes"]
        assert [(entry["deduped"], entry["seqs"]) for entry in retried] == [(True, [1])] * 8


def test_the_batch_limit_counts_all_parts(as_key: Callable[[str], Api]) -> None:
    """At most max_batch_records records in total."""
    api = as_key("full")
    good(write(api, part("lim.a", *range(5)), part("lim.b", *range(5))), 201)
    error = refused(
        write(api, part("lim.c", *range(6)), part("lim.d", *range(5))), 400, "batch_too_large"
    )
    assert (error["detail"]["count"], error["detail"]["max"]) == (11, 10)
    refused(api.state("lim.c"), 404, "topic_not_found")


def test_scopes_and_prefixes_hold_for_every_name(as_key: Callable[[str], Api]) -> None:
    """write for the call, admin for inline config, the key's prefixes for each topic."""
    inside, outside = "tenant42:w", "other"
    refused(write(as_key(""), part(inside, 1)), 401, "unauthorized")
    refused(write(as_key("read"), part(inside, 1)), 403, "forbidden")
    refused(write(as_key("tenant"), part(inside, 1), part(outside, 1)), 403, "forbidden")
    refused(write(as_key("write"), part(inside, 1, config={})), 403, "forbidden")
    dead = part(inside, 1, config={"dead_letter": outside})
    refused(write(as_key("tenant"), dead), 403, "forbidden")
    refused(as_key("full").state(inside), 404, "topic_not_found")
    good(write(as_key("tenant"), part(inside, 1, config={}), part("shared.w", 1)), 201)
    good(write(as_key("write"), part(inside, 2)))


def test_only_post_is_answered(api: Api) -> None:
    """Another method is 405 with Allow."""
    answer = api.request("GET", "/v0/write")
    refused(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]

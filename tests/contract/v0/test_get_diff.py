"""`GET /v0/topics/:topic/diff`: the read of API 3 with query parameters, our extension."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.server import Server


def get_diff(api: Api, topic: str, query: str | list[tuple[str, Any]] = "") -> Any:
    if isinstance(query, str):
        return api.request("GET", f"/v0/topics/{topic}/diff{query}")
    return api.request("GET", f"/v0/topics/{topic}/diff", params=query)


def write_some(api: Api, topic: str) -> None:
    records = [
        {"data": number, "tag": f"k:{number % 3}", "node": f"n{number % 2}", "meta": {"m": number}}
        for number in range(1, 10)
    ]
    good(api.write(topic, records), 201)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"from_seq": 4},
        {"from_seq": 100},
        {"limit": 2},
        {"limit": 0},
        {"limit": 10**30},
        {"node": ["n1"]},
        {"node": ["n1", "n0"]},
        {"include_tags": True},
        {"include_meta": False},
        {"match": "k:1"},
        {"match": ["tag", "Glob", "k:*"], "include_tags": True, "limit": 5},
        {"wait_ms": 50, "from_seq": 9},
    ],
)
def test_both_methods_answer_the_same(api: Api, topic: str, fields: dict[str, Any]) -> None:
    """Every parameter means what the field of the body means."""
    write_some(api, topic)
    query: list[tuple[str, Any]] = []
    for name, value in fields.items():
        if name == "node":
            query += [(name, node) for node in value]
        elif isinstance(value, bool):
            query.append((name, str(value).lower()))
        else:
            query.append((name, value if not isinstance(value, list) else json.dumps(value)))
    posted = {
        name: min(value, 2**62) if name == "limit" else value for name, value in fields.items()
    }
    expected = good(api.request("POST", f"/v0/topics/{topic}/diff", json=posted))
    actual = good(get_diff(api, topic, query))
    del expected["performance"], actual["performance"]
    assert expected == actual


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", [1]),
        ('"a b"', [1]),
        ('["tag","Eq","a b"]', [1]),
        ('["tag", "Glob", "a*"]', [1, 2]),
        ("a*", []),
        ('"[odd"', [3]),
        ("é&=%", [4]),
    ],
)
def test_match_is_json_text_or_a_bare_tag(
    api: Api, topic: str, text: str, expected: list[int]
) -> None:
    """Text that starts like a JSON array or string is JSON; anything else is the tag itself."""
    tags = ["a b", "ab", "[odd", "é&=%"]
    records = [{"data": number, "tag": tag} for number, tag in enumerate(tags, start=1)]
    good(api.write(topic, records), 201)
    assert payloads(good(get_diff(api, topic, [("match", text)]))) == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?from_seq=-1", "from_seq"),
        ("?from_seq=x", "from_seq"),
        ("?from_seq=", "from_seq"),
        ("?from_seq=1.5", "from_seq"),
        ("?from_seq=18446744073709551616", "from_seq"),
        ("?limit=many", "limit"),
        ("?wait_ms=-5", "wait_ms"),
        ("?include_tags=yes", "include_tags"),
        ("?include_meta=", "include_meta"),
        ("?match=[1,2", "match"),
        ('?match=["node","Eq","a"]', "match"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(
    api: Api, topic: str, query: str, field: str
) -> None:
    """400 with the parameter's name, never a guess."""
    good(api.append(topic, 1), 201)
    error = refused(get_diff(api, topic, query), 400, "invalid_request")
    assert error["detail"]["field"] == field


def test_a_query_that_is_not_utf8_is_refused(api: Api, topic: str) -> None:
    """Percent-encoded bytes are strict UTF-8."""
    good(api.append(topic, 1), 201)
    refused(get_diff(api, topic, "?match=%ff"), 400, "invalid_request")


def test_the_largest_cursor_is_a_cursor(api: Api, topic: str) -> None:
    """from_seq is an unsigned 64-bit number, here as in the body."""
    good(api.append(topic, 1), 201)
    page = good(get_diff(api, topic, f"?from_seq={2**64 - 1}"))
    assert page["tombstone"]["reason"] == "recreated"


def test_an_absent_topic_is_not_created(api: Api, topic: str) -> None:
    """A read never creates."""
    refused(get_diff(api, topic), 404, "topic_not_found")
    refused(get_diff(api, "a%2Fb"), 400, "invalid_request")


def test_a_get_waits_for_the_next_record(api: Api, server: Server, topic: str) -> None:
    """wait_ms is a long poll here too."""
    good(api.append(topic, 1), 201)
    answers: list[dict[str, Any]] = []
    other = Api(server)
    waiting = threading.Thread(
        target=lambda: answers.append(good(get_diff(other, topic, "?from_seq=1&wait_ms=9000")))
    )
    waiting.start()
    good(api.append(topic, "next"))
    waiting.join(5)
    other.close()
    assert payloads(answers[0]) == ["next"]


def test_a_get_counts_as_a_read(api: Api, topic: str) -> None:
    """DESIGN 3: consuming a topic bumps its recency."""
    good(api.append(topic, 1), 201)
    assert good(api.state(topic))["last_read_ts"] is None
    good(get_diff(api, topic))
    assert good(api.state(topic))["last_read_ts"] is not None


def test_reading_needs_the_read_scope_and_the_prefix(as_key: Callable[[str], Api]) -> None:
    """The alias is guarded like the call it stands for."""
    path = "/v0/topics/tenant42:get/diff"
    good(as_key("full").append("tenant42:get", 1), 201)
    good(as_key("tenant-reader").request("GET", path))
    refused(as_key("write").request("GET", path), 403, "forbidden")
    refused(as_key("tenant-reader").request("GET", "/v0/topics/other/diff"), 403, "forbidden")
    refused(as_key("").request("GET", path), 401, "unauthorized")

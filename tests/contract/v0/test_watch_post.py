"""POST /v0/watch (API 7.1, 7.2): every field, its default, its clamp and its refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import Watching

AsKey = Callable[[str], Api]

WID = re.compile(r"wid_[A-Za-z0-9_-]{22}")


def test_the_answer_names_session_and_heads(api: Api, topic: str) -> None:
    """API 7.2: wid, stream_url, session_ttl_ms, and per topic where it starts and ends."""
    good(api.append(topic, 1, 2, 3), 201)
    body = good(api.watch({topic: {"from_seq": 1}}))
    assert set(body) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}
    assert WID.fullmatch(body["wid"])
    assert body["stream_url"] == f"/v0/watch/{body['wid']}"
    assert body["session_ttl_ms"] == 300_000
    assert body["topics"] == {topic: {"from_seq": 1, "head_seq": 3, "earliest_seq": 1}}


def test_wids_are_all_different(api: Api, topic: str) -> None:
    """API 7.1, decision 15: a wid is 128 random bits, no counter."""
    good(api.put(topic), 201)
    wids = {good(api.watch({topic: {}}))["wid"] for _ in range(20)}
    assert len(wids) == 20
    assert len({wid[:12] for wid in wids}) == 20
    assert len({wid[-8:] for wid in wids}) == 20


def test_a_topic_starts_at_the_beginning_by_default(api: Api, topic: str) -> None:
    """API 7.2: from_seq is 0 and tail false unless said otherwise."""
    good(api.append(topic, 1, 2), 201)
    for options in ({}, {"from_seq": 0}, {"tail": False}):
        assert good(api.watch({topic: options}))["topics"][topic]["from_seq"] == 0


def test_tail_starts_at_the_head(api: Api, topic: str) -> None:
    """API 7.2: tail ignores from_seq and starts at the current head."""
    good(api.append(topic, 1, 2, 3), 201)
    for options in ({"tail": True}, {"tail": True, "from_seq": 1}):
        found = good(api.watch({topic: options}))["topics"][topic]
        assert found == {"from_seq": 3, "head_seq": 3, "earliest_seq": 1}


def test_an_empty_topic_can_be_watched(api: Api, topic: str) -> None:
    """API 7.2, DESIGN 5.1: without a live record earliest_seq is head_seq + 1."""
    good(api.put(topic), 201)
    for options in ({}, {"tail": True}):
        found = good(api.watch({topic: options}))["topics"][topic]
        assert found == {"from_seq": 0, "head_seq": 0, "earliest_seq": 1}


def test_a_cursor_that_fell_off_the_start_can_be_seen(api: Api, topic: str) -> None:
    """API 7.2: earliest_seq shows before streaming that records are gone."""
    good(api.put(topic, {"cap_records": 2}), 201)
    good(api.append(topic, 1, 2, 3, 4, 5))
    found = good(api.watch({topic: {"from_seq": 1}}))["topics"][topic]
    assert found == {"from_seq": 1, "head_seq": 5, "earliest_seq": 4}


def test_many_topics_are_watched_by_one_session(api: Api, topic: str) -> None:
    """API 7.2: a map of topics, each with its own options."""
    names = [f"{topic}-{number}" for number in range(5)]
    for number, name in enumerate(names):
        good(api.append(name, *range(number + 1)), 201)
    options = {name: {"from_seq": number} for number, name in enumerate(names)}
    options[names[0]] = {"tail": True}
    found = good(api.watch(options))["topics"]
    assert {name: entry["head_seq"] for name, entry in found.items()} == {
        name: number + 1 for number, name in enumerate(names)
    }
    assert [found[name]["from_seq"] for name in names] == [1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "fields",
    [
        {"node": "n"},
        {"node": ["a", "b"]},
        {"node": []},
        {"limit": 1},
        {"limit": 0},
        {"limit": 2**32 - 1},
        {"max_batch_bytes": 0},
        {"max_batch_bytes": 1},
        {"max_batch_bytes": 2**40},
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 1},
        {"heartbeat_ms": 2**40},
        {"include_meta": False},
        {"include_tags": True},
        {"include_data": False},
        {"consistency": "eventual"},
        {"consistency": "strong"},
        {"color": "red", "cursor": 5},
    ],
)
def test_values_beyond_a_bound_are_clamped_and_unknown_fields_ignored(
    api: Api, topic: str, fields: dict[str, Any]
) -> None:
    """API 7.2: limits clamp instead of refusing; decision 9: unknown fields are ignored."""
    good(api.put(topic), 201)
    assert set(good(api.watch({topic: {}}, **fields))["topics"]) == {topic}


@pytest.mark.parametrize(
    "fields",
    [
        {"node": 5},
        {"node": {"a": 1}},
        {"node": ["a", 5]},
        {"limit": -1},
        {"limit": "10"},
        {"limit": 2.5},
        {"limit": True},
        {"max_batch_bytes": -1},
        {"max_batch_bytes": "1"},
        {"max_batch_bytes": False},
        {"heartbeat_ms": -1},
        {"heartbeat_ms": "15000"},
        {"heartbeat_ms": 0.5},
        {"include_meta": 1},
        {"include_tags": "true"},
        {"include_data": 0},
        {"consistency": "Strong"},
        {"consistency": ""},
        {"consistency": 1},
        {"consistency": "linearizable"},
    ],
)
def test_mistyped_fields_are_refused(api: Api, topic: str, fields: dict[str, Any]) -> None:
    """API 0.6: a bad type is 400; decision 9: so is an unknown value of an enum."""
    good(api.put(topic), 201)
    error = refused(api.watch({topic: {}}, **fields), 400, "invalid_request")
    assert error["detail"]["field"].startswith(next(iter(fields)))


@pytest.mark.parametrize(
    "options",
    [
        None,
        5,
        "tail",
        [],
        {"from_seq": -1},
        {"from_seq": "1"},
        {"from_seq": 1.5},
        {"from_seq": True},
        {"from_seq": 2**64},
        {"from_seq": None},
        {"tail": 1},
        {"tail": "true"},
    ],
)
def test_mistyped_options_of_a_topic_are_refused(api: Api, topic: str, options: Any) -> None:
    """API 7.2: malformed topics are 400, before any stream is open."""
    good(api.put(topic), 201)
    refused(api.watch({topic: options}), 400, "invalid_request")


def test_unknown_options_of_a_topic_are_ignored(api: Api, topic: str) -> None:
    """Decision 9: unknown request fields are ignored, here too."""
    good(api.put(topic), 201)
    assert good(api.watch({topic: {"color": "red", "head_seq": "x"}}))["topics"][topic]


@pytest.mark.parametrize(
    "topics", [None, {}, [], ["a"], "a", 5, {"": {}}, {"_bad": {}}, {"a/b": {}}]
)
def test_topics_must_be_a_map_of_names(api: Api, topics: Any) -> None:
    """API 7.2: topics is required and has at least one; a bad name is malformed."""
    answer = api.watch(None) if topics is None else api.watch(topics)
    refused(answer, 400, "invalid_request")


@pytest.mark.parametrize("body", [b"[]", b"null", b"", b"{", b'{"topics":}', b'{"topics":{}}{}'])
def test_a_body_that_is_not_one_object_is_refused(api: Api, body: bytes) -> None:
    """API 0.6: malformed requests are 400."""
    headers = {"Content-Type": "application/json"}
    answer = api.request("POST", "/v0/watch", content=body, headers=headers)
    refused(answer, 400, "invalid_request")


def test_the_body_is_json(api: Api, topic: str) -> None:
    """API 0.3: another content type is 415."""
    answer = api.request("POST", "/v0/watch", content=b"{}", headers={"Content-Type": "text/plain"})
    refused(answer, 415, "unsupported_media_type")


def test_the_number_of_topics_is_bounded(launch: Callable[..., Server]) -> None:
    """API 7.2: up to TOPICS_MAX_WATCH_TOPICS, counted before unknown ones are dropped."""
    api = Api(launch(TOPICS_MAX_WATCH_TOPICS="3"))
    names = ["a", "b", "c", "d"]
    for name in names:
        good(api.put(name), 201)
    assert len(good(api.watch({name: {} for name in names[:3]}))["topics"]) == 3
    refused(api.watch({name: {} for name in names}), 400, "invalid_request")
    four = {name: {} for name in ("a", "b", "c", "absent")}
    refused(api.watch(four, query={"lenient": "true"}), 400, "invalid_request")
    api.close()


def test_256_topics_fit_by_default(api: Api, topic: str) -> None:
    """API 7.2: the default limit is 256."""
    many = {f"{topic}-{number}": {} for number in range(257)}
    refused(api.watch(many, query={"lenient": "true"}), 400, "invalid_request")
    del many[f"{topic}-0"]
    assert good(api.watch(many, query={"lenient": "true"}))["topics"] == {}


def test_an_unknown_topic_is_not_found(api: Api, topic: str) -> None:
    """API 7.2: 404 names the topic; watching never creates one."""
    good(api.put(topic), 201)
    absent = f"{topic}-absent"
    error = refused(api.watch({topic: {}, absent: {}}), 404, "topic_not_found")
    assert error["detail"]["topic"] == absent
    refused(api.watch({absent: {}}, query={"lenient": "false"}), 404, "topic_not_found")
    refused(api.state(absent), 404, "topic_not_found")


def test_lenient_drops_unknown_topics(api: Api, topic: str, watching: Watching) -> None:
    """API 7.2: they are absent from the answer, and no frame speaks of them."""
    good(api.append(topic, "here"), 201)
    absent = f"{topic}-absent"
    body = good(api.watch({topic: {}, absent: {}}, query={"lenient": "true"}))
    assert set(body["topics"]) == {topic}
    stream = watching.open(body["wid"])
    assert stream.payloads(topic, 1) == ["here"]
    assert set(stream.until("caught-up").cursor) == {topic}
    good(api.append(absent, "later"), 201)
    assert stream.is_quiet()


def test_lenient_is_a_boolean(api: Api, topic: str) -> None:
    """API 0.6: a query parameter of another kind is 400."""
    good(api.put(topic), 201)
    refused(api.watch({topic: {}}, query={"lenient": "maybe"}), 400, "invalid_request")


def test_reading_is_what_a_watch_needs(as_key: AsKey, topic: str) -> None:
    """API 0.2: POST /v0/watch needs a key with the read scope."""
    good(as_key("full").put(topic), 201)
    refused(as_key("").watch({topic: {}}), 401, "unauthorized")
    for name in ("write", "delete", "admin"):
        assert (
            refused(as_key(name).watch({topic: {}}), 403, "forbidden")["detail"]["scope"] == "read"
        )
    for name in ("full", "read", "rw"):
        good(as_key(name).watch({topic: {}}))


def test_every_topic_of_a_watch_is_inside_the_prefixes(as_key: AsKey, topic: str) -> None:
    """API 7.1: a key cannot watch a topic outside its allowlist, existing or not."""
    mine, other = f"tenant42:{topic}", f"tenant43:{topic}"
    for name in (mine, other):
        good(as_key("full").put(name), 201)
    tenant = as_key("tenant-reader")
    assert set(good(tenant.watch({mine: {}}))["topics"]) == {mine}
    for names in ((other,), (mine, other), (mine, f"absent-{topic}")):
        watched = {name: {} for name in names}
        error = refused(tenant.watch(watched), 403, "forbidden")
        assert error["detail"]["name"] == names[-1]
        refused(tenant.watch(watched, query={"lenient": "true"}), 403, "forbidden")


def test_a_queue_can_be_watched(api: Api, topic: str, watching: Watching) -> None:
    """DESIGN 10: a queue is a topic; watching shows its jobs and leases nothing."""
    good(api.put(topic, {"type": "queue"}), 201)
    good(api.append(topic, "job"))
    assert watching.watch([topic]).payloads(topic, 1) == ["job"]


def test_a_refused_watch_leaves_no_session(api: Api, topic: str) -> None:
    """API 7.1: errors come before anything is made."""
    before = api.metrics()["watch_sessions"]
    refused(api.watch({f"{topic}-absent": {}}), 404, "topic_not_found")
    refused(api.watch({}), 400, "invalid_request")
    assert api.metrics()["watch_sessions"] == before
    good(api.put(topic), 201)
    good(api.watch({topic: {}}))
    assert api.metrics()["watch_sessions"] == before + 1

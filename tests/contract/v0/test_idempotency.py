"""Idempotent writes (API 0.8, decisions 2.5 and 2.12)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock


def test_a_retry_returns_the_original_seqs(api: Api, topic: str) -> None:
    """API 0.8: the same key in the window appends nothing and says deduped."""
    first = good(api.append(topic, "a", "b", idempotency_key="k"), 201)
    assert (first["seqs"], first["deduped"]) == ([1, 2], False)
    good(api.append(topic, "c"))
    retry = good(api.append(topic, "a", "b", idempotency_key="k"))
    assert (retry["seqs"], retry["first_seq"], retry["last_seq"]) == ([1, 2], 1, 2)
    assert (retry["deduped"], retry["created"], retry["count"]) == (True, False, 2)
    assert payloads(good(api.diff(topic))) == ["a", "b", "c"]


def test_a_retry_reports_the_current_head(api: Api, topic: str) -> None:
    """API 2: head_seq is the head of the topic, also on a dedupe."""
    good(api.append(topic, 1, idempotency_key="k"), 201)
    good(api.append(topic, 2, 3))
    assert good(api.append(topic, 1, idempotency_key="k"))["head_seq"] == 3


def test_another_payload_under_the_same_key_is_not_appended(api: Api, topic: str) -> None:
    """Decision 2.12: the old seqs return even when the payload differs."""
    good(api.append(topic, "a", "b", idempotency_key="k"), 201)
    retry = good(api.append(topic, "x", "y", "z", idempotency_key="k"))
    assert (retry["seqs"], retry["deduped"], retry["count"]) == ([1, 2], True, 3)
    assert payloads(good(api.diff(topic))) == ["a", "b"]


def test_other_keys_and_no_key_append(api: Api, topic: str) -> None:
    """API 0.8: only the same key dedupes; keys compare exactly."""
    for number, key in enumerate(["k", "K", "k ", "kk", "\u00e9"], start=1):
        answer = api.append(topic, number, idempotency_key=key)
        assert (answer.json()["seqs"], answer.json()["deduped"]) == ([number], False)
    assert good(api.append(topic, 6))["deduped"] is False
    assert good(api.append(topic, 6))["seqs"] == [7]


def test_keys_are_scoped_to_a_topic(api: Api, topic: str) -> None:
    """API 2: the dedupe key is scoped to this topic."""
    good(api.append(topic, 1, idempotency_key="k"), 201)
    assert good(api.append(f"{topic}-b", 1, idempotency_key="k"), 201)["deduped"] is False


def test_the_header_carries_a_key(api: Api, topic: str) -> None:
    """API 0.8: Idempotency-Key is the same key as the body field."""
    body = b'{"records":[{"data":1}]}'
    good(api.write_bytes(topic, body, **{"Idempotency-Key": "k"}), 201)
    assert good(api.write_bytes(topic, body, **{"Idempotency-Key": "k"}))["deduped"] is True
    assert good(api.append(topic, 1, idempotency_key="k"))["deduped"] is True
    assert good(api.state(topic))["count"] == 1


def test_the_body_field_wins_over_the_header(api: Api, topic: str) -> None:
    """API 0.8: body field wins."""
    body = b'{"records":[{"data":1}],"idempotency_key":"body"}'
    good(api.write_bytes(topic, body, **{"Idempotency-Key": "header"}), 201)
    assert good(api.append(topic, 2, idempotency_key="header"))["deduped"] is False
    assert good(api.append(topic, 3, idempotency_key="body"))["deduped"] is True


def test_the_window_ends(api: Api, topic: str, clock: ServerClock) -> None:
    """API 0.8: the server remembers for idempotency_window_ms, 120000 by default."""
    good(api.append(topic, 1, idempotency_key="k"), 201)
    clock.advance(110_000)
    assert good(api.append(topic, 1, idempotency_key="k"))["deduped"] is True
    clock.advance(20_000)
    late = good(api.append(topic, 1, idempotency_key="k"))
    assert (late["deduped"], late["seqs"]) == (False, [2])


def test_the_window_is_configurable(api: Api, topic: str, clock: ServerClock) -> None:
    """API 0.10: idempotency_window_ms, per topic."""
    good(api.put(topic, {"idempotency_window_ms": 60_000}), 201)
    good(api.append(topic, 1, idempotency_key="k"))
    clock.advance(50_000)
    assert good(api.append(topic, 1, idempotency_key="k"))["deduped"] is True
    clock.advance(15_000)
    assert good(api.append(topic, 1, idempotency_key="k"))["deduped"] is False


def test_a_window_of_zero_never_dedupes(api: Api, topic: str) -> None:
    """Decision 2.12: window 0 never dedupes."""
    good(api.put(topic, {"idempotency_window_ms": 0}), 201)
    for number in range(1, 4):
        body = good(api.append(topic, number, idempotency_key="k"))
        assert (body["seqs"], body["deduped"]) == ([number], False)


def test_a_recreated_topic_starts_fresh(api: Api, topic: str) -> None:
    """Decision 2.12 and API 1.4: deleting a topic removes its dedupe state."""
    good(api.append(topic, "old", idempotency_key="k"), 201)
    good(api.delete(topic))
    body = good(api.append(topic, "new", idempotency_key="k"), 201)
    assert (body["deduped"], body["seqs"], body["created"]) == (False, [1], True)
    assert payloads(good(api.diff(topic))) == ["new"]


def test_a_refused_write_is_not_remembered(api: Api, topic: str) -> None:
    """API 0.8: only assigned seqs are remembered."""
    good(api.put(topic, {"cap_records": 1, "discard": "reject"}), 201)
    good(api.append(topic, 1))
    refused(api.append(topic, 2, idempotency_key="k"), 422, "topic_full")
    good(api.put(topic, {"cap_records": 2, "discard": "reject"}))
    body = good(api.append(topic, 2, idempotency_key="k"))
    assert (body["deduped"], body["seqs"]) == (False, [2])


def test_a_retry_is_recognized_on_a_full_topic(api: Api, topic: str) -> None:
    """API 0.8: a retry appends nothing, so there is nothing to refuse."""
    good(api.put(topic, {"cap_records": 1, "discard": "reject"}), 201)
    good(api.append(topic, 1, idempotency_key="k"))
    assert good(api.append(topic, 1, idempotency_key="k"))["deduped"] is True


def test_a_retry_after_eviction_returns_the_old_seqs(api: Api, topic: str) -> None:
    """Decision 2.12: also when the records are gone."""
    good(api.put(topic, {"cap_records": 1}), 201)
    good(api.append(topic, 1, idempotency_key="k"))
    good(api.append(topic, 2))
    retry = good(api.append(topic, 1, idempotency_key="k"))
    assert (retry["seqs"], retry["deduped"]) == ([1], True)


def test_suppressed_seqs_stay_suppressed_on_a_retry(api: Api, topic: str) -> None:
    """API 2: ?return_seqs=false, also when deduped."""
    path = f"/v0/topics/{topic}?return_seqs=false"
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}
    good(api.request("POST", path, json=body), 201)
    retry = good(api.request("POST", path, json=body))
    assert "seqs" not in retry
    assert (retry["first_seq"], retry["last_seq"], retry["deduped"]) == (1, 2, True)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_retry_is_answered_while_other_topics_write(
    api: Api, topic: str, durability: str
) -> None:
    """API 0.8: a retry waits for its own first write at most, not for other topics' writes."""
    names = [f"{topic}-{number}" for number in range(8)]
    for name in names:
        config = {"durability": durability}
        good(api.append(name, 1, idempotency_key="k", config=config), 201)
    for name in names:
        assert good(api.append(name, 1, idempotency_key="k"))["deduped"] is True


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_simultaneous_retries_append_once(api: Api, topic: str, durability: str) -> None:
    """API 0.8: of many writes with one key on many connections exactly one appends."""
    good(api.put(topic, {"durability": durability}), 201)

    def write(_: int) -> dict:
        return good(api.append(topic, "once", idempotency_key="k"))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(16)))
    assert [answer["seqs"] for answer in answers] == [[1]] * 16
    assert sum(not answer["deduped"] for answer in answers) == 1
    assert good(api.state(topic))["count"] == 1

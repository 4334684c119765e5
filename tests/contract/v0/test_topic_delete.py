"""DELETE /v0/topics/:topic (API 1.4) and what a recreated topic remembers (DESIGN 5.5)."""

from __future__ import annotations

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock


def test_a_topic_is_removed_with_all_its_records(api: Api, topic: str) -> None:
    """API 1.4: deleted true, then every read is 404."""
    good(api.append(topic, 1, 2), 201)
    body = good(api.delete(topic))
    assert set(body) == {"topic", "deleted", "routers_removed", "performance"}
    assert (body["topic"], body["deleted"], body["routers_removed"]) == (topic, True, [])
    refused(api.state(topic), 404, "topic_not_found")
    refused(api.diff(topic), 404, "topic_not_found")
    refused(api.append(topic, 1, create=False), 404, "topic_not_found")


def test_deleting_an_absent_topic_is_not_an_error(api: Api, topic: str) -> None:
    """API 1.4: idempotent, deleted false and nothing removed."""
    body = good(api.delete(topic))
    assert (body["deleted"], body["routers_removed"]) == (False, [])
    good(api.put(topic), 201)
    assert good(api.delete(topic))["deleted"] is True
    assert good(api.delete(topic))["deleted"] is False


def test_if_empty_keeps_a_topic_with_records(api: Api, topic: str) -> None:
    """API 1.4: if_empty deletes only when count is 0, else 409 topic_not_empty."""
    good(api.append(topic, 1), 201)
    refused(api.delete(topic, if_empty="true"), 409, "topic_not_empty")
    assert good(api.state(topic))["count"] == 1
    assert good(api.delete(topic, if_empty="false"))["deleted"] is True


def test_if_empty_deletes_an_empty_topic(api: Api, topic: str) -> None:
    """API 1.4: count 0 is empty."""
    good(api.put(topic), 201)
    assert good(api.delete(topic, if_empty="true"))["deleted"] is True
    assert good(api.delete(topic, if_empty="true"))["deleted"] is False


def test_expired_records_do_not_keep_a_topic(api: Api, topic: str, clock: ServerClock) -> None:
    """API 1.4 and DESIGN 5.2: expired records are excluded from count."""
    good(api.put(topic, {"ttl_ms": 1000}), 201)
    good(api.append(topic, 1))
    clock.advance(5000)
    assert good(api.delete(topic, if_empty="true"))["deleted"] is True


def test_a_mistyped_if_empty_is_refused(api: Api, topic: str) -> None:
    """API 1.4: if_empty is a bool, and a refusal deletes nothing."""
    good(api.put(topic), 201)
    refused(api.delete(topic, if_empty="maybe"), 400, "invalid_request")
    good(api.state(topic))


def test_a_recreated_topic_is_new_and_empty(api: Api, topic: str) -> None:
    """API 1.4: seq restarts, configuration and records of the old one are gone."""
    good(api.put(topic, {"ttl_ms": 777_000}), 201)
    good(api.append(topic, "old", "older"))
    good(api.delete(topic))
    body = good(api.append(topic, "new"), 201)
    assert (body["seqs"], body["created"]) == ([1], True)
    state = good(api.state(topic))
    assert (state["head_seq"], state["count"], state["config"]["ttl_ms"]) == (1, 1, 0)
    assert payloads(good(api.diff(topic))) == ["new"]


def test_a_recreated_topic_may_have_another_type(api: Api, topic: str) -> None:
    """API 1.1: type is immutable for a topic's life, not for its name."""
    good(api.put(topic, {"type": "queue"}), 201)
    good(api.delete(topic))
    assert good(api.put(topic, {"type": "log"}), 201)["config"]["type"] == "log"


def test_a_stale_cursor_on_a_recreated_topic_gets_a_tombstone(api: Api, topic: str) -> None:
    """DESIGN 5.5: from_seq above head is the recreated signal; the read starts over."""
    good(api.append(topic, 1, 2, 3, 4, 5), 201)
    good(api.delete(topic))
    good(api.append(topic, "a", "b"), 201)
    page = good(api.diff(topic, 5))
    tombstone = page["tombstone"]
    assert tombstone["reason"] == "recreated"
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (1, 2)
    assert (tombstone["earliest_seq"], tombstone["head_seq"]) == (1, 2)
    assert payloads(page) == ["a", "b"]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, True, 0)


@pytest.mark.parametrize("from_seq", [1, 7, 2**53, 2**64 - 1])
def test_any_cursor_above_the_head_is_the_recreated_signal(
    api: Api, topic: str, from_seq: int
) -> None:
    """Decision 2.10: an empty new topic gives gap 1 to 0 with nothing missed."""
    good(api.put(topic), 201)
    page = good(api.diff(topic, from_seq))
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 0,
        "reason": "recreated",
        "missed_estimate": 0,
        "earliest_seq": 1,
        "head_seq": 0,
    }
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (0, True, 0)


def test_creating_and_deleting_many_times_leaves_one_topic(api: Api, topic: str) -> None:
    """API 1.4: each round starts at seq 1 and sees only its own records."""
    for round_number in range(20):
        assert good(api.append(topic, round_number), 201)["seqs"] == [1]
        assert payloads(good(api.diff(topic))) == [round_number]
        assert good(api.delete(topic))["deleted"] is True
    refused(api.state(topic), 404, "topic_not_found")

"""GET /v0/topics/:topic (API 1.2)."""

from __future__ import annotations

import time

from tests.contract.v0.config_defaults import DEFAULTS
from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock

FIELDS = {
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


def server_now_ms(clock: ServerClock) -> int:
    return int(time.time() * 1000) + clock.offset_ms


def test_a_fresh_topic_is_empty(api: Api, topic: str) -> None:
    """API 1.2: head 0, earliest and next 1, nothing counted, never written nor read."""
    good(api.put(topic), 201)
    state = good(api.state(topic))
    assert set(state) == FIELDS
    assert state["topic"] == topic
    assert state["type"] == "log"
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (0, 1, 1)
    assert (state["count"], state["bytes"]) == (0, 0)
    assert state["config"] == DEFAULTS
    assert state["last_write_ts"] is None
    assert state["last_read_ts"] is None


def test_appends_move_the_state(api: Api, topic: str) -> None:
    """API 1.2: head, next and count follow every write at once."""
    good(api.append(topic, 1, 2, 3), 201)
    good(api.append(topic, 4))
    state = good(api.state(topic))
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (4, 1, 5)
    assert state["count"] == 4


def test_bytes_are_payload_bytes_of_data_and_meta(api: Api, topic: str) -> None:
    """Decision 2.6: bytes = data plus meta as sent; tag and node do not count."""
    body = b'{"records":[{"data":"abc","meta":{"k":"v"},"tag":"t","node":"n"},{"data":12345}]}'
    good(api.write_bytes(topic, body), 201)
    expected = len(b'"abc"') + len(b'{"k":"v"}') + len(b"12345")
    assert good(api.state(topic))["bytes"] == expected


def test_the_last_write_is_stamped_with_the_commit_time(
    api: Api, topic: str, clock: ServerClock
) -> None:
    """API 1.2: last_write_ts is the $ts of the newest record, in milliseconds of now."""
    before = server_now_ms(clock)
    good(api.append(topic, 1), 201)
    after = server_now_ms(clock)
    written = good(api.state(topic))["last_write_ts"]
    assert before - 5 <= written <= after + 5
    assert good(api.diff(topic))["records"][0]["$ts"] == written


def test_a_state_read_touches_recency_unless_told_not_to(
    api: Api, topic: str, clock: ServerClock
) -> None:
    """API 1.2: touch defaults to true; touch=false leaves last_read_ts alone."""
    good(api.put(topic), 201)
    good(api.state(topic, touch=False))
    assert good(api.state(topic, touch=False))["last_read_ts"] is None
    before = server_now_ms(clock)
    good(api.state(topic, touch=True))
    read = good(api.state(topic, touch=False))["last_read_ts"]
    assert before - 5 <= read <= server_now_ms(clock) + 5
    clock.advance(10_000)
    assert good(api.state(topic, touch=False))["last_read_ts"] == read


def test_a_diff_touches_recency(api: Api, topic: str) -> None:
    """API 3: a diff bumps auto-priority recency."""
    good(api.put(topic), 201)
    good(api.diff(topic))
    assert good(api.state(topic, touch=False))["last_read_ts"] is not None


def test_a_write_does_not_touch_the_read_clock(api: Api, topic: str) -> None:
    """API 1.2: last_read_ts is null until somebody reads."""
    good(api.append(topic, 1), 201)
    assert good(api.state(topic, touch=False))["last_read_ts"] is None


def test_a_mistyped_touch_is_refused(api: Api, topic: str) -> None:
    """API 1.2: touch is a bool."""
    good(api.put(topic), 201)
    refused(api.request("GET", f"/v0/topics/{topic}?touch=maybe"), 400, "invalid_request")


def test_a_manual_priority_is_the_effective_one(api: Api, topic: str) -> None:
    """API 0.10: a manual priority always overrides recency."""
    good(api.put(topic, {"priority": 42}), 201)
    good(api.state(topic, touch=True))
    assert good(api.state(topic))["effective_priority"] == 42


def test_recency_decays_with_a_half_life_of_thirty_seconds(
    api: Api, topic: str, clock: ServerClock
) -> None:
    """DESIGN 3: 500 when just read, 250 after 30 s, 125 after 60 s, 0 after five minutes."""
    good(api.put(topic), 201)
    assert good(api.state(topic))["effective_priority"] == 0
    good(api.state(topic, touch=True))
    assert 470 <= good(api.state(topic))["effective_priority"] <= 500
    clock.advance(30_000)
    assert 235 <= good(api.state(topic))["effective_priority"] <= 250
    clock.advance(30_000)
    assert 117 <= good(api.state(topic))["effective_priority"] <= 125
    clock.advance(240_000)
    assert good(api.state(topic))["effective_priority"] == 0


def test_auto_priority_can_be_turned_off(api: Api, topic: str) -> None:
    """API 0.10: without auto_priority and priority the effective priority is 0."""
    good(api.put(topic, {"auto_priority": False}), 201)
    good(api.state(topic, touch=True))
    assert good(api.state(topic))["effective_priority"] == 0


def test_state_never_creates(api: Api, topic: str) -> None:
    """API 1.2: an absent topic is 404 and stays absent."""
    error = refused(api.state(topic), 404, "topic_not_found")
    assert error["detail"]["topic"] == topic
    refused(api.state(topic), 404, "topic_not_found")
    assert good(api.list(prefix=topic))["topics"] == []

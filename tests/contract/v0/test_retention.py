"""Caps, TTL and tombstones (API 0.10, 3.3; DESIGN 5)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused, seqs
from tests.harness.api import Api
from tests.harness.clock import ServerClock


def watermarks(api: Api, topic: str) -> tuple[int, int, int, int]:
    state = good(api.state(topic))
    return state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]


def fill(api: Api, topic: str, config: dict[str, Any], count: int) -> None:
    good(api.put(topic, config), 201)
    for number in range(1, count + 1):
        good(api.append(topic, number))


def test_a_full_topic_evicts_its_oldest_records(api: Api, topic: str) -> None:
    """API 0.10: cap_records with discard old keeps the newest; the logical floor is exact."""
    fill(api, topic, {"cap_records": 3}, 5)
    assert watermarks(api, topic) == (5, 3, 3, 3)


def test_a_cursor_below_the_floor_gets_a_cap_tombstone(api: Api, topic: str) -> None:
    """API 3.3: the range is inclusive, records begin at earliest_seq."""
    fill(api, topic, {"cap_records": 3}, 5)
    page = good(api.diff(topic, 0))
    tombstone = page["tombstone"]
    assert set(tombstone) == {
        "gap_from",
        "gap_to",
        "reason",
        "missed_estimate",
        "earliest_seq",
        "head_seq",
    }
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (1, 2)
    assert (tombstone["reason"], tombstone["missed_estimate"]) == ("cap", 2)
    assert (tombstone["earliest_seq"], tombstone["head_seq"]) == (3, 5)
    assert seqs(page) == [3, 4, 5]
    assert (page["next_from_seq"], page["earliest_seq"], page["caught_up"]) == (5, 3, True)


@pytest.mark.parametrize("from_seq, gap_from", [(0, 1), (1, 2), (2, None), (3, None), (5, None)])
def test_only_a_cursor_that_lost_something_is_told(
    api: Api, topic: str, from_seq: int, gap_from: int | None
) -> None:
    """DESIGN 5.4: a tombstone iff from_seq + 1 < evict_floor, and none after it was crossed."""
    fill(api, topic, {"cap_records": 3}, 5)
    page = good(api.diff(topic, from_seq))
    if gap_from is None:
        assert page["tombstone"] is None
    else:
        assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (gap_from, 2)
    assert seqs(page) == [seq for seq in (3, 4, 5) if seq > from_seq]
    assert good(api.diff(topic, page["next_from_seq"]))["tombstone"] is None


def test_a_tombstone_page_respects_its_limit(api: Api, topic: str) -> None:
    """API 3.3: next_from_seq continues normally after the gap."""
    fill(api, topic, {"cap_records": 5}, 10)
    page = good(api.diff(topic, 0, limit=2))
    assert (page["tombstone"]["gap_to"], seqs(page), page["next_from_seq"]) == (5, [6, 7], 7)
    page = good(api.diff(topic, 7, limit=2))
    assert (page["tombstone"], seqs(page)) == (None, [8, 9])


def test_a_batch_larger_than_the_cap_keeps_its_tail(api: Api, topic: str) -> None:
    """DESIGN 5.3: with discard old the write commits, then the oldest are removed."""
    good(api.put(topic, {"cap_records": 3}), 201)
    body = good(api.append(topic, *range(1, 8)))
    assert body["seqs"] == [1, 2, 3, 4, 5, 6, 7]
    assert watermarks(api, topic)[:3] == (7, 5, 3)
    page = good(api.diff(topic))
    assert (payloads(page), page["tombstone"]["gap_to"]) == ([5, 6, 7], 4)


def test_a_byte_cap_evicts_too(api: Api, topic: str) -> None:
    """API 0.10: cap_bytes bounds retained payload bytes; the loss is a cap tombstone."""
    good(api.put(topic, {"cap_bytes": 1000}), 201)
    for number in range(10):
        good(api.append(topic, str(number) * 298))
    state = good(api.state(topic))
    assert 0 < state["bytes"] <= 1000
    assert state["count"] in (2, 3)
    assert state["bytes"] == 300 * state["count"]
    assert state["earliest_seq"] == 11 - state["count"]
    tombstone = good(api.diff(topic))["tombstone"]
    assert (tombstone["reason"], tombstone["gap_to"]) == ("cap", state["earliest_seq"] - 1)


def test_the_first_cap_that_is_hit_decides(api: Api, topic: str) -> None:
    """API 0.10: whichever of cap_records and cap_bytes is hit first triggers eviction."""
    good(api.put(topic, {"cap_records": 5, "cap_bytes": 1000}), 201)
    good(api.append(topic, *range(8)))
    assert good(api.state(topic))["count"] == 5
    for number in range(3):
        good(api.append(topic, str(number) * 398))
    state = good(api.state(topic))
    assert state["bytes"] <= 1000
    assert state["count"] < 5


def test_a_full_rejecting_topic_refuses(api: Api, topic: str) -> None:
    """API 0.10: discard reject answers 422 topic_full, appends nothing, loses nothing."""
    fill(api, topic, {"cap_records": 3, "discard": "reject"}, 3)
    detail = refused(api.append(topic, 4), 422, "topic_full")["detail"]
    assert (detail["cap_records"], detail["cap_bytes"]) == (3, 0)
    assert (detail["head_seq"], detail["earliest_seq"]) == (3, 1)
    assert watermarks(api, topic) == (3, 1, 3, 3)
    page = good(api.diff(topic))
    assert (payloads(page), page["tombstone"]) == ([1, 2, 3], None)


def test_a_write_that_would_not_fit_is_refused_whole(api: Api, topic: str) -> None:
    """API 2: all or nothing, and no seq is used up."""
    fill(api, topic, {"cap_records": 3, "discard": "reject"}, 2)
    refused(api.append(topic, 3, 4), 422, "topic_full")
    assert good(api.append(topic, 3))["seqs"] == [3]


def test_a_write_larger_than_the_cap_is_a_permanent_refusal(api: Api, topic: str) -> None:
    """DESIGN 5.3: 400 record_too_large, not the retryable 422."""
    good(api.put(topic, {"cap_records": 3, "discard": "reject"}), 201)
    refused(api.append(topic, 1, 2, 3, 4), 400, "record_too_large")
    good(api.append(topic, 1, 2, 3))
    refused(api.append(topic, 1, 2, 3, 4), 400, "record_too_large")
    assert good(api.state(topic))["head_seq"] == 3


def test_a_write_larger_than_the_byte_cap_is_a_permanent_refusal(api: Api, topic: str) -> None:
    """DESIGN 5.3: the same for cap_bytes; what merely does not fit now is 422."""
    good(api.put(topic, {"cap_bytes": 1000, "discard": "reject"}), 201)
    refused(api.append(topic, "x" * 2000), 400, "record_too_large")
    good(api.append(topic, "x" * 600))
    refused(api.append(topic, "x" * 600), 422, "topic_full")
    assert good(api.state(topic))["count"] == 1


def test_a_rejecting_topic_with_a_larger_cap_takes_writes_again(api: Api, topic: str) -> None:
    """API 1.1: configuration changes apply going forward."""
    fill(api, topic, {"cap_records": 1, "discard": "reject"}, 1)
    refused(api.append(topic, 2), 422, "topic_full")
    good(api.put(topic, {"cap_records": 2, "discard": "reject"}))
    assert good(api.append(topic, 2))["seqs"] == [2]


def test_a_tightened_cap_applies(api: Api, topic: str) -> None:
    """API 1.1: existing records become eligible for eviction, at the next write at the latest."""
    fill(api, topic, {}, 5)
    good(api.put(topic, {"cap_records": 2}))
    good(api.append(topic, 6))
    assert watermarks(api, topic)[:3] == (6, 5, 2)
    page = good(api.diff(topic))
    assert (page["tombstone"]["reason"], page["tombstone"]["gap_to"]) == ("cap", 4)


def test_expired_records_are_gone(api: Api, topic: str, clock: ServerClock) -> None:
    """DESIGN 5.2: excluded from reads, count, bytes and earliest_seq, with a ttl tombstone."""
    fill(api, topic, {"ttl_ms": 60_000}, 2)
    clock.advance(50_000)
    assert watermarks(api, topic) == (2, 1, 2, 2)
    assert payloads(good(api.diff(topic))) == [1, 2]
    clock.advance(20_000)
    assert watermarks(api, topic) == (2, 3, 0, 0)
    page = good(api.diff(topic))
    tombstone = page["tombstone"]
    assert (tombstone["reason"], tombstone["missed_estimate"]) == ("ttl", 2)
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (1, 2)
    assert (tombstone["earliest_seq"], tombstone["head_seq"]) == (3, 2)
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, True, 0)


def test_younger_records_stay(api: Api, topic: str, clock: ServerClock) -> None:
    """DESIGN 5.2: the floor is exact between batches of different age."""
    good(api.put(topic, {"ttl_ms": 60_000}), 201)
    good(api.append(topic, "old", "old"))
    clock.advance(40_000)
    good(api.append(topic, "abc", "de", "f"))
    clock.advance(30_000)
    assert watermarks(api, topic) == (5, 3, 3, 5 + 4 + 3)
    page = good(api.diff(topic))
    assert payloads(page) == ["abc", "de", "f"]
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 2)
    assert good(api.diff(topic, 2))["tombstone"] is None
    listed = good(api.list(prefix=topic))["topics"][0]
    assert (listed["earliest_seq"], listed["count"], listed["bytes"]) == (3, 3, 12)


def test_a_write_after_everything_expired_continues_the_sequence(
    api: Api, topic: str, clock: ServerClock
) -> None:
    """DESIGN 4: seqs are never reused, whatever became of the records."""
    fill(api, topic, {"ttl_ms": 1000}, 3)
    clock.advance(10_000)
    assert good(api.append(topic, "next"))["seqs"] == [4]
    assert watermarks(api, topic)[:3] == (4, 4, 1)
    page = good(api.diff(topic, 1))
    assert (payloads(page), page["tombstone"]["gap_from"]) == (["next"], 2)


def test_a_lost_mixture_is_called_mixed(api: Api, topic: str, clock: ServerClock) -> None:
    """API 3.3: mixed when both cap and TTL took records below the cursor."""
    fill(api, topic, {"ttl_ms": 60_000, "cap_records": 3}, 5)
    clock.advance(70_000)
    good(api.append(topic, "live"))
    page = good(api.diff(topic))
    assert (page["tombstone"]["reason"], page["tombstone"]["gap_to"]) == ("mixed", 5)
    assert payloads(page) == ["live"]


def test_expired_records_free_a_rejecting_topic(api: Api, topic: str, clock: ServerClock) -> None:
    """DESIGN 5.2: expired records are excluded from the count that fills a topic."""
    fill(api, topic, {"ttl_ms": 60_000, "cap_records": 2, "discard": "reject"}, 2)
    refused(api.append(topic, 3), 422, "topic_full")
    clock.advance(70_000)
    assert good(api.append(topic, 3))["seqs"] == [3]


def test_a_ttl_set_later_expires_what_is_old(api: Api, topic: str, clock: ServerClock) -> None:
    """API 1.1: a tightened ttl makes existing records eligible."""
    fill(api, topic, {}, 2)
    clock.advance(10_000)
    good(api.put(topic, {"ttl_ms": 1000}))
    page = good(api.diff(topic))
    assert (page["records"], page["tombstone"]["reason"]) == ([], "ttl")


def test_expired_records_do_not_come_back(api: Api, topic: str, clock: ServerClock) -> None:
    """DESIGN 5.1: earliest_seq never decreases, also when the ttl is lifted."""
    fill(api, topic, {"ttl_ms": 1000}, 2)
    clock.advance(10_000)
    assert watermarks(api, topic) == (2, 3, 0, 0)
    good(api.put(topic, {}))
    assert watermarks(api, topic) == (2, 3, 0, 0)
    page = good(api.diff(topic))
    assert (page["records"], page["tombstone"]["gap_to"]) == ([], 2)


def test_a_huge_ttl_never_expires(api: Api, topic: str, clock: ServerClock) -> None:
    """API 0.10: ttl_ms is u64; the largest one does not overflow into the past."""
    fill(api, topic, {"ttl_ms": 2**64 - 1}, 1)
    clock.advance(1000)
    assert payloads(good(api.diff(topic))) == [1]

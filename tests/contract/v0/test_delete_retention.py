"""Deletes beside caps and TTL (DESIGN 5.1, 7.3): only involuntary loss is told."""

from __future__ import annotations

from tests.contract.v0.test_delete import ask, deleted, fill, left
from tests.harness.answers import good, refused, seqs
from tests.harness.api import Api
from tests.harness.clock import ServerClock


def test_deleted_records_do_not_count_toward_the_cap(api: Api, topic: str) -> None:
    """Spec 3: cap 3, write 1-3, delete before 3, write 4-5: nothing evicted, no tombstone."""
    fill(api, topic, None, None, None, cap_records=3)
    assert deleted(api, topic, before_seq=3) == 2
    good(api.append(topic, 4, 5))
    for cursor in range(6):
        page = good(api.diff(topic, cursor))
        assert page["tombstone"] is None
        assert seqs(page) == [seq for seq in (3, 4, 5) if seq > cursor]
    good(api.append(topic, 6))
    tombstone = good(api.diff(topic))["tombstone"]
    assert (tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"]) == ("cap", 1, 3)
    assert good(api.diff(topic, 3))["tombstone"] is None


def test_eviction_after_a_delete_takes_live_records_only(api: Api, topic: str) -> None:
    """DESIGN 5.1: deleted slots in front do not move the involuntary floor."""
    fill(api, topic, "keep", "x", "x", "keep", "x", cap_records=3)
    # Evicted so far: 1 and 2. Left: 3 (x), 4 (keep), 5 (x).
    assert deleted(api, topic, match="x") == 2
    good(api.append(topic, 6, 7))
    assert left(api, topic) == [4, 6, 7]
    assert good(api.diff(topic, 2))["tombstone"] is None
    good(api.append(topic, 8))
    assert left(api, topic) == [6, 7, 8]
    assert good(api.diff(topic, 4))["tombstone"] is None
    assert good(api.diff(topic, 3))["tombstone"]["gap_to"] == 5


def test_deletes_make_room_in_a_byte_cap(api: Api, topic: str) -> None:
    """DESIGN 7.3: caps are computed against what remains after deletion."""
    good(api.put(topic, {"cap_bytes": 100}), 201)
    good(api.write(topic, [{"data": "x" * 38, "tag": "big"}, {"data": "y" * 38}]))
    assert deleted(api, topic, match="big") == 1
    good(api.append(topic, "z" * 38))
    page = good(api.diff(topic))
    assert (seqs(page), page["tombstone"]) == ([2, 3], None)


def test_deletes_free_a_rejecting_topic(api: Api, topic: str) -> None:
    """DESIGN 5.3: 422 topic_full is retryable once there is room."""
    fill(api, topic, "a", "b", cap_records=2, discard="reject")
    refused(api.append(topic, 3), 422, "topic_full")
    assert deleted(api, topic, match="b") == 1
    assert good(api.append(topic, 3))["seqs"] == [3]
    assert left(api, topic) == [1, 3]


def test_deleted_records_do_not_expire(api: Api, topic: str, clock: ServerClock) -> None:
    """DESIGN 5.1: who read the one live record lost nothing when it and the deleted aged."""
    fill(api, topic, "keep", "x", "x", ttl_ms=60_000)
    deleted(api, topic, match="x")
    clock.advance(70_000)
    assert good(api.diff(topic, 0))["tombstone"]["reason"] == "ttl"
    assert good(api.diff(topic, 1))["tombstone"] is None
    good(api.append(topic, "new"))
    assert good(api.diff(topic, 1))["tombstone"] is None
    assert good(api.diff(topic, 0))["tombstone"]["gap_to"] == 3


def test_old_deletes_before_young_records_are_silent(
    api: Api, topic: str, clock: ServerClock
) -> None:
    """DESIGN 5.2: a prefix that was deleted whole has nothing left to expire."""
    fill(api, topic, "x", "x", ttl_ms=60_000)
    clock.advance(40_000)
    good(api.append(topic, "young"))
    deleted(api, topic, before_seq=3)
    clock.advance(30_000)
    page = good(api.diff(topic, 0))
    assert (seqs(page), page["tombstone"], page["earliest_seq"]) == ([3], None, 3)


def test_expired_records_are_not_deleted(api: Api, topic: str, clock: ServerClock) -> None:
    """API 5: they do not exist at call time; their loss is still told."""
    fill(api, topic, "x", "x", ttl_ms=60_000)
    clock.advance(70_000)
    good(api.write(topic, [{"data": 3, "tag": "x"}]))
    body = good(ask(api, topic, match="x"))
    assert (body["deleted"], body["count"], body["earliest_seq"]) == (1, 0, 4)
    tombstone = good(api.diff(topic))["tombstone"]
    assert (tombstone["reason"], tombstone["gap_from"]) == ("ttl", 1)

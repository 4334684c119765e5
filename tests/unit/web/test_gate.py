"""Counting requests in flight."""

from __future__ import annotations

import pytest

from topicsd.model.errors import TopicsError
from topicsd.model.keys import KeyRing
from topicsd.web.gate import Gate

ALICE, BOB = KeyRing.parse("alice,bob")


def test_requests_without_keys_are_only_counted() -> None:
    """Per-key limits need a key (API 11)."""
    gate = Gate(1)
    gate.enter(None)
    gate.enter(None)
    assert gate.in_flight == 2


def test_a_key_at_its_limit_waits_for_its_own_requests() -> None:
    """The limit is the key's; leaving makes room."""
    gate = Gate(1)
    gate.enter(ALICE)
    gate.enter(BOB)
    with pytest.raises(TopicsError) as caught:
        gate.enter(ALICE)
    assert (
        caught.value.code,
        caught.value.detail,
    ) == ("throttled", {"limit": "max_inflight_per_key", "max": 1})
    gate.leave(ALICE)
    gate.enter(ALICE)
    assert gate.in_flight == 2


def test_zero_means_unlimited() -> None:
    """A limit of 0 is off."""
    gate = Gate(0)
    for _ in range(5000):
        gate.enter(ALICE)
    assert gate.in_flight == 5000

"""Effective priority: the table of DESIGN 3."""

from __future__ import annotations

import pytest

from topicsd.model.topic import TopicConfig
from topicsd.rules.priority import effective, recency

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("idle_s", "expected"),
    [(0, 500), (15, 354), (30, 250), (60, 125), (120, 31), (300, 0), (10**6, 0)],
)
def test_recency_halves_every_thirty_seconds(idle_s: int, expected: int) -> None:
    """The decay that the design writes down, to the integer."""
    assert recency(idle_s * 1000) == expected


def test_recency_never_rises_with_time() -> None:
    """From half a minute to five, step by step."""
    values = [recency(idle_ms) for idle_ms in range(0, 301_000, 100)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 500 and values[-1] == 0


def test_a_reader_ahead_of_the_clock_counts_as_present() -> None:
    """Two processes' clocks may differ by a little."""
    assert recency(-50) == 500


@pytest.mark.parametrize(
    ("config", "last_read", "expected"),
    [
        (TopicConfig(), None, 0),
        (TopicConfig(), NOW, 500),
        (TopicConfig(), NOW - 30_000, 250),
        (TopicConfig(auto_priority=False), NOW, 0),
        (TopicConfig(priority=700), None, 700),
        (TopicConfig(priority=-1000), NOW, -1000),
        (TopicConfig(priority=0), NOW, 0),
    ],
)
def test_a_manual_priority_overrides_recency(
    config: TopicConfig, last_read: int | None, expected: int
) -> None:
    """And a topic that was never read has none."""
    assert effective(config, last_read, NOW) == expected

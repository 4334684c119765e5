"""The graph of routers: one source a destination, and no cycle by accident."""

from __future__ import annotations

import pytest

from topicsd.rules.graph import find_cycle, find_other_source, find_upstream

CHAIN = {"b": "a", "c": "b", "d": "a"}
RING = {"a": "b", "b": "a", "c": "b"}


@pytest.mark.parametrize(
    ("source", "dest", "cycle"),
    [
        ("c", "a", ["c", "a", "b", "c"]),
        ("b", "a", ["b", "a", "b"]),
        ("c", "b", ["c", "b", "c"]),
        ("c", "d", None),
        ("d", "c", None),
        ("x", "a", None),
        ("c", "x", None),
    ],
)
def test_an_edge_that_closes_a_cycle_shows_it(
    source: str, dest: str, cycle: list[str] | None
) -> None:
    """From the edge's source around to it again."""
    assert find_cycle(CHAIN, source, dest) == cycle


def test_a_cycle_that_is_there_ends_the_walk() -> None:
    """With leave for a cycle the way upstream comes back; every topic is on it once."""
    assert find_upstream(RING, "c") == ["c", "b", "a"]
    assert find_cycle(RING, "c", "x") is None
    assert find_cycle(RING, "c", "a") == ["c", "a", "b", "c"]


def test_a_second_source_is_found() -> None:
    """The same source again is no second one."""
    assert find_other_source(CHAIN, "x", "b") == "a"
    assert find_other_source(CHAIN, "a", "b") is None
    assert find_other_source(CHAIN, "a", "x") is None

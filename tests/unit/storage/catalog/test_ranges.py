"""Prefixes become disjoint ranges that an index can seek."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicsd.storage.catalog.ranges import after_prefix, plan_prefixes

NAMES = st.text(st.sampled_from("aAb:_%\ud7ff\ue000\U0010ffff"), max_size=4)


@pytest.mark.parametrize(
    ("prefix", "allow", "expected"),
    [
        ("", ("",), [""]),
        ("a", ("",), ["a"]),
        ("", ("b", "a"), ["a", "b"]),
        ("", ("a", "a:", "aa"), ["a"]),
        ("a:", ("a",), ["a:"]),
        ("a", ("a:", "b"), ["a:"]),
        ("x", ("a", "b"), []),
        ("", ("a", ""), [""]),
        ("a", ("a:1", "a:2", "a:"), ["a:"]),
    ],
)
def test_prefixes_are_merged(prefix: str, allow: tuple[str, ...], expected: list[str]) -> None:
    """The plan is the fewest disjoint prefixes, in order."""
    assert plan_prefixes(prefix, allow) == expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("", b""), ("a", "b"), ("a:", "a;"), ("\U0010ffff", b""), ("a\U0010ffff", "b")],
)
def test_bound_after_a_prefix(prefix: str, expected: str | bytes) -> None:
    """The bound is the least text above every name with the prefix."""
    assert after_prefix(prefix) == expected


def test_bound_after_a_prefix_is_never_a_surrogate() -> None:
    """A surrogate has no UTF-8 form, so the bound jumps over them."""
    assert after_prefix("a\ud7ff") == "a\ue000"


@given(NAMES, NAMES)
def test_bound_separates_names_exactly(prefix: str, name: str) -> None:
    """A name lies between the prefix and its bound exactly when it starts with the prefix."""
    bound = after_prefix(prefix)
    inside = name >= prefix and (isinstance(bound, bytes) or name < bound)
    assert inside == name.startswith(prefix)


@given(NAMES, st.lists(NAMES, min_size=1, max_size=5), NAMES)
def test_plan_covers_exactly_what_is_allowed(prefix: str, allow: list[str], name: str) -> None:
    """One planned prefix matches a permitted name, none matches any other."""
    permitted = name.startswith(prefix) and name.startswith(tuple(allow))
    matches = [start for start in plan_prefixes(prefix, allow) if name.startswith(start)]
    assert len(matches) == int(permitted)

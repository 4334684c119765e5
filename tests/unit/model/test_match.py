"""The tag predicate: what it reads, what it refuses, what it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from topicsd.model.errors import TopicsError
from topicsd.model.match import Match, parse_match


@pytest.mark.parametrize(
    "raw, expected",
    [
        ("x", Match("x", False)),
        ("x*", Match("x*", False)),
        ("", Match("", False)),
        (["tag", "Eq", "x"], Match("x", False)),
        (["tag", "Eq", "x*y"], Match("x*y", False)),
        (["tag", "Glob", "x*"], Match("x", True)),
        (["tag", "Glob", "*"], Match("", True)),
        (["tag", "Glob", "ü:*"], Match("ü:", True)),
    ],
)
def test_a_predicate_is_read(raw: Any, expected: Match) -> None:
    """API 5: Eq, Glob with one trailing star, and a bare string for Eq."""
    assert expected == parse_match(raw)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        5,
        True,
        {},
        [],
        ["tag"],
        ["tag", "Eq"],
        ["tag", "Eq", 1],
        ["tag", "Eq", "x", "y"],
        ["node", "Eq", "x"],
        ["tag", "eq", "x"],
        ["tag", "In", "x"],
        ["tag", "Glob", ""],
        ["tag", "Glob", "x"],
        ["tag", "Glob", "*x"],
        ["tag", "Glob", "x**"],
        ["tag", "Glob", "x*y*"],
        ("tag", "Eq", "x"),
    ],
)
def test_anything_else_is_refused(raw: Any) -> None:
    """API 5: 400 invalid_request, naming the field."""
    with pytest.raises(TopicsError) as refusal:
        parse_match(raw)
    assert (refusal.value.code, refusal.value.detail["field"]) == ("invalid_request", "match")


@pytest.mark.parametrize(
    "match, tag, expected",
    [
        (Match("x", False), "x", True),
        (Match("x", False), "xy", False),
        (Match("x", True), "xy", True),
        (Match("x", True), "x", True),
        (Match("x", True), "ax", False),
        (Match("", True), "", True),
        (Match("", True), None, False),
        (Match("", False), None, False),
        (Match("", False), "", True),
    ],
)
def test_a_record_without_a_tag_never_matches(
    match: Match, tag: str | None, expected: bool
) -> None:
    """API 5."""
    assert expected is match.accepts(tag)

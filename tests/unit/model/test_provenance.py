"""Where a dead-lettered job came from, in its meta, and out of it again."""

from __future__ import annotations

import json

import pytest

from topicsd.model.provenance import Origin, add_origin, find_origin, remove_origin

ORIGIN = Origin("jobs:a", 3, 42)
OURS = {
    "$dead_letter_from": "jobs:a",
    "$dead_letter_deliveries": "3",
    "$dead_letter_src_seq": "42",
}


@pytest.mark.parametrize(
    "meta", [None, b"{}", b"{ }", b'{"a":1}', b'{"b": "x",  "a":[1.50, "}"] }', b'{"\\u00e9":"z"}']
)
def test_other_members_keep_their_bytes(meta: bytes | None) -> None:
    """What is added can be found and taken out; values stay as they were written."""
    added = add_origin(meta, ORIGIN)
    assert json.loads(added) == {**json.loads(meta or b"{}"), **OURS}
    assert find_origin(added) == ORIGIN
    inner = (meta or b"{}").strip()[1:-1].rstrip()
    assert inner in added
    restored = remove_origin(added)
    assert (restored or b"{}") == b"{" + inner.strip() + b"}"


def test_a_second_death_replaces_the_first() -> None:
    """Members of ours are there once, wherever they stood."""
    twice = add_origin(add_origin(b'{"a":1}', Origin("old", 1, 2)), ORIGIN)
    assert twice.count(b"$dead_letter_from") == 1
    assert find_origin(twice) == ORIGIN
    foreign = b'{"$dead_letter_from":"me","a":1e2}'
    assert json.loads(add_origin(foreign, ORIGIN)) == {"a": 100, **OURS}
    assert b"1e2" in add_origin(foreign, ORIGIN)


def test_what_is_not_ours_is_not_found() -> None:
    """Only the three members at the end, as we write them."""
    for meta in (None, b"{}", b'{"$dead_letter_from":"x"}', b'{"note":"$dead_letter_from"}'):
        assert find_origin(meta) is None

"""Rows of unsealed segments in the order of their tags."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.test_tags import expected, region_of
from topicsd.model.match import Match
from topicsd.storage.tag_pieces import TagPieces

_texts = st.text(st.sampled_from('ab"\\ü日\x01😀'), max_size=12)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.one_of(st.none(), _texts), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
    _texts,
    st.booleans(),
)
def test_pieces_find_what_the_rows_say(
    texts: list[str | None], ends: list[int], text: str, is_prefix: bool
) -> None:
    """However the rows are cut into pieces, and whatever is in none."""
    region, pieces, match = region_of(texts), TagPieces(), Match(text, is_prefix)
    first = 0
    for number, end in enumerate(sorted(ends)):
        stop = min(end, len(texts))
        if number != 1 and stop > first:
            pieces.add(region, first, stop)
        first = stop
    pieces.wait()
    assert expected(texts, match) == pieces.find_rows(region, len(texts), match).tolist()


@pytest.mark.parametrize("visible", [0, 1, 2, 3, 5])
def test_rows_beyond_the_visible_ones_are_not_found(visible: int) -> None:
    """A piece may be ahead of the snapshot that is asked about."""
    region, pieces = region_of(["a"] * 6), TagPieces()
    pieces.add(region, 0, 2)
    pieces.add(region, 2, 4)
    pieces.wait()
    found = pieces.find_rows(region, visible, Match("a", False)).tolist()
    assert found == list(range(visible))


def test_the_oldest_pieces_go_when_there_are_too_many() -> None:
    """Their rows are looked at instead: the answer is the same."""
    pieces = TagPieces(rows_max=10)
    regions = [region_of(["a", "b"] * 2, base_seq) for base_seq in range(100, 600, 100)]
    for region in regions:
        pieces.add(region, 0, 4)
    pieces.wait()
    assert list(pieces._pieces) == [region.key for region in regions[-2:]]
    for region in regions:
        assert pieces.find_rows(region, 4, Match("b", False)).tolist() == [1, 3]


def test_pieces_of_a_sealed_segment_are_given_up() -> None:
    """Twice is fine; the room they took is free again."""
    pieces, region = TagPieces(), region_of(["a"] * 3)
    pieces.add(region, 0, 3)
    pieces.wait()
    for _ in range(2):
        pieces.forget(region.key)
        assert (len(pieces._pieces), pieces._rows) == (0, 0)

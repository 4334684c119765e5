"""Answers in order, and records behind the answers they belong to."""

from __future__ import annotations

from topicsd.web.live.holds import Holds


def test_a_topic_without_writes_has_no_bound() -> None:
    """Nothing is held back when nothing is under way."""
    assert Holds().limit("a") is None


def test_a_topic_is_bound_by_its_last_answer() -> None:
    """Each answer lets everything up to its seq pass; the last one lifts the bound."""
    holds = Holds()
    first, second = holds.take("a"), holds.take("a")
    assert (holds.limit("a"), holds.limit("b")) == (0, None)
    assert holds.drop(first, b"1", 7) == [b"1"]
    assert holds.limit("a") == 7
    assert holds.drop(second, b"2", 9) == [b"2"]
    assert holds.limit("a") is None


def test_an_early_answer_waits_for_those_before_it() -> None:
    """Replies may overtake each other on their way; answers do not."""
    holds = Holds()
    first, second, third = (holds.take("a") for _ in range(3))
    assert holds.drop(second, b"2", 8) == []
    assert holds.limit("a") == 0
    assert holds.drop(first, b"1", 7) == [b"1", b"2"]
    assert holds.limit("a") == 8
    assert holds.drop(third, b"3", 9) == [b"3"]


def test_a_write_that_wrote_nothing_moves_no_bound() -> None:
    """A refusal and a deduped retry come with an older seq."""
    holds = Holds()
    kept = [holds.take("a") for _ in range(3)]
    holds.drop(kept[0], b"1", 7)
    holds.drop(kept[1], b"", 0)
    assert holds.limit("a") == 7


def test_a_bound_ends_with_its_writes() -> None:
    """A later write starts anew: a recreated topic counts from 1."""
    holds = Holds()
    holds.drop(holds.take("a"), b"", 7)
    holds.take("a")
    assert holds.limit("a") == 0

"""Where a read starts, and which loss it must report: the table of DESIGN 5."""

from __future__ import annotations

import pytest

from topicsd.rules.floors import Floors, ReadPlan, Tombstone, plan_read

# head, earliest, cap floor, ttl floor, lost floor
WHOLE = Floors(100, 1, 1, 1, 1)
EMPTY = Floors(0, 1, 1, 1, 1)
CAPPED = Floors(100, 51, 51, 1, 1)
EXPIRED = Floors(100, 51, 1, 51, 1)
BOTH = Floors(100, 51, 51, 31, 1)
EMPTIED = Floors(100, 101, 1, 1, 101)
DELETED = Floors(100, 51, 1, 1, 1)
MIXED_DELETED = Floors(100, 61, 51, 1, 1)


def _lost(
    floors: Floors, first: int, last: int, reason: str, missed: int | None = None
) -> Tombstone:
    count = last - first + 1 if missed is None else missed
    return Tombstone(first, last, reason, count, floors.earliest_seq, floors.head_seq)


@pytest.mark.parametrize(
    ("from_seq", "floors", "start", "loss"),
    [
        (0, WHOLE, 1, None),
        (40, WHOLE, 41, None),
        (100, WHOLE, 101, None),
        (0, EMPTY, 1, None),
        # Involuntary loss below the cursor's next record.
        (0, CAPPED, 51, (1, 50, "cap")),
        (49, CAPPED, 51, (50, 50, "cap")),
        (50, CAPPED, 51, None),
        (0, EXPIRED, 51, (1, 50, "ttl")),
        (20, BOTH, 51, (21, 50, "mixed")),
        (30, BOTH, 51, (31, 50, "cap")),
        (0, EMPTIED, 101, (1, 100, "lost")),
        (100, EMPTIED, 101, None),
        # Deleted on purpose: silence.
        (0, DELETED, 51, None),
        (50, MIXED_DELETED, 61, None),
        (49, MIXED_DELETED, 61, (50, 60, "cap")),
        # A cursor from another life of the topic.
        (101, WHOLE, 1, (1, 100, "recreated")),
        (10**18, CAPPED, 51, (1, 100, "recreated")),
        (7, EMPTY, 1, (1, 0, "recreated")),
    ],
)
def test_a_cursor_starts_at_its_floor_and_hears_of_losses(
    from_seq: int, floors: Floors, start: int, loss: tuple[int, int, str] | None
) -> None:
    """One row a situation, without gaps."""
    tombstone = None if loss is None else _lost(floors, *loss)
    assert plan_read(from_seq, floors, []) == ReadPlan(start, floors.head_seq, tombstone)


GAPS = [(11, 20), (41, 45)]


@pytest.mark.parametrize(
    ("from_seq", "start", "stop", "loss"),
    [
        (0, 1, 10, None),
        (9, 10, 10, None),
        (10, 21, 40, (11, 20)),
        (15, 21, 40, (16, 20)),
        (20, 21, 40, None),
        (39, 40, 40, None),
        (40, 46, 100, (41, 45)),
        (45, 46, 100, None),
        (100, 101, 100, None),
    ],
)
def test_a_read_ends_at_a_gap_and_the_next_one_reports_it(
    from_seq: int, start: int, stop: int, loss: tuple[int, int] | None
) -> None:
    """Records on both sides of a gap never share a page."""
    tombstone = None if loss is None else _lost(WHOLE, *loss, "lost")
    assert plan_read(from_seq, WHOLE, GAPS) == ReadPlan(start, stop, tombstone)


def test_a_gap_at_the_end_leaves_nothing_to_read() -> None:
    """The cursor ends at the head."""
    plan = plan_read(90, WHOLE, [(91, 100)])
    assert plan == ReadPlan(101, 100, _lost(WHOLE, 91, 100, "lost"))


def test_losses_that_touch_are_one_tombstone() -> None:
    """A response carries at most one."""
    plan = plan_read(0, CAPPED, [(51, 60), (61, 70)])
    assert plan == ReadPlan(71, 100, _lost(CAPPED, 1, 70, "mixed", 70))
    plan = plan_read(10, WHOLE, [(11, 20), (21, 25)])
    assert plan.tombstone == _lost(WHOLE, 11, 25, "lost")


def test_gaps_below_the_floor_are_forgotten() -> None:
    """They are part of what the floor reports."""
    assert plan_read(0, CAPPED, [(10, 20)]).tombstone == _lost(CAPPED, 1, 50, "cap")
    assert plan_read(0, DELETED, [(40, 60)]) == ReadPlan(61, 100, _lost(DELETED, 51, 60, "lost"))


def test_a_recreated_topic_with_a_gap_at_its_start_reports_both_at_once() -> None:
    """The cursor is sent to the start, which is gone."""
    plan = plan_read(200, WHOLE, [(1, 10)])
    assert plan.start == 11 and plan.stop == 100
    assert plan.tombstone is not None and plan.tombstone.reason in ("recreated", "mixed")

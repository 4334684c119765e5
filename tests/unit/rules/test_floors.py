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


def test_gaps_below_the_involuntary_floor_are_part_of_what_it_reports() -> None:
    """Whatever took them first, the cap would have."""
    assert plan_read(0, CAPPED, [(10, 20)]).tombstone == _lost(CAPPED, 1, 50, "cap")


# A cap took what is below 11, a delete what is below 51, as far as it was not lost before.
CAPPED_DELETED = Floors(100, 51, 11, 1, 1)
EXPIRED_DELETED = Floors(100, 51, 1, 11, 1)
ALL_DELETED = Floors(100, 101, 1, 1, 1)


@pytest.mark.parametrize(
    ("from_seq", "floors", "gaps", "expected"),
    [
        # From anywhere below the gap: the gap itself, and on from the first record.
        (0, DELETED, [(11, 20)], (51, 100, (11, 20, "lost"))),
        (9, DELETED, [(11, 20)], (51, 100, (11, 20, "lost"))),
        (10, DELETED, [(11, 20)], (51, 100, (11, 20, "lost"))),
        # From inside it: what is above the cursor.
        (11, DELETED, [(11, 20)], (51, 100, (12, 20, "lost"))),
        (19, DELETED, [(11, 20)], (51, 100, (20, 20, "lost"))),
        # From above it: the delete alone, which is silent.
        (20, DELETED, [(11, 20)], (51, 100, None)),
        (49, DELETED, [(11, 20)], (51, 100, None)),
        # A gap that reaches the first record, and one that reaches beyond it.
        (0, DELETED, [(40, 50)], (51, 100, (40, 50, "lost"))),
        (0, DELETED, [(40, 60)], (61, 100, (40, 60, "lost"))),
        (45, DELETED, [(40, 60)], (61, 100, (46, 60, "lost"))),
        # Of several gaps each is told by a read of its own; touching ones are one.
        (0, DELETED, [(11, 20), (31, 35)], (31, 30, (11, 20, "lost"))),
        (30, DELETED, [(11, 20), (31, 35)], (51, 100, (31, 35, "lost"))),
        (0, DELETED, [(11, 20), (21, 35)], (51, 100, (11, 35, "lost"))),
        (0, DELETED, [(11, 20), (51, 60)], (51, 50, (11, 20, "lost"))),
        (0, DELETED, [(11, 20), (71, 80)], (51, 70, (11, 20, "lost"))),
        # Nothing is left to read behind it.
        (0, ALL_DELETED, [(91, 100)], (101, 100, (91, 100, "lost"))),
        # Below a floor the tombstone of the floor covers the gap, for both reasons.
        (0, CAPPED_DELETED, [(21, 30)], (51, 100, (1, 50, "mixed"))),
        (0, EXPIRED_DELETED, [(5, 30)], (51, 100, (1, 50, "mixed"))),
        (0, CAPPED_DELETED, [(3, 8)], (51, 100, (1, 50, "cap"))),
        (0, EMPTIED, [(3, 8)], (101, 100, (1, 100, "lost"))),
        (10, CAPPED_DELETED, [(21, 30)], (51, 100, (21, 30, "lost"))),
        (30, CAPPED_DELETED, [(21, 30)], (51, 100, None)),
        # Another life of the topic: all of it is told at once.
        (200, DELETED, [(11, 20)], (51, 100, (1, 100, "recreated"))),
    ],
)
def test_a_delete_around_a_gap_does_not_silence_it(
    from_seq: int,
    floors: Floors,
    gaps: list[tuple[int, int]],
    expected: tuple[int, int, tuple[int, int, str] | None],
) -> None:
    """Involuntary loss is told although what surrounded it was deleted on purpose."""
    start, stop, loss = expected
    tombstone = None if loss is None else _lost(floors, *loss)
    assert plan_read(from_seq, floors, gaps) == ReadPlan(start, stop, tombstone)


def test_every_lost_seq_is_told_to_a_cursor_that_follows_its_reads() -> None:
    """Whatever the first cursor, and in ranges that do not overlap."""
    floors, gaps = Floors(100, 51, 1, 1, 1), [(5, 9), (11, 20), (31, 35), (60, 70), (96, 100)]
    for cursor in range(101):
        told: list[int] = []
        from_seq, wanted = cursor, cursor
        while from_seq < floors.head_seq:
            plan = plan_read(from_seq, floors, gaps)
            if plan.tombstone is not None:
                assert plan.tombstone.reason == "lost"
                told += range(plan.tombstone.gap_from, plan.tombstone.gap_to + 1)
            from_seq = max(plan.stop, plan.start - 1)
        assert told == [
            seq for first, last in gaps for seq in range(first, last + 1) if seq > wanted
        ]


def test_a_recreated_topic_with_a_gap_at_its_start_reports_both_at_once() -> None:
    """The cursor is sent to the start, which is gone."""
    plan = plan_read(200, WHOLE, [(1, 10)])
    assert plan.start == 11 and plan.stop == 100
    assert plan.tombstone is not None and plan.tombstone.reason in ("recreated", "mixed")
    assert plan.tombstone[:2] == (1, 100) and plan.tombstone.missed_estimate == 100

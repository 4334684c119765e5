"""The lease table: who holds what, what is free, and what is counted, by events and clock."""

from __future__ import annotations

import pytest

from topicsd.model.lease import (
    Acked,
    Claimed,
    DeadLettered,
    Delayed,
    Event,
    Extended,
    Released,
    lease_text,
    parse_lease,
)
from topicsd.rules.leases import SWEEP_MIN, LeaseTable, divide


def table_of(*events: Event, now: int = 0, max_deliveries: int = 0) -> LeaseTable:
    table = LeaseTable()
    for event in events:
        table.apply(event)
    table.advance(now, max_deliveries)
    return table


def counts(table: LeaseTable) -> tuple[int, int, int]:
    return table.in_flight, table.delayed, table.free


def test_a_claimed_job_is_held_until_its_deadline() -> None:
    """A lease is over in the millisecond after its deadline."""
    table = table_of(Claimed([1, 2], "w", 7, 100, 3), now=100)
    assert counts(table) == (2, 0, 0)
    assert table.holds(1, "w", None) and table.holds(2, "w", 8)
    assert not table.holds(1, "w", 8) and not table.holds(1, "v", None)
    table.advance(101)
    assert counts(table) == (0, 0, 2)
    assert not table.holds(1, "w", 7)
    assert table.take_free(9) == [1, 2]


def test_time_never_moves_back() -> None:
    """What was free stays free when the clock is set back."""
    table = table_of(Claimed([1], "w", 7, 100, 2), now=200)
    table.advance(50)
    assert counts(table) == (0, 0, 1)


def test_an_extended_lease_goes_on() -> None:
    """The old deadline has no effect any more."""
    table = table_of(Claimed([1], "w", 7, 100, 2), Extended([1], 300), now=200)
    assert counts(table) == (1, 0, 0)
    assert table.jobs[1].deliveries == 1
    assert table.next_free_at == 301


def test_a_released_job_is_free_when_it_is_due() -> None:
    """Until then it counts as neither held nor free."""
    table = table_of(Claimed([1], "w", 7, 100, 2), Released([1], 50), now=49)
    assert counts(table) == (0, 1, 0)
    table.advance(50)
    assert counts(table) == (0, 0, 1)


def test_free_jobs_come_in_order_of_their_seqs() -> None:
    """Whatever the order they became free in, and each once."""
    claims = [Claimed([seq], "w", seq, 1000, seq + 1) for seq in (1, 2, 3)]
    table = table_of(*claims, now=0)
    for seq in (3, 1, 2, 3):
        table.apply(Released([seq], 5))
        table.advance(5)
    assert table.take_free(2) == [1, 2]


def test_gone_jobs_are_gone_from_everything() -> None:
    """Acked, dead-lettered, deleted and evicted jobs count nowhere."""
    table = table_of(Claimed([1, 2, 3, 4, 5], "w", 1, 100, 6), Released([2, 5], 0), now=10)
    table.apply(Acked([1]))
    table.apply(DeadLettered([2]))
    table.forget([3])
    table.forget_below(5)
    assert counts(table) == (0, 0, 1)
    assert (list(table.jobs), table.dead_lettered) == ([5], 1)


def test_events_about_jobs_that_are_gone_change_nothing() -> None:
    """A release or an extension does not bring a job back."""
    table = table_of(Released([1], 0), Extended([2], 9), Acked([3]))
    assert not table.jobs


def test_spent_jobs_are_set_apart() -> None:
    """What was delivered often enough is free, but is not handed out."""
    table = table_of(
        Claimed([1, 2], "w", 1, 10, 3), Claimed([2], "w", 9, 10, 3), now=11, max_deliveries=2
    )
    assert (table.spent, table.free) == ({2}, 2)
    assert table.take_free(9) == [1]
    table.advance(11, 0)
    assert (table.spent, table.free) == (set(), 2)
    table.advance(11, 1)
    assert table.spent == {1, 2}


def test_the_cursor_only_moves_on() -> None:
    """A claim says where fresh jobs begin; born-delayed jobs do not move it."""
    table = table_of(Claimed([1], "w", 1, 10, 2), Delayed([50], 20))
    assert table.cursor == 2
    table.apply(Claimed([50], "w", 2, 30, 2))
    assert (table.cursor, table.jobs[50].deliveries) == (2, 1)


def test_a_batch_can_be_rolled_back() -> None:
    """Nothing remains of what was applied since it began."""
    table = table_of(Claimed([1, 2], "w", 1, 100, 3), Released([2], 5), now=10)
    before = (dict(table.jobs), table.cursor, table.dead_lettered, counts(table))
    table.begin()
    assert table.take_free(1) == [2]
    table.apply(Claimed([2, 3], "v", 9, 200, 4))
    table.apply(DeadLettered([1]))
    table.roll_back()
    assert (dict(table.jobs), table.cursor, table.dead_lettered, counts(table)) == before
    assert table.take_free(9) == [2]


def test_stale_entries_are_swept() -> None:
    """A job that is extended for ever does not fill the memory."""
    table = table_of(Claimed([1], "w", 1, 10, 2))
    for deadline in range(20, 20 + 10 * SWEEP_MIN):
        table.apply(Extended([1], deadline))
    assert len(table._by_time.entries) <= SWEEP_MIN + 4


@pytest.mark.parametrize(
    ("available", "wants", "shares"),
    [
        (50, [10] * 10, [5] * 10),
        (3, [10, 10], [2, 1]),
        (100, [10, 20], [10, 20]),
        (0, [5, 5], [0, 0]),
        (9, [10, 20], [3, 6]),
        (2, [1, 1, 1], [1, 1, 0]),
        (10, [], []),
    ],
)
def test_shares_are_in_proportion(available: int, wants: list[int], shares: list[int]) -> None:
    """DESIGN 10.3: even division; nobody gets more than it wants and nothing is left over."""
    assert divide(available, wants) == shares


@pytest.mark.parametrize("text", ["lease_", "lease_xyz", "LEASE_1", "1", "lease_1 ", "lease_-1"])
def test_foreign_tokens_are_told_from_ours(text: str) -> None:
    """Decision 7: lease_<hex> and nothing else."""
    assert parse_lease(text) is None
    assert parse_lease(lease_text(0xBEEF)) == 0xBEEF

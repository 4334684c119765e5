"""The lease table is a projection: replaying its events gives the same table (DESIGN 10)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topicsd.model.lease import (
    Acked,
    Claimed,
    DeadLettered,
    Delayed,
    Event,
    Extended,
    Released,
    decode_events,
    encode_events,
)
from topicsd.rules.leases import LeaseTable

SEQS = st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True).map(sorted)
TIMES = st.integers(1, 60)
EVENTS = st.one_of(
    st.builds(Claimed, SEQS, st.sampled_from(["a", "b"]), st.integers(1, 99), TIMES, TIMES),
    st.builds(Released, SEQS, TIMES),
    st.builds(Extended, SEQS, TIMES),
    st.builds(Acked, SEQS),
    st.builds(Delayed, SEQS, TIMES),
    st.builds(DeadLettered, SEQS),
)


def view(table: LeaseTable) -> tuple[object, ...]:
    free = {seq for seq in table.jobs if table.is_free(seq)}
    numbers = (table.in_flight, table.delayed, table.free, table.dead_lettered, table.cursor)
    return table.jobs, free, table.spent, numbers


def counted(table: LeaseTable, now: int) -> tuple[int, int, int]:
    """The counters, by looking at every job."""
    waiting = [job for job in table.jobs.values() if job.free_at > now]
    held = sum(job.lease != 0 for job in waiting)
    return held, len(waiting) - held, len(table.jobs) - len(waiting)


@given(st.lists(st.tuples(EVENTS, TIMES), max_size=40), st.integers(0, 3))
def test_a_replayed_table_is_the_same(steps: list[tuple[Event, int]], limit: int) -> None:
    """Whenever time moved on in between, and through the bytes of the WAL."""
    lived, now = LeaseTable(), 0
    for event, moment in steps:
        lived.apply(event)
        now = max(now, moment)
        lived.advance(now, limit)
        assert (lived.in_flight, lived.delayed, lived.free) == counted(lived, now)
    replayed = LeaseTable()
    for event in decode_events(encode_events([event for event, _ in steps])):
        replayed.apply(event)
    replayed.advance(now, limit)
    assert view(replayed) == view(lived)
    assert replayed.take_free(99) == lived.take_free(99)


@given(st.lists(EVENTS, max_size=20), st.lists(EVENTS, max_size=20), TIMES)
def test_a_rolled_back_batch_leaves_no_trace(
    kept: list[Event], undone: list[Event], now: int
) -> None:
    """Whatever it did."""
    table, expected = LeaseTable(), LeaseTable()
    for event in kept:
        table.apply(event)
        expected.apply(event)
    table.advance(now)
    table.begin()
    for event in undone:
        table.apply(event)
    table.roll_back()
    expected.advance(now)
    assert view(table) == view(expected)
    assert table.take_free(99) == expected.take_free(99)

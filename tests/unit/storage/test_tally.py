"""Counters that processes share."""

from __future__ import annotations

import os

from topicsd.storage.fs import Files
from topicsd.storage.tally import LAG_BUCKETS_MS, REQUEST_BUCKETS_US, Tally


def build(columns: int = 2) -> Tally:
    return Tally(Files(), columns=columns, keys=2, series=3)


def in_child(tally: Tally, number: int) -> None:
    """Let a process count in a column and end without closing anything."""
    pid = os.fork()
    if pid == 0:
        column = tally.take(number)
        column.set_in_flight(5)
        column.count_connection(7)
        column.count_key(1, 5)
        column.count_read(100)
        column.count_refused_submit()
        column.observe_request(2, 201, 900)
        os._exit(0)
    os.waitpid(pid, 0)


def test_what_a_dead_process_had_open_is_closed() -> None:
    """Its gauges do not count; its counters stay."""
    tally = build()
    tally.take(0).set_in_flight(1)
    in_child(tally, 1)
    assert tally.now() == (1, 0, 0)
    assert tally.pids() == [os.getpid()]
    assert (tally.in_flight_of(1), tally.living_in_flight_of(1)) == (5, 0)
    assert (tally.records_read, tally.submits_refused) == (100, 1)
    assert list(tally.requests()) == [(2, 2)]


def test_a_successor_empties_the_gauges() -> None:
    """The column's counters go on from where they were."""
    tally = build()
    in_child(tally, 1)
    column = tally.take(1)
    assert (tally.in_flight_of(1), tally.now()) == (0, (0, 0, 0))
    column.count_read(1)
    assert tally.records_read == 101


def test_columns_are_summed() -> None:
    """Each process writes its own cells; readers see the sum."""
    tally = build(3)
    for number in range(3):
        column = tally.take(number)
        column.count_key(0, 1)
        column.count_key(1, 10)
        column.count_connection(2)
        column.observe_request(0, 200, 1)
    assert (tally.in_flight_of(0), tally.in_flight_of(1)) == (3, 30)
    assert tally.now().connections == 6
    assert tally.requests()[0, 2].buckets[0] == 3


def test_a_bound_belongs_to_its_bucket() -> None:
    """Buckets are `less or equal`; what is above the last bound has one of its own."""
    tally = build(1)
    column = tally.take(0)
    values = [0, *REQUEST_BUCKETS_US, REQUEST_BUCKETS_US[-1] + 1]
    for value in values:
        column.observe_request(1, 503, value)
    found = tally.requests()
    assert list(found) == [(1, 5)]
    assert found[1, 5].buckets == [2, *[1] * (len(REQUEST_BUCKETS_US) - 1), 1]
    assert found[1, 5].sum == sum(values)
    for value in (LAG_BUCKETS_MS[0], LAG_BUCKETS_MS[-1] + 1):
        column.observe_lag(value)
    lag = tally.wakeup_lag()
    assert (lag.buckets[0], lag.buckets[-1], sum(lag.buckets)) == (1, 1, 2)
    assert lag.sum == LAG_BUCKETS_MS[0] + LAG_BUCKETS_MS[-1] + 1

"""Long-polling a diff with wait_ms (API 3): it waits, it wakes at once, it gives up in time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.server import Server

# Long enough that an answer that does not wait would have arrived.
QUIET_S = 0.15
WAKE_S = 0.5


class Waiters:
    """Open long-polls, each on a connection of its own."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack

    def open(self, topic: str, from_seq: int = 0, **fields: Any) -> RawConnection:
        body = json.dumps({"from_seq": from_seq, "wait_ms": 20_000, **fields}).encode()
        connection = self._stack.enter_context(RawConnection(self._server.address, timeout=15))
        connection.send(build_request("POST", f"/v0/topics/{topic}/diff", body))
        return connection


@pytest.fixture
def waiters(server: Server) -> Iterator[Waiters]:
    with ExitStack() as stack:
        yield Waiters(server, stack)


def test_a_write_on_another_connection_wakes_a_waiter(
    api: Api, topic: str, waiters: Waiters
) -> None:
    """API 3: wait_ms blocks for new records, and the first one ends the wait at once."""
    good(api.append(topic, "old"), 201)
    waiter = waiters.open(topic, 1)
    assert waiter.is_silent(QUIET_S)
    good(api.append(topic, "new"))
    written = time.monotonic()
    page = good(waiter.receive())
    assert time.monotonic() - written < WAKE_S
    assert payloads(page) == ["new"]
    assert (page["next_from_seq"], page["caught_up"]) == (2, True)


def test_a_waiter_may_stand_on_an_empty_topic(api: Api, topic: str, waiters: Waiters) -> None:
    """API 3: the first record of a topic wakes too."""
    good(api.put(topic), 201)
    waiter = waiters.open(topic)
    assert waiter.is_silent(QUIET_S)
    good(api.append(topic, 1, 2, 3))
    assert payloads(good(waiter.receive())) == [1, 2, 3]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_wakes(api: Api, topic: str, waiters: Waiters, durability: str) -> None:
    """API 0.10: records of every class are delivered live."""
    good(api.put(topic, {"durability": durability}), 201)
    waiter = waiters.open(topic)
    assert waiter.is_silent(0.05)
    good(api.append(topic, "live"))
    assert payloads(good(waiter.receive())) == ["live"]


def test_one_write_wakes_all_its_waiters(api: Api, topic: str, waiters: Waiters) -> None:
    """API 3: twenty waiters on whichever workers accepted them, one write, twenty answers."""
    good(api.put(topic), 201)
    opened = [waiters.open(topic) for _ in range(20)]
    assert all(waiter.is_silent(0.02) for waiter in opened)
    good(api.append(topic, "all"))
    written = time.monotonic()
    pages = [good(waiter.receive()) for waiter in opened]
    assert time.monotonic() - written < 2 * WAKE_S
    assert [payloads(page) for page in pages] == [["all"]] * 20


def test_a_write_to_another_topic_wakes_nobody(api: Api, topic: str, waiters: Waiters) -> None:
    """API 3: a waiter waits for its own topic."""
    good(api.put(topic), 201)
    waiter = waiters.open(topic)
    good(api.append(f"{topic}-other", 1), 201)
    good(api.delete(f"{topic}-other"))
    assert waiter.is_silent(QUIET_S)
    good(api.append(topic, "mine"))
    assert payloads(good(waiter.receive())) == ["mine"]


def test_available_records_are_not_waited_for(api: Api, topic: str) -> None:
    """API 3: it blocks only if nothing is available; a huge wait_ms is clamped, not refused."""
    good(api.append(topic, 1), 201)
    started = time.monotonic()
    assert payloads(good(api.diff(topic, wait_ms=2**32 - 1))) == [1]
    assert time.monotonic() - started < WAKE_S


def test_a_huge_wait_still_waits(api: Api, topic: str, waiters: Waiters) -> None:
    """API 3: wait_ms over 30000 is clamped, so the request blocks and then wakes."""
    good(api.put(topic), 201)
    waiter = waiters.open(topic, wait_ms=2**32 - 1)
    assert waiter.is_silent(QUIET_S)
    good(api.append(topic, 1))
    assert payloads(good(waiter.receive())) == [1]


def test_no_wait_answers_at_once(api: Api, topic: str) -> None:
    """API 3: wait_ms defaults to 0."""
    good(api.put(topic), 201)
    started = time.monotonic()
    assert good(api.diff(topic))["records"] == []
    assert time.monotonic() - started < WAKE_S


def test_a_wait_ends_after_its_time(api: Api, topic: str) -> None:
    """API 3: with nothing new the answer is an empty page after wait_ms."""
    good(api.append(topic, 1), 201)
    started = time.monotonic()
    page = good(api.diff(topic, 1, wait_ms=300))
    assert 0.28 <= time.monotonic() - started < 1.5
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["tombstone"]) == (1, True, None)


def test_deleting_the_topic_wakes_its_waiters(api: Api, topic: str, waiters: Waiters) -> None:
    """Spec 3: a long-poll on a deleted topic answers 404 at once."""
    good(api.put(topic), 201)
    opened = [waiters.open(topic) for _ in range(4)]
    assert all(waiter.is_silent(0.05) for waiter in opened)
    good(api.delete(topic))
    deleted = time.monotonic()
    for waiter in opened:
        refused(waiter.receive(), 404, "topic_not_found")
    assert time.monotonic() - deleted < WAKE_S


def test_a_stale_cursor_is_told_without_waiting(api: Api, topic: str) -> None:
    """DESIGN 5.4: a tombstone is something available."""
    good(api.put(topic), 201)
    started = time.monotonic()
    page = good(api.diff(topic, 9, wait_ms=10_000))
    assert page["tombstone"]["reason"] == "recreated"
    assert time.monotonic() - started < WAKE_S


def test_records_of_the_own_node_do_not_hide_foreign_ones(
    api: Api, topic: str, waiters: Waiters
) -> None:
    """API 4.5: own records move the cursor, a foreign record ends the wait."""
    good(api.put(topic), 201)
    waiter = waiters.open(topic, node="me")
    assert waiter.is_silent(QUIET_S)
    good(api.append(topic, "own", node="me"))
    good(api.append(topic, "foreign", node="you"))
    page = good(waiter.receive())
    if not page["records"]:
        page = good(api.diff(topic, page["next_from_seq"], node="me"))
    assert payloads(page) == ["foreign"]


def test_a_waiter_that_hangs_up_leaves_the_server_well(
    api: Api, topic: str, server: Server
) -> None:
    """API 3: waiting costs nothing once the client is gone."""
    good(api.put(topic), 201)
    body = b'{"wait_ms":20000}'
    for _ in range(10):
        with RawConnection(server.address) as connection:
            connection.send(build_request("POST", f"/v0/topics/{topic}/diff", body))
            assert connection.is_silent(0.01)
    good(api.append(topic, 1))
    assert payloads(good(api.diff(topic))) == [1]


def test_a_waiting_connection_does_not_block_others(api: Api, topic: str, waiters: Waiters) -> None:
    """API 3: reads and writes go on while many requests wait."""
    good(api.put(topic), 201)
    opened = [waiters.open(topic) for _ in range(30)]
    other = f"{topic}-busy"
    for number in range(1, 21):
        assert api.append(other, number).json()["seqs"] == [number]
    assert good(api.diff(other))["head_seq"] == 20
    good(api.append(topic, "end"))
    for waiter in opened:
        assert payloads(good(waiter.receive())) == ["end"]


def test_a_follower_sees_every_record_once(api: Api, topic: str, waiters: Waiters) -> None:
    """API 3: polling with next_from_seq through many wakeups neither skips nor repeats."""
    good(api.put(topic), 201)
    seen: list[int] = []
    cursor = 0
    for number in range(30):
        waiter = waiters.open(topic, cursor)
        good(api.append(topic, number))
        page = good(waiter.receive())
        cursor = page["next_from_seq"]
        seen += payloads(page)
    assert seen == list(range(30))

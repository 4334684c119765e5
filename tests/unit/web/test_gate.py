"""Counting requests in flight, in one process and in several."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from topicsd.model.errors import TopicsError
from topicsd.model.keys import KeyRing
from topicsd.storage.fs import Files
from topicsd.storage.tally import Tally
from topicsd.web.gate import Gate

KEYS = KeyRing.parse("alice,bob")
ALICE, BOB = KEYS


def build(limit: int, columns: int = 1) -> Gate:
    return Gate(Tally(Files(), columns=columns, keys=len(KEYS), series=1), KEYS, limit)


def in_child(action: Callable[[], None]) -> int:
    """Run `action` in a forked process that then waits to be killed; returns its pid."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        action()
        os.write(tell, b".")
        signal.pause()
        os._exit(0)
    os.close(tell)
    assert os.read(ready, 1) == b"."
    os.close(ready)
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_requests_without_keys_are_only_counted() -> None:
    """Per-key limits need a key (API 11)."""
    gate = build(1)
    gate.enter(None)
    gate.enter(None)
    assert gate.in_flight == 2


def test_a_key_at_its_limit_waits_for_its_own_requests() -> None:
    """The limit is the key's; leaving makes room."""
    gate = build(1)
    gate.enter(ALICE)
    gate.enter(BOB)
    with pytest.raises(TopicsError) as caught:
        gate.enter(ALICE)
    assert (
        caught.value.code,
        caught.value.detail,
    ) == ("throttled", {"limit": "max_inflight_per_key", "max": 1})
    gate.leave(ALICE)
    gate.enter(ALICE)
    assert gate.in_flight == 2


def test_a_refusal_takes_no_slot() -> None:
    """A refused request leaves the count as it was."""
    gate = build(1)
    gate.enter(ALICE)
    for _ in range(3):
        with pytest.raises(TopicsError):
            gate.enter(ALICE)
    gate.leave(ALICE)
    gate.enter(ALICE)


def test_zero_means_unlimited() -> None:
    """A limit of 0 is off."""
    gate = build(0)
    for _ in range(5000):
        gate.enter(ALICE)
    assert gate.in_flight == 5000


def test_the_limit_is_shared_by_processes() -> None:
    """What another process has inside counts, until it leaves by being killed."""
    gate = build(2, columns=2)

    def occupy() -> None:
        gate.join(1)
        gate.enter(ALICE)
        gate.enter(ALICE)

    child = in_child(occupy)
    with pytest.raises(TopicsError):
        gate.enter(ALICE)
    gate.enter(BOB)
    kill(child)
    gate.enter(ALICE)
    gate.enter(ALICE)
    with pytest.raises(TopicsError):
        gate.enter(ALICE)


def test_a_replacement_starts_from_nothing() -> None:
    """The process that takes a dead one's column over does not inherit its requests."""
    gate = build(1, columns=2)

    def occupy() -> None:
        gate.join(1)
        gate.enter(ALICE)

    kill(in_child(occupy))
    successor = in_child(lambda: gate.join(1))
    gate.enter(ALICE)
    kill(successor)

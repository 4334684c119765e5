"""Wakeups reach exactly the waiters of the rows that moved."""

from __future__ import annotations

import asyncio

from tests.unit.bridge.fakes import run
from topicsd.bridge.wakeups import Wakeups


def test_move_between_subscribe_and_wait_is_not_missed() -> None:
    """Subscribing first makes a later wait return at once."""

    async def main() -> bool:
        wakeups = Wakeups()
        with wakeups.subscribe([7]) as waiter:
            wakeups.moved([7])
            return await waiter.wait(5)

    assert run(main()) is True


def test_wait_times_out_when_only_other_rows_move() -> None:
    """A row nobody subscribed to wakes nobody."""

    async def main() -> bool:
        wakeups = Wakeups()
        with wakeups.subscribe([1, 2]) as waiter:
            wakeups.moved([3, 4])
            return await waiter.wait(0.01)

    assert run(main()) is False


def test_one_mark_wakes_one_wait() -> None:
    """Moves before a wait count once: the second wait waits again."""

    async def main() -> list[bool]:
        wakeups = Wakeups()
        with wakeups.subscribe([1]) as waiter:
            wakeups.moved([1, 1])
            wakeups.moved([1])
            return [await waiter.wait(0), await waiter.wait(0.01)]

    assert run(main()) == [True, False]


def test_move_during_wait_wakes_it_once() -> None:
    """A wait that was woken leaves no mark behind for the next one."""

    async def main() -> list[bool]:
        wakeups = Wakeups()
        loop = asyncio.get_running_loop()
        with wakeups.subscribe([1]) as waiter:
            loop.call_soon(wakeups.moved, [1])
            return [await waiter.wait(None), await waiter.wait(0.01)]

    assert run(main()) == [True, False]


def test_wake_all_wakes_every_waiter() -> None:
    """Losing the engine or draining ends every wait."""

    async def main() -> list[bool]:
        wakeups = Wakeups()
        waiters = [wakeups.subscribe([row]) for row in range(3)]
        wakeups.wake_all()
        return [await waiter.wait(0) for waiter in waiters]

    assert run(main()) == [True, True, True]


def test_close_leaves_nothing_behind() -> None:
    """A closed waiter, closed twice or by its block, is forgotten."""
    wakeups = Wakeups()
    with wakeups.subscribe([1, 2, 2]) as waiter:
        assert len(wakeups) == 2
    waiter.close()
    wakeups.moved([1, 2])
    assert len(wakeups) == 0


def test_cancelled_wait_keeps_the_subscription_usable() -> None:
    """A cancelled wait neither raises later nor swallows the next move."""

    async def main() -> bool:
        wakeups = Wakeups()
        with wakeups.subscribe([1]) as waiter:
            task = asyncio.ensure_future(waiter.wait(None))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            wakeups.moved([1])
            return await waiter.wait(1)

    assert run(main()) is True

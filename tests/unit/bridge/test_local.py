"""The in-process port batches, releases, refuses and stops like the socket port."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.bridge.fakes import FakeEngine, append, run, until
from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.driver import TICK_S
from topicsd.bridge.local import LocalPort
from topicsd.model.commands import Appended, DeleteTopic
from topicsd.model.errors import TopicsError


class Rig:
    """A started port over a fake engine."""

    def __init__(self) -> None:
        doorbell = Doorbell()
        self.engine = FakeEngine(doorbell.ring)
        self.faults: list[str] = []
        self.port = LocalPort(self.engine, doorbell, lambda: self.faults.append("fault"))
        self.port.start(asyncio.get_running_loop())


def test_submits_of_one_iteration_are_one_batch() -> None:
    """Ten submits without an await between them reach the engine as one apply."""

    async def main() -> list[int]:
        rig = Rig()
        replies = await asyncio.gather(*(rig.port.submit(append("a")) for _ in range(10)))
        assert [reply.first_seq for reply in replies] == list(range(1, 11))
        return rig.engine.batches

    assert run(main()) == [10]


def test_held_reply_comes_after_the_sync() -> None:
    """A held reply is delivered once another thread rang the bell, and not before."""

    async def main() -> Appended:
        rig = Rig()
        future = rig.port.submit(append("held"))
        await until(lambda: rig.engine.batches)
        assert not future.done()
        rig.engine.sync()
        return await future

    assert run(main()).first_seq == 1


def test_refusal_is_raised() -> None:
    """A Failed reply becomes the TopicsError it was."""

    async def main() -> None:
        await Rig().port.submit(DeleteTopic("absent", False))

    with pytest.raises(TopicsError) as caught:
        run(main())
    assert (caught.value.code, caught.value.detail) == ("topic_not_found", {"topic": "absent"})


def test_commit_wakes_the_waiters_of_its_row() -> None:
    """An append moves its row; a chore's move is delivered by the next tick."""

    async def main() -> list[bool]:
        rig = Rig()
        with rig.port.wakeups.subscribe([3]) as waiter:
            await rig.port.submit(append("abc"))
            by_append = await waiter.wait(1)
            rig.engine.move(3)
            return [by_append, await waiter.wait(1)]

    assert run(main()) == [True, True]


def test_the_process_joins_its_own_engine() -> None:
    """Under a number that handlers can name, before their first command is applied."""

    async def main() -> bool:
        rig = Rig()
        await rig.port.submit(append("a"))
        return rig.engine.workers == [rig.port.worker] and rig.port.worker > 0

    assert run(main())


def test_a_tick_comes_early_when_the_engine_asks() -> None:
    """Many ticks in the time of one, and one at its usual time when nobody asks."""

    async def main() -> bool:
        rig = Rig()
        rig.engine.wanted_us = 2000
        await rig.port.submit(append("a"))
        begun = asyncio.get_running_loop().time()
        await until(lambda: rig.engine.ticks >= 5)
        return asyncio.get_running_loop().time() - begun < 4 * TICK_S

    assert run(main())


def test_a_chore_can_answer() -> None:
    """What a tick produces reaches the one who asked."""

    async def main() -> Appended:
        rig = Rig()
        future = rig.port.submit(append("held"))
        await until(lambda: rig.engine.batches)
        rig.engine.late, rig.engine._held = rig.engine._held, []
        return await future

    assert run(main()).first_seq == 1


def test_engine_bug_ends_the_process() -> None:
    """An exception out of apply calls the fault once and nothing is applied afterwards."""

    async def main() -> tuple[list[str], bool, str]:
        rig = Rig()
        rig.port.submit(append("bug"))
        await until(lambda: rig.faults)
        with pytest.raises(TopicsError) as caught:
            await rig.port.submit(append("a"))
        return rig.faults, rig.port.connected, caught.value.code

    assert run(main()) == (["fault"], False, "not_ready")


def test_close_refuses_what_still_waits_and_closes_the_engine() -> None:
    """Nobody waits for ever on a port that was closed."""

    async def main() -> tuple[bool, str]:
        rig = Rig()
        future = rig.port.submit(append("held"))
        await until(lambda: rig.engine.batches)
        await rig.port.close()
        with pytest.raises(TopicsError) as caught:
            await future
        return rig.engine.closed, caught.value.code

    assert run(main()) == (True, "shutting_down")


def test_cancelled_caller_does_not_disturb_the_batch() -> None:
    """A caller that went away is skipped; its neighbours get their replies."""

    async def main() -> int:
        rig = Rig()
        gone, stays = rig.port.submit(append("a")), rig.port.submit(append("a"))
        gone.cancel()
        return (await stays).first_seq

    assert run(main()) == 2

"""When the engine forwards: freely without commands, in its share of the time with them."""

from __future__ import annotations

import asyncio

from tests.unit.bridge.fakes import FakeEngine, append, run, until
from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.driver import PAUSE_FACTOR, Driver

STEP_S = 0.01


def drive(engine: FakeEngine) -> Driver:
    driver = Driver(engine, Doorbell(), lambda replies, moved: None, lambda: None)
    driver.start(asyncio.get_running_loop())
    return driver


def test_a_backlog_is_worked_off_without_pauses() -> None:
    """One command begins it; then steps follow each other."""

    async def main() -> None:
        engine = FakeEngine(lambda: None)
        driver = drive(engine)
        engine.steps_due, engine.step_s = 10, STEP_S
        driver.submit([(0, append("a"))])
        begun = asyncio.get_running_loop().time()
        await until(lambda: engine.steps_due == 0)
        # Only the first step had a command before it.
        assert asyncio.get_running_loop().time() - begun < 5 * PAUSE_FACTOR * STEP_S
        driver.stop()

    run(main())


def test_while_commands_come_steps_keep_their_distance() -> None:
    """The pause is a multiple of the step before it."""

    async def main() -> None:
        engine = FakeEngine(lambda: None)
        driver = drive(engine)
        loop = asyncio.get_running_loop()
        engine.steps_due, engine.step_s = 1000, STEP_S
        begun = loop.time()
        while loop.time() - begun < 4 * PAUSE_FACTOR * STEP_S:
            driver.submit([(0, append("a"))])
            await asyncio.sleep(0)
        assert 1000 - engine.steps_due <= 5
        assert len(engine.batches) > 1000 - engine.steps_due
        driver.stop()

    run(main())


def test_somebody_who_waits_ends_the_pause() -> None:
    """A command that needs copies is not kept waiting for the share."""

    async def main() -> None:
        engine = FakeEngine(lambda: None)
        driver = drive(engine)
        engine.steps_due, engine.step_s = 2, 10 * STEP_S
        driver.submit([(0, append("a"))])
        await until(lambda: engine.steps_due == 1)
        driver.submit([(0, append("a"))])
        await until(lambda: len(engine.batches) == 2)
        begun = asyncio.get_running_loop().time()
        engine.awaited = True
        driver.submit([(0, append("a"))])
        await until(lambda: engine.steps_due == 0)
        assert asyncio.get_running_loop().time() - begun < PAUSE_FACTOR * engine.step_s
        driver.stop()

    run(main())

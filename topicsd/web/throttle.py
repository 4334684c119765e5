"""The elastic throttle of one worker: measures its loop's lag and parks requests under pressure.

Without pressure a request costs one look at `pressed`. The timer that measures is the one
that lets requests in. While anybody is in line a newcomer lines up too: it may not overtake.
A request waits on a plain future, so it may be driven without a task. Tests may dial the lag
instead of causing it (`TOPICS_TEST_LAG_FILE`); all that follows from it stays the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from topicsd.model import errors
from topicsd.model.dial import Dial
from topicsd.rules.pressure import PACE_MAX, Lag, Line, next_pace

if TYPE_CHECKING:
    from topicsd.web.context import Context
    from topicsd.web.gate import Gate
    from topicsd.web.request import Request

TICK_S = 0.05
PARKED_MAX = 10_000

# Resolves to whether the request may go on.
_Turn = asyncio.Future[bool]


class Throttle:
    """One a worker process."""

    def __init__(
        self, gate: Gate, lag_ms: int, wait_ms: int, test_lag_file: Path | None = None
    ) -> None:
        self.pressed = False
        self._gate = gate
        self._enabled = lag_ms > 0
        self._wait_ms = wait_ms
        self._lag = Lag(lag_ms)
        self._test_lag_ms = None if test_lag_file is None else Dial(test_lag_file)
        self._line: Line[_Turn] = Line(wait_ms)
        self._pace = PACE_MAX
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from now on, unless the throttle is switched off."""
        if self._enabled and self._loop is None:
            self._loop = loop
            self._next_tick(loop)

    async def wait(self, request: Request, priority: int, *, patient: bool = False) -> None:
        """Stand in line; raises `throttled` when that takes too long, or `shutting_down`."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        admitted = False
        turn = self.line_up(priority, patient=patient)
        if turn is not None:
            try:
                admitted = await turn
            finally:
                self._line.leave(turn)
        request.throttle_wait_us = int((loop.time() - since) * 1_000_000)
        if not admitted and self._gate.draining:
            raise errors.shutting_down()
        if not admitted:
            raise errors.under_pressure(self._wait_ms, request.throttle_wait_us / 1000)

    def line_up(self, priority: int, *, patient: bool = False) -> _Turn | None:
        """A place in line, which says in time whether to go on; None when the line is full."""
        if not patient and len(self._line) >= PARKED_MAX:
            return None
        loop = asyncio.get_running_loop()
        turn: _Turn = loop.create_future()
        self._line.park(turn, priority, loop.time() * 1000, patient=patient)
        return turn

    def _next_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + TICK_S
        loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now_ms = loop.time() * 1000
        pressed = self._lag.note(self._late_ms(now_ms, due))
        self._pace = next_pace(self._pace, pressed)
        if self._line:
            for turn in self._take_refused(now_ms):
                _settle(turn, admitted=False)
            for turn in self._line.take(self._pace, now_ms):
                _settle(turn, admitted=True)
        self.pressed = pressed or len(self._line) > 0
        self._next_tick(loop)

    def _take_refused(self, now_ms: float) -> list[_Turn]:
        """Who will not be let in: who waited for too long, and everybody once we stop."""
        if self._gate.draining:
            return self._line.take(len(self._line), now_ms)
        return self._line.expire(now_ms)

    def _late_ms(self, now_ms: float, due: float) -> float:
        return now_ms - due * 1000 if self._test_lag_ms is None else self._test_lag_ms.read()


def _settle(turn: _Turn, *, admitted: bool) -> None:
    if not turn.done():
        turn.set_result(admitted)


async def pass_throttle(
    request: Request, context: Context, topics: list[str], *, patient: bool = False
) -> None:
    """Wait until a request on these topics may go on; the most important one counts."""
    reader = context.reader
    priority = max((reader.effective_priority(topic) for topic in topics), default=0)
    await context.throttle.wait(request, priority, patient=patient)

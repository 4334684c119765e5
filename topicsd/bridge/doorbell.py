"""A bell any thread may ring to have one callback run on the loop.

The engine's sync threads ring when held replies may be released. Rings coalesce: however
many arrive before the loop answers, the loop answers once. The mark is cleared before the
callback runs, so what happened before a ring is always seen by the answer to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Doorbell:
    """Coalesces rings from any thread into calls on one loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: Callable[[], None] | None = None
        self._rung = False

    def ring(self) -> None:
        """Ask for an answer; callable from any thread, also before `attach`."""
        if self._rung:
            return
        self._rung = True
        loop = self._loop
        if loop is not None:
            _call_soon(loop, self._open)

    def attach(self, loop: asyncio.AbstractEventLoop, answer: Callable[[], None]) -> None:
        """Answer rings on `loop` from now on, the ones so far included."""
        self._answer = answer
        self._loop = loop
        # A ring between the two lines above may be scheduled twice, which is harmless.
        if self._rung:
            loop.call_soon(self._open)

    def detach(self) -> None:
        self._loop = self._answer = None

    def _open(self) -> None:
        self._rung = False
        if self._answer is not None:
            self._answer()


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # The loop closed between the ring and here: nobody is left to answer.
        return

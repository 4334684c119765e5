"""How one HTTP process stops: refuse new requests, wake the waiting, let the rest finish.

The first stop signal starts the drain; when it is over Sanic closes the connections. What
a further signal does is the caller's choice: a worker ignores it, because a terminal and
the main process both send one, and a single process ends at once. Handlers are installed
with `signal.signal` and stay: Sanic removes loop handlers before its own clean-up, and a
signal in that moment must not kill a process that is still answering.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

from sanic import Sanic

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What Sanic needs after the drain to close connections and run its own listeners.
CLOSING_MS = 1000
POLL_S = 0.01


class Drain:
    """Stops one Sanic process gracefully."""

    def __init__(self, app: Sanic, drain_timeout_ms: int, again: Callable[[], None]) -> None:
        self._app = app
        self._timeout_s = max(drain_timeout_ms - CLOSING_MS, 0) / 1000
        self._again = again
        self._signalled = False
        self._stopping: asyncio.Task[None] | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the stop signals over from Sanic."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._signalled:
                self._again()
                return
            self._signalled = True
            loop.call_soon_threadsafe(self._begin)

        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, on_signal)

    async def finish(self) -> None:
        """Return when nothing is in flight any more, or when it took too long."""
        gate = self._app.ctx.gate
        gate.draining = True
        self._app.ctx.port.wakeups.wake_all()
        context = getattr(self._app.ctx, "context", None)
        for stream in () if context is None else tuple(context.streams):
            stream.shut_down()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while gate.in_flight and loop.time() < deadline:
            await asyncio.sleep(POLL_S)

    def _begin(self) -> None:
        self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        await self.finish()
        self._app.stop(terminate=False)

"""Runs a coroutine without a task, which costs most of a small request's scheduling.

What such a coroutine awaits must be plain futures; nothing on the way may need a current task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Drive(Generic[Result]):
    """Runs a handler that suspended once, without a task, to its reply."""

    __slots__ = ("_coroutine", "_done", "_future")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Result],
        future: asyncio.Future[Any],
        done: Callable[[Result | None], None],
    ) -> None:
        self._coroutine = coroutine
        self._done = done
        self._wait_for(future)

    def cancel(self) -> None:
        self._future.cancel()

    def _wait_for(self, future: asyncio.Future[Any]) -> None:
        # What a task does with a future its coroutine yields.
        future._asyncio_future_blocking = False
        self._future = future
        future.add_done_callback(self._resume)

    def _resume(self, _: asyncio.Future[Any]) -> None:
        try:
            future = self._coroutine.send(None)
        except StopIteration as stop:
            self._done(stop.value)
        except asyncio.CancelledError:
            self._done(None)
        else:
            self._wait_for(future)

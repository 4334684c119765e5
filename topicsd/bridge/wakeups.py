"""Who waits for which board row, in one process.

The rule that makes a wakeup impossible to miss: subscribe first, then look at the board,
then wait. A row that moves between the look and the wait leaves its mark on the waiter,
and the wait returns at once. A wakeup carries no data: the woken looks at the board again.

A wait suspends on one plain future and needs no task, so that a handler may be driven
without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol


class Listener(Protocol):
    """Somebody to tell that a row moved; must be quick and must not raise."""

    def wake(self) -> None: ...


class Waiter:
    """One subscription to a set of rows; leaving the `with` block ends it."""

    __slots__ = ("_future", "_marked", "_rows", "_wakeups")

    def __init__(self, wakeups: Wakeups, rows: tuple[int, ...]) -> None:
        self._wakeups = wakeups
        self._rows = rows
        self._marked = False
        self._future: asyncio.Future[bool] | None = None

    async def wait(self, timeout_s: float | None) -> bool:
        """Return True once a row moved since the last wait, False after `timeout_s`."""
        if self._marked:
            self._marked = False
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._future = future
        timer = None
        if timeout_s is not None:
            timer = loop.call_later(max(timeout_s, 0.0), _expire, future)
        try:
            return await future
        finally:
            self._future = None
            self._marked = False
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        self._marked = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(True)

    def close(self) -> None:
        """Stop listening; safe to call twice."""
        rows, self._rows = self._rows, ()
        self._wakeups.forget(self, rows)

    def __enter__(self) -> Waiter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Wakeups:
    """The table from row to waiters; a move costs its rows plus the waiters it wakes."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Listener, None]] = {}

    def subscribe(self, rows: Iterable[int]) -> Waiter:
        """Register for `rows`: do this before looking at the board."""
        waiter = Waiter(self, tuple(rows))
        for row in waiter._rows:
            self.listen(row, waiter)
        return waiter

    def listen(self, row: int, listener: Listener) -> None:
        """Wake `listener` whenever `row` moves: do this before looking at the board."""
        self._waiting.setdefault(row, {})[listener] = None

    def moved(self, rows: Iterable[int]) -> None:
        """Wake the waiters of these rows and no others."""
        waiting = self._waiting
        if not waiting:
            return
        for row in rows:
            for waiter in waiting.get(row, ()):
                waiter.wake()

    def wake_all(self) -> None:
        """Wake everybody: the engine was lost or came back, or the server drains."""
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.wake()

    def forget(self, listener: Listener, rows: tuple[int, ...]) -> None:
        for row in rows:
            waiters = self._waiting.get(row)
            if waiters is not None:
                waiters.pop(listener, None)
                if not waiters:
                    del self._waiting[row]

    def __len__(self) -> int:
        """How many rows are waited for."""
        return len(self._waiting)


def _expire(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)

"""Runs an engine on an event loop: the one caller of its methods.

Everything submitted during one loop iteration becomes one `apply`. Held replies are
released when the doorbell rings, chores run every `TICK_S`. After each of the three the
rows that moved are collected and handed out together with the replies, replies first.

An exception out of the engine is a bug and its state can no longer be trusted: it is
logged, nothing more is delivered, and `fault` ends the process so that the next one
recovers from the WAL.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from topicsd.bridge.doorbell import Doorbell
from topicsd.model.commands import Command, Reply

TICK_S = 0.1

Ticket = Any
Replies = list[tuple[Ticket, Reply]]
Deliver = Callable[[Replies, list[int]], None]

_log = logging.getLogger(__name__)


class Drivable(Protocol):
    """The part of `engine.Engine` that is driven."""

    def apply(self, batch: Sequence[tuple[Ticket, Command]]) -> Replies: ...

    def release(self) -> Replies: ...

    def take_moved(self) -> list[int]: ...

    def tick(self) -> Replies: ...

    def close(self) -> None: ...


class Driver:
    """Batches commands into the engine and its answers out of it."""

    def __init__(
        self,
        engine: Drivable,
        doorbell: Doorbell,
        deliver: Deliver,
        fault: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._doorbell = doorbell
        self._deliver = deliver
        self._fault = fault
        self._inbox: list[tuple[Ticket, Command]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._turn_due = False

    @property
    def running(self) -> bool:
        return self._loop is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._doorbell.attach(loop, self._release)
        self._ticking = loop.call_later(TICK_S, self._tick)

    def submit(self, requests: Iterable[tuple[Ticket, Command]]) -> None:
        """Queue commands for the batch of this loop iteration."""
        self._inbox.extend(requests)
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Stop calling the engine; what is still queued is not applied."""
        self._doorbell.detach()
        if self._ticking is not None:
            self._ticking.cancel()
        self._loop = None

    def close(self) -> None:
        """Stop, and close the engine cleanly."""
        self.stop()
        with self._faults():
            self._engine.close()

    def _turn(self) -> None:
        self._turn_due = False
        batch, self._inbox = self._inbox, []
        self._run(partial(self._engine.apply, batch))

    def _release(self) -> None:
        self._run(self._engine.release)

    def _tick(self) -> None:
        self._run(self._engine.tick)
        if self._loop is not None:
            self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _run(self, step: Callable[[], Replies]) -> None:
        """Run one step of the engine and deliver what came of it."""
        if self._loop is None:
            return
        outcome: tuple[Replies, list[int]] = ([], [])
        with self._faults():
            outcome = (step(), self._engine.take_moved())
        replies, moved = outcome
        if replies or moved:
            self._deliver(replies, moved)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            _log.critical("the engine failed and stops; its WAL will be replayed", exc_info=True)
            self.stop()
            self._fault()

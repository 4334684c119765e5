"""Runs an engine on an event loop: the one caller of its methods.

Everything submitted during one loop iteration becomes one `apply`. Held replies are
released when the doorbell rings, chores run every `TICK_S`, or earlier when the engine asks.
After each of the three the rows that moved are collected and handed out together with the
replies, replies first.

Forwarding waits its turn. While commands keep coming it gets a bounded share of the time, in
steps that do more the longer they waited; it gets all of it when there are no commands, and
at once when somebody waits for its result.

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
# Timers are coarser than the engine's clock: one that rings early is not called back at once.
TICK_MIN_S = 0.001
# While commands come, a step of forwarding is followed by this many times its duration without
# one.
PAUSE_FACTOR = 20

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

    def wants_tick_us(self) -> int | None: ...
    @property
    def forwarding(self) -> bool: ...

    @property
    def awaited(self) -> bool: ...

    def forward(self) -> Replies: ...

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
        self._forward_due = False
        self._not_before = 0.0
        self._turned = False
        self._pausing: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        return self._loop is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._doorbell.attach(loop, self._release)
        self._schedule()

    def submit(self, requests: Iterable[tuple[Ticket, Command]]) -> None:
        """Queue commands for the batch of this loop iteration."""
        self._inbox.extend(requests)
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Stop calling the engine; what is still queued is not applied."""
        self._doorbell.detach()
        for timer in (self._ticking, self._pausing):
            if timer is not None:
                timer.cancel()
        self._loop = None

    def close(self) -> None:
        """Stop, and close the engine cleanly."""
        self.stop()
        with self._faults():
            self._engine.close()

    def _turn(self) -> None:
        self._turn_due = False
        self._turned = True
        batch, self._inbox = self._inbox, []
        self._run(partial(self._engine.apply, batch))

    def _release(self) -> None:
        self._run(self._engine.release)

    def _tick(self) -> None:
        self._ticking = None
        self._run(self._engine.tick)

    def _schedule(self) -> None:
        """Arm the next tick: in `TICK_S`, or when the engine wants it before that."""
        if self._loop is None:
            return
        now, wanted_us = self._loop.time(), self._engine.wants_tick_us()
        delay_s = TICK_S if wanted_us is None else min(wanted_us / 1e6, TICK_S)
        if self._ticking is not None:
            if self._ticking.when() <= now + delay_s:
                return
            self._ticking.cancel()
        self._ticking = self._loop.call_later(max(delay_s, TICK_MIN_S), self._tick)

    def _schedule_forward(self) -> None:
        """Forward later: what arrives until then is applied first."""
        if self._loop is None or not self._engine.forwarding:
            return
        if self._pausing is not None and self._engine.awaited:
            self._pausing.cancel()
            self._pausing, self._forward_due = None, False
        if not self._forward_due:
            self._forward_due = True
            # The loop looks at its sockets between the two.
            self._loop.call_soon(self._loop.call_soon, self._forward)

    def _forward(self) -> None:
        self._pausing = None
        if self._loop is None:
            return
        started = self._loop.time()
        if self._turned and started < self._not_before and not self._engine.awaited:
            self._pausing = self._loop.call_at(self._not_before, self._forward)
            return
        self._forward_due = self._turned = False
        self._run(self._engine.forward)
        if self._loop is not None:
            ended = self._loop.time()
            self._not_before = ended + PAUSE_FACTOR * (ended - started)

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
        self._schedule()
        self._schedule_forward()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            _log.critical("the engine failed and stops; its WAL will be replayed", exc_info=True)
            self.stop()
            self._fault()

"""Reads that wait for copies: a destination has what was written to its source before (spec 2.4).

Whoever asks waits for every route on the way to the destination, the farthest first, each up
to where its source was when its turn came. A second at most, and not at all for a route that
is stuck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from topicsd.engine.routes import Route
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import CatchUp, CaughtUp, GetRouter, Reply, RouterFound

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

WAIT_MS_MAX: Final = 1000


class Waiter:
    """One command that waits, and how to answer it."""

    def __init__(
        self, ticket: Ticket, routes: list[Route], deadline_us: int, reply: Callable[[bool], Reply]
    ) -> None:
        self.ticket = ticket
        self.routes = routes
        self.deadline_us = deadline_us
        self.reply = reply
        # Where the first of the routes must get to; None before its turn.
        self.target: int | None = None


class Waiters:
    """Everybody who waits for copies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[Waiter] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(
        self, ticket: Ticket, routes: list[Route], reply: Callable[[bool], Reply]
    ) -> Reply | None:
        """The reply, if it need not wait; None when it comes from `answer`."""
        for route in routes:
            self._engine.forwarder.retry(route)
        deadline_us = self._engine.clock.monotonic_us() + WAIT_MS_MAX * 1000
        waiter = Waiter(ticket, routes, deadline_us, reply)
        done = self._look(waiter)
        if done is not None:
            return reply(done)
        self._waiting.append(waiter)
        return None

    def answer(self) -> list[tuple[Ticket, Reply]]:
        """Replies to those who need not wait any longer."""
        if not self._waiting:
            return []
        looked = [(waiter, self._look(waiter)) for waiter in self._waiting]
        self._waiting = [waiter for waiter, done in looked if done is None]
        return [(waiter.ticket, waiter.reply(done)) for waiter, done in looked if done is not None]

    def _look(self, waiter: Waiter) -> bool | None:
        """Whether the copies are there; None when that is still open."""
        engine = self._engine
        while waiter.routes:
            route = waiter.routes[0]
            source = engine.registry.find(route.source)
            if source is None or engine.routes.by_dest.get(route.dest_id) is not route:
                return False
            if waiter.target is None:
                waiter.target = source.head_seq
            if route.cursor < waiter.target:
                late = waiter.deadline_us <= engine.clock.monotonic_us()
                return False if late or engine.forwarder.is_stuck(route) else None
            del waiter.routes[0]
            waiter.target = None
        return True


def apply_catch_up(
    engine: Engine, batch: Batch, outcome: Outcome, command: CatchUp
) -> Reply | None:
    log = engine.registry.find(command.topic)
    if log is None:
        raise errors.topic_not_found(command.topic)
    return engine.waiters.wait(outcome.ticket, engine.routes.upstream(log.id), CaughtUp)


def apply_get(engine: Engine, batch: Batch, outcome: Outcome, command: GetRouter) -> Reply | None:
    router = engine.routes.by_name.get(command.router)
    if router is None:
        raise errors.router_not_found(command.router)
    route = engine.routes.route_of(router)
    above = [] if route is None else engine.routes.upstream(route.dest_id)
    return engine.waiters.wait(
        outcome.ticket,
        above,
        lambda done: RouterFound(router.name, router.config, router.forwarded),
    )

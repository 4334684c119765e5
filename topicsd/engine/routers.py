"""Routers come, change and go (API 6): the control plane of forwarding.

A router that made copies which no checkpoint has is needed to make them again after a crash.
So a command that would change or remove it stops its copying at once, has a checkpoint taken,
and is applied when that is done. The same goes for what would take its source's records away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from topicsd.engine import topics
from topicsd.engine.commit import THIS_BATCH
from topicsd.engine.connect import attach, detach
from topicsd.engine.held import Need
from topicsd.engine.log import Log
from topicsd.engine.routes import Route, Router
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import (
    Command,
    DeleteRouter,
    ListRouters,
    PutRouter,
    RouterDeleted,
    RouterFound,
    RouterPut,
    RoutersListed,
)
from topicsd.model.errors import TopicsError
from topicsd.model.router import RouterConfig
from topicsd.model.topic import DEFAULT
from topicsd.rules.graph import find_cycle, find_other_source
from topicsd.storage.catalog import DropRouter, SaveRouter

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket


class Parked(NamedTuple):
    """A command that waits for a checkpoint, and the routes that stand still for it."""

    ticket: Ticket
    command: Command
    routes: list[Route]
    checkpoint: int


class Parking:
    """Commands that wait until a checkpoint has the copies of some routes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parked: list[Parked] = []

    def park(self, outcome: Outcome, command: Command, routes: list[Route]) -> bool:
        """Let a command wait, if it has to; it is then applied again."""
        checkpoints = self._engine.checkpoints
        unsaved = [route for route in routes if route.moved_in >= checkpoints.finished]
        if not unsaved:
            return False
        for route in unsaved:
            route.paused += 1
        # The last one begun may have missed what was copied since.
        parked = Parked(outcome.ticket, command, unsaved, checkpoints.started + 1)
        self._parked.append(parked)
        checkpoints.ask()
        self._engine.notify()
        return True

    def take_due(self) -> list[tuple[Ticket, Command]]:
        """Commands whose checkpoint is finished; their routes may go on."""
        if not self._parked:
            return []
        finished = self._engine.checkpoints.finished
        due = [each for each in self._parked if each.checkpoint <= finished]
        self._parked = [each for each in self._parked if each.checkpoint > finished]
        for each in due:
            for route in each.routes:
                route.paused -= 1
                self._engine.forwarder.wake(route)
        return [(each.ticket, each.command) for each in due]


def apply_put(
    engine: Engine, batch: Batch, outcome: Outcome, command: PutRouter
) -> RouterPut | None:
    config, routes = command.config, engine.routes
    router = routes.by_name.get(command.router)
    # Whoever repeats a change is told that it is done: that must not be too early.
    outcome.need.catalog = THIS_BATCH
    if router is not None and router.config == config:
        return RouterPut(False)
    limit = engine.settings.max_routers
    if router is None and limit and len(routes) >= limit:
        raise errors.throttled("max_routers", limit)
    _check_graph(routes.source_of(command.router), config)
    if not command.create_dest and engine.registry.find(config.dest) is None:
        raise errors.topic_not_found(config.dest)
    route = None if router is None else routes.route_of(router)
    if route is not None and engine.parking.park(outcome, command, [route]):
        return None
    source, dest = _open_ends(engine, batch, outcome, config)
    if router is None:
        _create(engine, batch, outcome, command, (source, dest))
        return RouterPut(True)
    _change(engine, batch, outcome, router, (config, source, dest))
    return RouterPut(False)


def _check_graph(source_of: dict[str, str], config: RouterConfig) -> None:
    other = find_other_source(source_of, config.source, config.dest)
    if other is not None:
        raise errors.topic_exists_incompatible(
            config.dest,
            f'topic "{config.dest}" gets its copies from "{other}" already',
            reason="router_dest_fan_in",
            source=other,
        )
    cycle = None if config.allow_cycle else find_cycle(source_of, config.source, config.dest)
    if cycle is not None:
        raise errors.router_cycle(cycle)


def _open_ends(
    engine: Engine, batch: Batch, outcome: Outcome, config: RouterConfig
) -> tuple[Log, Log]:
    """Both topics, created where they are missing; both or none."""
    limit = engine.settings.max_topics
    wanted = [name for name in (config.source, config.dest) if engine.registry.find(name) is None]
    if limit and wanted and engine.registry.count + len(wanted) > limit:
        raise errors.throttled("max_topics", limit)
    created: list[Log] = []
    try:
        for name in wanted:
            created.append(topics.create(engine, batch, outcome, name, DEFAULT))
            batch.note_created(created[-1])
    except TopicsError:
        for log in created:
            topics.uncreate(engine, batch, log)
        outcome.need = Need()
        raise
    source, dest = engine.registry.find(config.source), engine.registry.find(config.dest)
    assert source is not None and dest is not None
    return source, dest


def _create(
    engine: Engine, batch: Batch, outcome: Outcome, command: PutRouter, ends: tuple[Log, Log]
) -> None:
    source, dest = ends
    router = Router(
        engine.routes.next_id(),
        command.router,
        command.config,
        source.id,
        dest.id,
        source.head_seq,
        engine.clock.now_ms(),
    )
    engine.routes.add(router)
    _stage(engine, batch, outcome, router, source.head_seq)


def _stage(engine: Engine, batch: Batch, outcome: Outcome, router: Router, cursor: int) -> None:
    """Send a router to the catalog; it forwards once it is there."""

    def settle() -> None:
        if not router.dropped:
            attach(engine, router, cursor)

    # Beside others on the same way it starts later than they do, with the cursor they have.
    route = engine.routes.by_dest.get(router.dest_id)
    saved = cursor if route is None else route.cursor
    engine.commits.stage_change(batch, outcome, SaveRouter(router.record(saved)), settle)


def _change(
    engine: Engine,
    batch: Batch,
    outcome: Outcome,
    router: Router,
    wanted: tuple[RouterConfig, Log, Log],
) -> None:
    """Take another configuration over; with other ends it starts at the new source's head."""
    config, source, dest = wanted
    route = engine.routes.route_of(router)
    if route is None or (source.id, dest.id) != (router.source_id, router.dest_id):
        detach(engine, router)
        fresh = msgspec.structs.replace(router, config=config, dropped=False)
        fresh.source_id, fresh.dest_id, fresh.start_seq = source.id, dest.id, source.head_seq
        engine.routes.add(fresh)
        _stage(engine, batch, outcome, fresh, source.head_seq)
        return
    # Nothing is copied by rules that a crash would take back.
    route.paused += 1
    router.config = config

    def settle() -> None:
        route.paused -= 1
        engine.routes.find_cycles()
        engine.forwarder.wake(route)

    engine.commits.stage_change(batch, outcome, SaveRouter(router.record(route.cursor)), settle)


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteRouter
) -> RouterDeleted | None:
    router = engine.routes.by_name.get(command.router)
    outcome.need.catalog = THIS_BATCH
    if router is None:
        return RouterDeleted(False)
    route = engine.routes.route_of(router)
    if route is not None and engine.parking.park(outcome, command, [route]):
        return None
    detach(engine, router)
    engine.commits.stage_change(batch, outcome, DropRouter(router.id), lambda: None)
    return RouterDeleted(True)


def apply_list(
    engine: Engine, batch: Batch, outcome: Outcome, command: ListRouters
) -> RoutersListed:
    """One page; here and not from the catalog, which has the totals of the last checkpoint."""
    page: list[RouterFound] = []
    for name in engine.routes.names_from(command.prefix, command.after):
        if len(page) >= command.limit:
            break
        router = engine.routes.by_name[name]
        config = router.config
        if command.source not in (None, config.source) or command.dest not in (None, config.dest):
            continue
        touched = (name, config.source, config.dest)
        if not command.allow or all(each.startswith(command.allow) for each in touched):
            page.append(RouterFound(name, config, router.forwarded))
    return RoutersListed(page)

"""Connects routers to the logs at their ends, and takes them off again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.engine.log import Log
from topicsd.engine.routes import Route, Router

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def remove_of(engine: Engine, log: Log) -> list[str]:
    """Forget the routers from and to a log that is dropped; the catalog does so by itself."""
    gone = [
        router
        for router in engine.routes.by_name.values()
        if log.id in (router.source_id, router.dest_id)
    ]
    for router in gone:
        detach(engine, router)
    engine.forwarder.forget_log(log.id)
    return sorted(router.name for router in gone)


def attach(engine: Engine, router: Router, cursor: int) -> None:
    """Let a router forward, and let readers of its destination know."""
    route = engine.routes.attach(router, cursor)
    for name in (route.source, route.dest):
        log = engine.registry.find(name)
        if log is not None and not log.resident:
            shard = engine.wal.shard_of(log.id)
            engine.forwarder.syncs.note_written(log, shard, engine.wal.shards[shard].written_lsn)
    show_derived(engine, route, derived=True)
    engine.forwarder.wake(route)


def detach(engine: Engine, router: Router) -> None:
    route = engine.routes.remove(router)
    if route is not None:
        engine.forwarder.forget(route)
        show_derived(engine, route, derived=False)


def show_all(engine: Engine) -> None:
    """At start: say of every destination that it is one; no cursor is ahead of its source."""
    for route in engine.routes:
        source = engine.registry.find(route.source)
        assert source is not None, f"a route without a source: {route.source}"
        # A memory-class source may have lost its end.
        route.cursor = min(route.cursor, source.head_seq)
        for router in route.routers:
            router.start_seq = min(router.start_seq, source.head_seq)
        show_derived(engine, route, derived=True)


def show_derived(engine: Engine, route: Route, *, derived: bool) -> None:
    """Say on the board whether a log has copies in it; readers look at it anew."""
    dest = engine.registry.find(route.dest)
    if dest is None or dest.id != route.dest_id or dest.derived == derived or dest.dropped:
        return
    dest.derived = derived
    dest.generation += 1
    engine.board.write(dest.row, dest.to_row())
    engine.moved.add(dest.row)

"""What is routed where, in memory: routers by name, and routes by their ends.

All routers from one source to one destination are one *route*: they share a cursor over the
source, and of each record it passes they make their copies in the order of their ids. So the
copies in a destination are one sequence that depends on nothing but the source, which is
what lets recovery make it again (`engine.rederive`).

A router forwards nothing before the catalog has it. One that goes or changes does so after a
checkpoint has the copies it made (`engine.routers`), because its rules are needed to make
them again until then.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from topicsd.engine.log import Log
from topicsd.model.router import RouterConfig
from topicsd.storage import frame
from topicsd.storage.catalog import CatalogWriter, RouterRecord

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine
    from topicsd.engine.staging import Chunk

_decode_config = msgspec.json.Decoder(RouterConfig).decode


class Router(msgspec.Struct, eq=False):
    """One rule, and how many copies it has made."""

    id: int
    name: str
    config: RouterConfig
    source_id: int
    dest_id: int
    # Source seqs up to here were there before the router.
    start_seq: int
    created_ts: int
    forwarded: int = 0
    dropped: bool = False

    def record(self, cursor: int) -> RouterRecord:
        return RouterRecord(
            self.id,
            self.name,
            self.source_id,
            self.dest_id,
            msgspec.json.encode(self.config).decode(),
            self.start_seq,
            cursor,
            self.forwarded,
            self.created_ts,
        )


class Route(msgspec.Struct, eq=False):
    """All routers between two logs, and how far their copies have come."""

    source_id: int
    source: str
    dest_id: int
    dest: str
    # Source seqs up to here are copied, or need not be.
    cursor: int
    # In the order of their ids.
    routers: list[Router]
    # Whether the destination is upstream of the source, too.
    cyclic: bool = False
    # Commands that wait until nothing is copied any more.
    paused: int = 0
    # The number of the last checkpoint begun when the cursor last moved; -1 if it never has.
    moved_in: int = -1
    # Since when copies wait for a sync; 0 when they do not.
    waits_since_us: int = 0
    backoff_us: int = 0
    # Whether the catalog has yet to hear of a loss that the destination shows.
    trimming: bool = False
    # Source seqs whose copies are in the destination though the cursor is below them, by
    # router; None until somebody has looked.
    seen: dict[int, set[int]] | None = None


class Routes:
    """The tables; changed by `engine.routers` and at start only."""

    def __init__(self, catalog: CatalogWriter) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_dest: dict[int, Route] = {}
        self.by_source: dict[int, list[Route]] = {}
        self._names: list[str] = []
        self._next_id = catalog.next_router_id()
        for record in catalog.list_routers():
            self.add(_router(record))
            self.attach(self.by_name[record.name], record.cursor)

    def next_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Route]:
        return iter(list(self.by_dest.values()))

    def names_from(self, prefix: str, after: str) -> Iterator[str]:
        """Names with that prefix above `after`, in byte order."""
        for name in self._names[bisect_left(self._names, max(prefix, after)) :]:
            if not name.startswith(prefix):
                return
            if name > after:
                yield name

    def source_of(self, without: str) -> dict[str, str]:
        """Which topic each destination gets its copies from, but for one router."""
        return {
            router.config.dest: router.config.source
            for router in self.by_name.values()
            if router.name != without
        }

    def touches(self, log_id: int) -> bool:
        """Whether a log is an end of any route."""
        return log_id in self.by_dest or log_id in self.by_source

    def of_log(self, log_id: int) -> list[Route]:
        """The routes that begin or end at a log."""
        into = self.by_dest.get(log_id)
        return [*self.by_source.get(log_id, ()), *([] if into is None else [into])]

    def route_of(self, router: Router) -> Route | None:
        """The route that a router is part of; None before the catalog has it."""
        route = self.by_dest.get(router.dest_id)
        return route if route is not None and router in route.routers else None

    def upstream(self, dest_id: int) -> list[Route]:
        """The routes on the way to a log, the farthest first; none of them twice."""
        found: list[Route] = []
        route = self.by_dest.get(dest_id)
        while route is not None and route not in found:
            found.append(route)
            route = self.by_dest.get(route.source_id)
        return found[::-1]

    def add(self, router: Router) -> None:
        """Know a router by its name; it forwards nothing yet."""
        self.by_name[router.name] = router
        insort(self._names, router.name)

    def attach(self, router: Router, cursor: int) -> Route:
        """Let a router forward; a new route starts at `cursor`."""
        route = self.by_dest.get(router.dest_id)
        if route is None:
            config = router.config
            route = Route(router.source_id, config.source, router.dest_id, config.dest, cursor, [])
            self.by_dest[router.dest_id] = route
            self.by_source.setdefault(router.source_id, []).append(route)
        route.routers.append(router)
        route.routers.sort(key=lambda each: each.id)
        route.seen = None
        self.find_cycles()
        return route

    def remove(self, router: Router) -> Route | None:
        """Forget a router; return its route when that was the last one of it."""
        router.dropped = True
        if self.by_name.get(router.name) is router:
            del self.by_name[router.name]
            self._names.remove(router.name)
        route = self.route_of(router)
        if route is None:
            return None
        route.routers.remove(router)
        if route.routers:
            return None
        del self.by_dest[route.dest_id]
        self.by_source[route.source_id].remove(route)
        if not self.by_source[route.source_id]:
            del self.by_source[route.source_id]
        self.find_cycles()
        return route

    def states(self, since: int) -> list[tuple[int, int, int]]:
        """What a checkpoint saves: the routers whose route moved since checkpoint `since`."""
        return [
            (router.id, route.cursor, router.forwarded)
            for route in self.by_dest.values()
            if route.moved_in >= since
            for router in route.routers
        ]

    def find_cycles(self) -> None:
        """Note which routes are part of a cycle; without leave for one there is none."""
        if not any(router.config.allow_cycle for router in self.by_name.values()):
            return
        for route in self.by_dest.values():
            above = self.upstream(route.source_id)
            route.cyclic = any(each.source_id == route.dest_id for each in above)


def mark(route: Route, dest: Log, cursor: int, *, trimmed: int = 0) -> list[bytes]:
    """A WAL entry that says how far copies have come, with the destination as it is now."""
    return mark_at(route, dest, cursor, dest.next_seq, trimmed=trimmed)


def mark_at(
    route: Route, dest: Log, cursor: int, next_seq: int, *, trimmed: int = 0
) -> list[bytes]:
    """The same with the destination at another seq."""
    totals = [(router.id, router.forwarded) for router in route.routers]
    return frame.route_parts(
        frame.RouteEntry(
            dest.id, route.source_id, cursor, next_seq, dest.last_write_ts, trimmed, totals
        )
    )


def marks_of(engine: Engine, log: Log, staged: Mapping[Log, Chunk]) -> list[bytes]:
    """Where the copies from and to a log stand: goes into the WAL before its deletes.

    What is `staged` for a destination comes after its copies, in this frame or a later one.
    """
    parts: list[bytes] = []
    for route in engine.routes.of_log(log.id):
        dest = log if route.dest_id == log.id else engine.registry.find(route.dest)
        if dest is not None and not dest.resident:
            chunk = staged.get(dest)
            next_seq = dest.next_seq if chunk is None else chunk.first_seq
            parts += mark_at(route, dest, route.cursor, next_seq)
    return parts


def _router(record: RouterRecord) -> Router:
    return Router(
        record.id,
        record.name,
        _decode_config(record.config_json),
        record.source_id,
        record.dest_id,
        record.start_seq,
        record.created_ts,
        record.forwarded_total,
    )

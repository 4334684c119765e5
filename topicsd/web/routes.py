"""The one table of routes, and the way from a path to its row.

A path that is here with another method is 405; a path that is not here is 404. `:topic`
stands for one path segment, percent-decoded; `scope` is what a key needs (API 0.2), `OPEN`
for probes, `PUBLIC` for what never needs a key, `KEYED` for any key. HEAD is served by the GET
row, OPTIONS from the methods of the path. `operation` is what `/docs` says beyond the row
itself; a row without one is listed there all the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from topicsd.web import metrics, probes
from topicsd.web.docs import handlers as docs
from topicsd.web.docs import live_operations as live
from topicsd.web.docs import operations as described
from topicsd.web.docs import queue_operations as queued
from topicsd.web.docs import router_operations as routing
from topicsd.web.route import KEYED, OPEN, PUBLIC, TOKEN, Route
from topicsd.web.v0 import (
    delete,
    diff,
    jobs,
    leases,
    records,
    routers,
    topics,
    watch,
    work,
    write,
    ws,
)
from topicsd.web.v1 import rows as streams
from topicsd.web.v1.reserved import RESERVED_ROUTES

_PATHS_REMEMBERED = 1024

ROUTES: tuple[Route, ...] = (
    Route(
        "PUT",
        "/v0/topics/:topic",
        "admin",
        topics.put_topic,
        "create or configure a topic",
        described.PUT_TOPIC,
    ),
    Route(
        "GET",
        "/v0/topics/:topic",
        "read",
        topics.get_topic,
        "state of a topic",
        described.GET_TOPIC,
    ),
    Route(
        "DELETE",
        "/v0/topics/:topic",
        "delete",
        topics.delete_topic,
        "remove a topic",
        described.DELETE_TOPIC,
    ),
    Route(
        "GET",
        "/v0/topics",
        "read",
        topics.list_topics,
        "list topics, page by page",
        described.LIST_TOPICS,
    ),
    Route(
        "POST",
        "/v0/topics/:topic",
        "write",
        records.post_records,
        "append records",
        described.POST_RECORDS,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/diff",
        "read",
        diff.post_diff,
        "read records after a cursor",
        described.POST_DIFF,
    ),
    Route(
        "GET",
        "/v0/topics/:topic/diff",
        "read",
        diff.get_diff,
        "read records after a cursor, with query parameters",
        described.GET_DIFF,
    ),
    Route(
        "POST",
        "/v0/write",
        "write",
        write.post_write,
        "append to several topics, atomically",
        described.POST_WRITE,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/delete",
        "delete",
        delete.post_delete,
        "delete records by seq or tag",
        described.POST_DELETE,
    ),
    Route(
        "PUT",
        "/v0/routers/:router",
        "admin",
        routers.put_router,
        "create or configure a router",
        routing.PUT_ROUTER,
    ),
    Route(
        "GET",
        "/v0/routers/:router",
        "read",
        routers.get_router,
        "one router and what it has forwarded",
        routing.GET_ROUTER,
    ),
    Route(
        "DELETE",
        "/v0/routers/:router",
        "delete",
        routers.delete_router,
        "remove a router",
        routing.DELETE_ROUTER,
    ),
    Route(
        "GET",
        "/v0/routers",
        "read",
        routers.list_routers,
        "list routers, page by page",
        routing.LIST_ROUTERS,
    ),
    Route(
        "POST",
        "/v0/watch",
        "read",
        watch.post_watch,
        "create a watch over many topics",
        live.POST_WATCH,
    ),
    Route(
        "GET",
        "/v0/watch/:wid",
        "read",
        watch.get_watch,
        "open the event stream of a watch",
        live.GET_WATCH,
        token_in_query=True,
    ),
    Route(
        "GET",
        "/v0/ws",
        KEYED,
        ws.get_ws,
        "subscribe and publish over a WebSocket",
        live.GET_WS,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/claim",
        "read+write",
        leases.post_claim,
        "lease jobs to a worker",
        queued.POST_CLAIM,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/ack",
        "write",
        leases.post_ack,
        "complete jobs",
        queued.POST_ACK,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/nack",
        "write",
        leases.post_nack,
        "give jobs back",
        queued.POST_NACK,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/extend",
        "write",
        leases.post_extend,
        "prolong leases",
        queued.POST_EXTEND,
    ),
    Route(
        "GET",
        "/v0/topics/:topic/work",
        "read+write",
        work.get_work,
        "open a stream of jobs",
        queued.GET_WORK,
        token_in_query=True,
    ),
    Route(
        "GET",
        "/v0/topics/:topic/jobs",
        "read",
        jobs.get_jobs,
        "list the jobs of a queue by state",
        queued.GET_JOBS,
    ),
    Route(
        "POST",
        "/v0/topics/:topic/redrive",
        "write",
        jobs.post_redrive,
        "move dead jobs back into their queue",
        queued.POST_REDRIVE,
    ),
    Route("GET", "/v0/health", OPEN, probes.get_health, "liveness", described.HEALTH),
    Route(
        "GET",
        "/healthz",
        OPEN,
        probes.get_health,
        "liveness, for load balancers",
        described.HEALTH,
    ),
    Route("GET", "/v0/ready", OPEN, probes.get_ready, "readiness", described.READY),
    Route(
        "GET",
        "/readyz",
        OPEN,
        probes.get_ready,
        "readiness, for load balancers",
        described.READY,
    ),
    Route(
        "GET",
        "/v0/metrics",
        "read",
        metrics.get_metrics(lambda: ROUTES),
        "what the server is and does, as Prometheus text or JSON",
        described.GET_METRICS,
        always=True,
    ),
    Route(
        "GET",
        "/docs",
        PUBLIC,
        docs.get_page(lambda: ROUTES),
        "this API, for people",
        described.PAGE,
    ),
    Route(
        "GET",
        "/docs/openapi.json",
        PUBLIC,
        docs.get_document(lambda: ROUTES),
        "this API, as an OpenAPI 3.1 document",
        described.DOCUMENT,
    ),
    Route("GET", "/health", OPEN, probes.get_health, "liveness probe", described.HEALTH),
    *streams.ROWS,
    *RESERVED_ROUTES,
)


# Paths that are not the door of streams, nor its refusals.
_OWN_PATHS = ("/v0", "/docs", "/healthz", "/readyz", "/console")
# First segments that are no streams.
RESERVED = frozenset(
    {"v0", "v1", "console", "docs", "healthz", "readyz", "health", "favicon.ico", "__ds", ""}
)


class Path(NamedTuple):
    """A known path: its rows by method, and what stands for its variables."""

    methods: dict[str, Route]
    params: dict[str, str]

    @property
    def name(self) -> str | None:
        """The topic or router that the path names."""
        return self.params.get("topic", self.params.get("stream", self.router))

    @property
    def router(self) -> str | None:
        """The router that the path names."""
        return self.params.get("router")

    @property
    def stream(self) -> str | None:
        """The stream that the path names."""
        return self.params.get("stream")

    def find_route(self, method: str) -> Route | None:
        return self.methods.get("GET" if method == "HEAD" else method)

    @property
    def is_open(self) -> bool:
        return all(route.scope == OPEN for route in self.methods.values())

    @property
    def is_public(self) -> bool:
        return all(route.scope in (PUBLIC, TOKEN) for route in self.methods.values())

    @property
    def allowed(self) -> list[str]:
        """The methods of this path, for `Allow`."""
        head = ["HEAD"] if "GET" in self.methods else []
        return sorted([*self.methods, *head, "OPTIONS"])


def _build_patterns() -> dict[tuple[str, ...], dict[str, Route]]:
    patterns: dict[tuple[str, ...], dict[str, Route]] = {}
    for route in ROUTES:
        patterns.setdefault(tuple(route.path.split("/")), {})[route.method] = route
    return patterns


_PATTERNS = _build_patterns()
# The number under which a row's requests are counted; 0 is for what matches no row.
SERIES = {(route.method, route.path): number for number, route in enumerate(ROUTES, start=1)}


def is_stream_door(path: str) -> bool:
    """Whether browsers of any origin may read what is answered here."""
    return not path.startswith(_OWN_PATHS)


@lru_cache(_PATHS_REMEMBERED)
def find_path(path: str) -> Path | None:
    """Look a percent-encoded path up in the table."""
    # Bytes that are not UTF-8 become U+FFFD, which no literal segment and no name contains.
    segments = tuple(unquote(segment, errors="replace") for segment in path.split("/"))
    for pattern, methods in _PATTERNS.items():
        if len(pattern) == len(segments) and ":stream" not in pattern:
            params = _match(pattern, segments)
            if params is not None:
                return Path(methods, params)
    return _find_stream(segments)


def _find_stream(segments: tuple[str, ...]) -> Path | None:
    """A stream's path: its name may have any number of segments."""
    if segments[:3] == ("", "v1", "stream") and len(segments) > 3:
        rest = segments[3:]
        if rest[0] == "__ds":
            return None
        if len(rest) > 2 and rest[-2] == "pk":
            params = {"stream": "/".join(rest[:-2]), "key": rest[-1]}
            return Path(_PATTERNS["", "v1", "stream", ":stream", "pk", ":key"], params)
        return Path(_PATTERNS["", "v1", "stream", ":stream"], {"stream": "/".join(rest)})
    if len(segments) > 1 and segments[1] not in RESERVED:
        return Path(_PATTERNS["", ":stream"], {"stream": "/".join(segments[1:])})
    return None


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    """What stands for the variables of a path; None when it does not match."""
    params = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith(":") and found:
            params[expected[1:]] = found
        elif expected != found:
            return None
    return params

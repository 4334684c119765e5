"""The one table of routes, and the way from a path to its row.

A path that is here with another method is 405; a path that is not here is 404. `:topic`
stands for one path segment, percent-decoded; `scope` is what a key needs (API 0.2), `OPEN`
for probes. HEAD is served by the GET row, OPTIONS from the methods of the path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from topicsd.web import probes
from topicsd.web.context import Context
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.v0 import diff, records, topics

Handler = Callable[[Request, Context], Awaitable[Reply]]

OPEN = "open"
_PATHS_REMEMBERED = 1024


class Route(NamedTuple):
    """One row: what a method on a path does and what it takes to be allowed."""

    method: str
    path: str
    scope: str
    handler: Handler
    summary: str


ROUTES: tuple[Route, ...] = (
    Route("PUT", "/v0/topics/:topic", "admin", topics.put_topic, "create or configure a topic"),
    Route("GET", "/v0/topics/:topic", "read", topics.get_topic, "state of a topic"),
    Route("DELETE", "/v0/topics/:topic", "delete", topics.delete_topic, "remove a topic"),
    Route("GET", "/v0/topics", "read", topics.list_topics, "list topics, page by page"),
    Route("POST", "/v0/topics/:topic", "write", records.post_records, "append records"),
    Route("POST", "/v0/topics/:topic/diff", "read", diff.post_diff, "read records after a cursor"),
    Route("GET", "/v0/health", OPEN, probes.get_health, "liveness"),
    Route("GET", "/healthz", OPEN, probes.get_health, "liveness, for load balancers"),
    Route("GET", "/v0/ready", OPEN, probes.get_ready, "readiness"),
    Route("GET", "/readyz", OPEN, probes.get_ready, "readiness, for load balancers"),
)


class Path(NamedTuple):
    """A known path: its rows by method, and the name in it, if it has one."""

    methods: dict[str, Route]
    name: str | None

    def find_route(self, method: str) -> Route | None:
        return self.methods.get("GET" if method == "HEAD" else method)

    @property
    def is_open(self) -> bool:
        return all(route.scope == OPEN for route in self.methods.values())

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


@lru_cache(_PATHS_REMEMBERED)
def find_path(path: str) -> Path | None:
    """Look a percent-encoded path up in the table."""
    # Bytes that are not UTF-8 become U+FFFD, which no literal segment and no name contains.
    segments = tuple(unquote(segment, errors="replace") for segment in path.split("/"))
    for pattern, methods in _PATTERNS.items():
        if len(pattern) == len(segments):
            name = _match(pattern, segments)
            if name is not None:
                return Path(methods, name or None)
    return None


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> str | None:
    """The name in a matching path, "" when the path has none; None when it does not match."""
    name = ""
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith(":") and found:
            name = found
        elif expected != found:
            return None
    return name

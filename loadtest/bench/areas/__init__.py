"""The areas of the bench: each module measures one promise and yields its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loadtest.bench.areas import (
    appends,
    commits,
    deletes,
    fanout,
    length,
    queues,
    reads,
    recovery,
    routers,
    topics,
)
from loadtest.bench.plan import Bench
from loadtest.bench.report import Row

AREAS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "appends": appends.run,
    "reads": reads.run,
    "commits": commits.run,
    "recovery": recovery.run,
    "length": length.run,
    "topics": topics.run,
    "deletes": deletes.run,
    "fanout": fanout.run,
    "queues": queues.run,
    "routers": routers.run,
}

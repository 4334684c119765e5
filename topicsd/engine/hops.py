"""How often records went around a cycle of routers (DESIGN 8.5), so that it ends.

The count is never part of a record: it is kept here, for the seqs of a log that were copied
into it along a cycle, until every route from that log has passed them. A restart forgets it;
what is on its way then starts from 0 and still ends, `HOPS_MAX` copies later.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

from topicsd.engine.routes import Routes

HOPS_MAX: Final = 8
_FOR_EVER: Final = 2**63


class _Run(NamedTuple):
    last_seq: int
    first_seq: int
    hops: int


class Hops:
    """Runs of seqs with the same count, by log."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._runs: dict[int, list[_Run]] = {}

    def at(self, log_id: int, seq: int) -> tuple[int, int]:
        """The count of a seq, and the last seq behind it that has the same."""
        runs = self._runs.get(log_id)
        if not runs:
            return 0, _FOR_EVER
        place = bisect_left(runs, (seq,))
        if place == len(runs):
            return 0, _FOR_EVER
        run = runs[place]
        return (run.hops, run.last_seq) if run.first_seq <= seq else (0, run.first_seq - 1)

    def note(self, log_id: int, first_seq: int, last_seq: int, hops: int) -> None:
        """These seqs are copies, made for the `hops`-th time; called in the order of seqs."""
        routes = self._routes.by_source.get(log_id, [])
        if not routes:
            return
        passed = min(route.cursor for route in routes)
        runs = [run for run in self._runs.get(log_id, []) if run.last_seq > passed]
        if runs and runs[-1].hops == hops and runs[-1].last_seq == first_seq - 1:
            first_seq = runs.pop().first_seq
        self._runs[log_id] = [*runs, _Run(last_seq, first_seq, hops)]

    def forget(self, log_id: int) -> None:
        self._runs.pop(log_id, None)

"""Writes over HTTP against a stock Sanic handler: one record, and a hundred, at a time."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.bench import baseline, payload
from loadtest.bench.load import Side, alternate
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, relative, statement
from loadtest.bench.server import BaselineServer, TopicsServer

AREA = "appends"
CONNECTIONS = 32
GOAL = Goal(">=", 0.6)


def run(bench: Bench) -> Iterator[Row]:
    with (
        BaselineServer(bench.home / "baseline") as stock,
        TopicsServer(bench.home / "server") as server,
    ):
        for count, label in ((1, "one record of 256 B"), (100, "batch of 100")):
            yield from _compare(bench, (stock, server), count, label)


def _compare(
    bench: Bench, servers: tuple[BaselineServer, TopicsServer], count: int, label: str
) -> Iterator[Row]:
    stock, server = servers
    topic = f"appends-{count}"
    server.create(topic, durability="disk")
    stock_requests = [payload.post(baseline.PATH, payload.envelope(count, at)) for at in range(16)]
    theirs, ours = alternate(
        bench.sizes.rounds,
        bench.plan(stock, CONNECTIONS, stock_requests),
        bench.plan(server, CONNECTIONS, payload.append_requests(topic, count)),
        between=stock.empty,
    )
    yield relative(AREA, f"{label}, disk", ours.rate, "writes/s", baseline=theirs.rate, goal=GOAL)
    if count > 1:
        yield statement(AREA, f"{label}, disk", ours.rate * count, "records/s")
    yield from _latencies(label, ours, theirs)


def _latencies(label: str, ours: Side, theirs: Side) -> Iterator[Row]:
    for percent in (50, 99):
        yield relative(
            AREA,
            f"{label}, p{percent}",
            ours.latency_ms(percent),
            "ms",
            baseline=theirs.latency_ms(percent),
        )

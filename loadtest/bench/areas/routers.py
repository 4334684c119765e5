"""Routers: what a fan-out of ten costs the writer of its source, and how soon copies are there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from time import perf_counter, sleep

from loadtest.bench import payload
from loadtest.bench.load import alternate
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, relative, statement
from loadtest.bench.server import BenchError, TopicsServer

AREA = "routers"
DESTS = 10
CONNECTIONS = 32
# Writes one after the other, for what they put into the log and for the lag.
SINGLE_WRITES = 500
DRAIN_TIMEOUT_S = 120.0

OF_UNROUTED = Goal(">=", 0.9)
NO_MORE = Goal("<=", 1.0)


def run(bench: Bench) -> Iterator[Row]:
    with TopicsServer(bench.home / "server") as server:
        for topic in ("plain", "routed", "lone", "split"):
            server.create(topic, durability="disk")
        for source in ("routed", "split"):
            for number in range(DESTS):
                body = {"source": source, "dest": f"{source}-{number}"}
                server.ask("PUT", f"/v0/routers/{source}-{number}", body)
        for count, label in ((1, "one record of 256 B"), (100, "batch of 100")):
            yield from _rates(bench, server, count, label)
        yield from _log_bytes(server)
        yield from _lag(server)


def _rates(bench: Bench, server: TopicsServer, count: int, label: str) -> Iterator[Row]:
    drained_s: list[float] = []
    unrouted, routed = alternate(
        bench.sizes.rounds,
        bench.plan(server, CONNECTIONS, payload.append_requests("plain", count)),
        bench.plan(server, CONNECTIONS, payload.append_requests("routed", count)),
        # Copies of a round are gigabytes: what the kernel still has to write of them would be
        # measured in the next turn, whichever side that is.
        before=os.sync,
        between=lambda: drained_s.append(_drain(server, "routed")),
    )
    name = f"{label}, routed to {DESTS} topics"
    yield relative(AREA, name, routed.rate, "writes/s", baseline=unrouted.rate, goal=OF_UNROUTED)
    drained_s.append(_drain(server, "routed"))
    yield statement(AREA, f"{name}, copies complete after a round", max(drained_s) * 1000, "ms")


def _drain(server: TopicsServer, source: str) -> float:
    """Wait until every copy is made; the seconds it took."""
    begun_s = perf_counter()
    head = server.ask("GET", f"/v0/topics/{source}")["head_seq"]
    for number in range(DESTS):
        path = f"/v0/topics/{source}-{number}"
        while server.ask("GET", path)["head_seq"] < head:
            if perf_counter() - begun_s > DRAIN_TIMEOUT_S:
                raise BenchError(f"copies are missing after {DRAIN_TIMEOUT_S:.0f} s")
            sleep(0.001)
    return perf_counter() - begun_s


def _log_bytes(server: TopicsServer) -> Iterator[Row]:
    """What single writes put into the write-ahead log, alone and with their copies."""
    alone, split = (_count_log(server, topic) for topic in ("lone", "split"))
    for name, unit, place in (("log bytes", "bytes", 0), ("log frames", "frames", 1)):
        yield relative(
            AREA,
            f"{name} of a write routed to {DESTS} topics",
            split[place],
            unit,
            baseline=alone[place],
            goal=NO_MORE,
        )


def _count_log(server: TopicsServer, topic: str) -> tuple[float, float]:
    before = _log(server)
    for _ in range(SINGLE_WRITES):
        server.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": "x" * 200}]})
    if topic == "split":
        _drain(server, topic)
    after = _log(server)
    return (after[0] - before[0]) / SINGLE_WRITES, (after[1] - before[1]) / SINGLE_WRITES


def _log(server: TopicsServer) -> tuple[int, int]:
    found = server.ask("GET", "/v0/metrics")["wal"]
    return found["bytes_written"], found["frames"]


def _lag(server: TopicsServer) -> Iterator[Row]:
    """From the answer to a write until the last destination answers with the copy."""
    path = f"/v0/topics/split-{DESTS - 1}/diff"
    seen = server.ask("GET", f"/v0/topics/split-{DESTS - 1}")["head_seq"]
    lags_ms: list[float] = []
    for _ in range(SINGLE_WRITES):
        server.ask("POST", "/v0/topics/split", {"records": [{"data": 1}]})
        begun_s = perf_counter()
        body = {"from_seq": seen, "wait_ms": 5000}
        seen = server.ask("POST", path, body)["next_from_seq"]
        lags_ms.append((perf_counter() - begun_s) * 1000)
    lags_ms.sort()
    for percent in (50, 99):
        value = lags_ms[len(lags_ms) * percent // 100]
        yield statement(AREA, f"write answered to copy read, p{percent}", value, "ms")

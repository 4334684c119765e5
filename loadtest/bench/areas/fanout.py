"""Event streams: one record to a thousand of them, soon, and what the quiet ones cost.

The comparison with a plain broadcast is in step: the next record is written when everybody
has the last one. So each delivery is one frame and one write to a socket on both sides;
written faster, records would share frames, and the broadcast has nothing to compare with that.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.bench import broadcast, payload
from loadtest.bench.audience import Audience, Listening, take_turns
from loadtest.bench.client import Cycle, Numbered
from loadtest.bench.listener import Plan, Round
from loadtest.bench.load import alternate
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute, relative, statement
from loadtest.bench.server import BenchError, BroadcastServer, TopicsServer

AREA = "fanout"
WORKERS = 2
NEAR_SUBSCRIBERS = 100
NEAR_RATE = 200.0
WIDE_SESSIONS = 100
WIDE_TOPICS = 256
CONNECTIONS = 32
CAUGHT_UP = b"event: caught-up"

OF_BROADCAST = Goal(">=", 0.7)
SOON_MS = Goal("<", 5.0)
BESIDE_IDLE = Goal(">=", 0.9)
OF_ONE_TOPIC = Goal(">=", 0.8)


def run(bench: Bench) -> Iterator[Row]:
    _raise_file_limit(bench.sizes.idle_streams)
    with TopicsServer(bench.home / "server", workers=WORKERS) as server:
        with BroadcastServer(bench.home / "broadcast") as stock:
            yield from _in_step(bench, stock, server)
        with BroadcastServer(bench.home / "broadcast-near") as stock:
            yield from _delay(bench, stock, server)
        yield from _wide(bench, server)
    yield from _idle(bench, bench.home)


def _raise_file_limit(streams: int) -> None:
    """A stream is a descriptor on both ends; servers and audiences inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < streams + 1000:
        raise BenchError(f"{streams} streams need more open files than the limit of {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _plan(server: TopicsServer, subscribers: int, topics: list[str]) -> Plan:
    """Sessions that follow `topics`, which are made here, and writes to the first of them."""
    for topic in topics:
        server.create(topic, durability="disk")
    body = json.dumps({"topics": {topic: {} for topic in topics}}).encode()
    return Plan(
        port=server.port,
        subscribers=subscribers,
        opened=CAUGHT_UP,
        opened_times=len(topics),
        watch=payload.post("/v0/watch", body),
        writes=Cycle(payload.append_requests(topics[0], 1)),
    )


def _broadcast_plan(server: BroadcastServer, subscribers: int) -> Plan:
    before, after = payload.numbered_post(broadcast.BROADCAST_PATH, b"")
    return Plan(
        port=server.port,
        subscribers=subscribers,
        opened=broadcast.OPENED,
        stream_path=broadcast.STREAM_PATH,
        writes=Numbered(before, after, 2**62),
    )


def _compare(bench: Bench, rate: float | None, *audiences: Audience) -> tuple[Listening, ...]:
    take_turns(1, Round(bench.sizes.warmup_s, rate), *audiences)
    return take_turns(bench.sizes.rounds, Round(bench.sizes.measure_s, rate), *audiences)


def _in_step(bench: Bench, stock: BroadcastServer, server: TopicsServer) -> Iterator[Row]:
    count = bench.sizes.subscribers
    with (
        Audience(stock, _broadcast_plan(stock, count)) as crowd,
        Audience(server, _plan(server, count, ["fanout"])) as watchers,
    ):
        theirs, ours = _compare(bench, None, crowd, watchers)
    name = f"1 writer, {count:,} streams"
    yield relative(AREA, name, ours.rate, "deliveries/s", baseline=theirs.rate, goal=OF_BROADCAST)
    for what, unit, here, there in (
        ("write to delivery, p50", "ms", ours.p50_ms, theirs.p50_ms),
        ("write to delivery, p99", "ms", ours.p99_ms, theirs.p99_ms),
        ("server CPU a delivery", "us", ours.cpu_us, theirs.cpu_us),
        ("CPU of the audience", "cores", ours.client_load, theirs.client_load),
    ):
        yield relative(AREA, f"{name}, {what}", here, unit, baseline=there)


def _delay(bench: Bench, stock: BroadcastServer, server: TopicsServer) -> Iterator[Row]:
    with (
        Audience(stock, _broadcast_plan(stock, NEAR_SUBSCRIBERS)) as crowd,
        Audience(server, _plan(server, NEAR_SUBSCRIBERS, ["near"])) as watchers,
    ):
        theirs, ours = _compare(bench, NEAR_RATE, crowd, watchers)
    name = f"{NEAR_RATE:.0f} appends/s, {NEAR_SUBSCRIBERS} streams, append to delivery"
    yield absolute(AREA, f"{name}, p50", ours.p50_ms, "ms", goal=SOON_MS)
    for label, here, there in (
        ("p50", ours.p50_ms, theirs.p50_ms),
        ("p99", ours.p99_ms, theirs.p99_ms),
    ):
        yield relative(AREA, f"{name}, {label}, against a broadcast", here, "ms", baseline=there)


def _wide(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    """The same deliveries to sessions that follow 255 quiet topics besides."""
    quiet = [f"quiet-{number}" for number in range(WIDE_TOPICS - 1)]
    with (
        Audience(server, _plan(server, WIDE_SESSIONS, ["narrow"])) as narrow,
        Audience(server, _plan(server, WIDE_SESSIONS, ["wide", *quiet])) as wide,
    ):
        one, many = _compare(bench, None, narrow, wide)
    name = f"{WIDE_SESSIONS} sessions over {WIDE_TOPICS} topics, one written"
    for what, value, baseline, unit, goal in (
        ("against over 1", many.rate, one.rate, "deliveries/s", OF_ONE_TOPIC),
        ("server CPU a delivery", many.cpu_us, one.cpu_us, "us", None),
    ):
        yield relative(AREA, f"{name}, {what}", value, unit, baseline=baseline, goal=goal)


@contextmanager
def _two_servers(home: Path) -> Iterator[tuple[TopicsServer, TopicsServer]]:
    with (
        TopicsServer(home / "lonely", workers=WORKERS) as lonely,
        TopicsServer(home / "watched", workers=WORKERS) as watched,
    ):
        for server in (lonely, watched):
            server.create("busy", durability="disk")
        yield lonely, watched


def _idle(bench: Bench, home: Path) -> Iterator[Row]:
    """Streams on which nothing happens: their memory, and what others notice of them."""
    count = bench.sizes.idle_streams
    requests = payload.append_requests("busy", 1)
    with _two_servers(home) as (lonely, watched):
        # Both have served before anything is compared: first requests allocate for good.
        plans = [bench.plan(server, CONNECTIONS, requests) for server in (lonely, watched)]
        alternate(1, *plans)
        before = watched.rss_anon_bytes()
        with Audience(watched, _plan(watched, count, ["calm"])) as watchers:
            grown = (watched.rss_anon_bytes() - before) / count / 1000
            yield statement(AREA, f"{count:,} idle streams, RssAnon of each", grown, "kB")
            alone, beside = alternate(bench.sizes.rounds, *plans)
            # A record that reaches all of them: they were open all the time.
            watchers.listen(Round(bench.sizes.warmup_s))
    name = f"appends elsewhere, beside {count:,} idle streams, against none"
    yield relative(AREA, name, beside.rate, "writes/s", baseline=alone.rate, goal=BESIDE_IDLE)

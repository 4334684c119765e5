"""Group commit: what many fsync-class writers gain from sharing syncs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median
from time import perf_counter

from loadtest.bench import payload
from loadtest.bench.driver import Driver, open_driver, settings_for
from loadtest.bench.load import alternate
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, relative, statement
from loadtest.bench.server import TopicsServer
from topicsd.model.commands import Append
from topicsd.model.topic import TopicConfig

AREA = "commits"
WRITERS = 64
FSYNC = TopicConfig(durable=True, durability="fsync")
GROUPED = Goal(">=", 10.0)
OVER_HTTP = Goal(">=", 0.5)
_SYNCS = 500


def run(bench: Bench) -> Iterator[Row]:
    yield _bare_sync(bench)
    with open_driver(settings_for(bench.home / "engine")) as driver:
        shared = [_write("shared")] * WRITERS
        yield _grouped(bench, driver, shared, f"{WRITERS} fsync writers on one topic")
        own = [_write(f"own-{writer}") for writer in range(WRITERS)]
        yield _grouped(bench, driver, own, f"{WRITERS} fsync writers on a topic each")
    with TopicsServer(bench.home / "server") as server:
        yield from _over_http(bench, server)


def _write(topic: str) -> Append:
    return payload.append_command(topic, 1, FSYNC)


def _bare_sync(bench: Bench) -> Row:
    """The disk's own word: 4 KiB written and synced, one after the other."""
    bench.home.mkdir(parents=True, exist_ok=True)
    path = bench.home / "syncs"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, _SYNCS * 4096)
        os.fsync(fd)
        begun_s = perf_counter()
        for at in range(_SYNCS):
            os.pwrite(fd, b"x" * 4096, at * 4096)
            os.fdatasync(fd)
        elapsed_s = perf_counter() - begun_s
    finally:
        os.close(fd)
        path.unlink()
    return statement(AREA, "fdatasync of 4 KiB, mean", elapsed_s / _SYNCS * 1000, "ms")


def _grouped(bench: Bench, driver: Driver, writers: list[Append], name: str) -> Row:
    """Commits a second of all writers, against the first of them alone."""
    driver.keep_outstanding(writers, bench.sizes.warmup_s)
    alone, together = [], []
    for _ in range(bench.sizes.rounds):
        alone.append(driver.keep_outstanding(writers[:1], bench.sizes.measure_s / 2).rate)
        together.append(driver.keep_outstanding(writers, bench.sizes.measure_s / 2).rate)
    return relative(AREA, name, median(together), "commits/s", baseline=median(alone), goal=GROUPED)


def _over_http(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    server.create("disk", durability="disk")
    server.create("fsync", durability="fsync")
    disk, fsync = alternate(
        bench.sizes.rounds,
        bench.plan(server, WRITERS, payload.append_requests("disk", 1)),
        bench.plan(server, WRITERS, payload.append_requests("fsync", 1)),
    )
    name = f"{WRITERS} connections over HTTP, fsync against disk"
    yield relative(AREA, name, fsync.rate, "writes/s", baseline=disk.rate, goal=OVER_HTTP)
    for percent in (50, 99):
        yield relative(
            AREA,
            f"fsync over HTTP, p{percent}",
            fsync.latency_ms(percent),
            "ms",
            baseline=disk.latency_ms(percent),
        )

"""Many small topics: creating, listing, restarting, what an idle one costs, and that their
number slows nothing."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from loadtest.bench import payload
from loadtest.bench.client import Numbered
from loadtest.bench.load import alternate, run_plan
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, relative, statement
from loadtest.bench.server import BenchError, TopicsServer, files_under

AREA = "topics"
RECORDS_EACH = 10
CONNECTIONS = 32
HOT = "hot"
HOT_PAGES = 100
PAGE_RECORDS = 1000
NO_GROWTH = Goal(">=", 0.8)
# A step through the topics that no cache or read-ahead can follow.
STRIDE = 7919


class Cost(NamedTuple):
    """What a server and its data directory occupy."""

    rss_anon_bytes: int
    files: int
    disk_bytes: int

    def per_topic(self, empty: Cost, topics: int) -> tuple[float, float, float]:
        spent = (now - before for now, before in zip(self, empty, strict=True))
        ram, files, disk = (amount / topics for amount in spent)
        return ram, files, disk


def run(bench: Bench) -> Iterator[Row]:
    empty_home, home = bench.home / "empty", bench.home / "many"
    _, empty = _start_and_stop(empty_home)
    with TopicsServer(home) as server:
        before = server.rss_anon_bytes()
        yield _create(bench, server)
        grown = (server.rss_anon_bytes() - before) / bench.sizes.topics
        yield statement(AREA, "RAM per topic after creating", grown, "B")
        yield from _list(bench, server)
        yield statement(AREA, "clean stop", server.stop(), "s")
    yield from _idle(bench, home, empty)
    with TopicsServer(empty_home) as few, TopicsServer(home) as many:
        yield from _growth(bench, few, many)


def _start_and_stop(home: Path) -> tuple[float, Cost]:
    """Seconds to ready, RAM when ready, and what is on disk after a clean stop."""
    with TopicsServer(home) as server:
        rss_anon_bytes = server.rss_anon_bytes()
        server.stop()
    found = list(files_under(server.data_dir))
    disk_bytes = sum(one.st_blocks * 512 for one in found)
    return server.ready_s, Cost(rss_anon_bytes, len(found), disk_bytes)


def _create(bench: Bench, server: TopicsServer) -> Row:
    body = payload.envelope(RECORDS_EACH)
    before, after = payload.numbered_post("/v0/topics/idle-", body)
    source = Numbered(before, after, bench.sizes.topics, times=bench.sizes.topics)
    created = run_plan(bench.plan(server, CONNECTIONS, source))
    name = f"{bench.sizes.topics:,} topics of {RECORDS_EACH} records created over HTTP"
    return statement(AREA, name, created.rate, "topics/s")


def _list(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    first_pages_ms = []
    for _ in range(20):
        begun_s = perf_counter()
        server.ask("GET", "/v0/topics?page_size=100")
        first_pages_ms.append((perf_counter() - begun_s) * 1000)
    yield statement(AREA, "first page of 100 listed", median(first_pages_ms), "ms")
    begun_s = perf_counter()
    listed = sum(1 for _ in _walk(server))
    if listed != bench.sizes.topics:
        raise BenchError(f"the list has {listed} of {bench.sizes.topics} topics")
    yield statement(AREA, "all listed by pages of 1,000", perf_counter() - begun_s, "s")


def _walk(server: TopicsServer) -> Iterator[str]:
    cursor = ""
    while True:
        page = server.ask("GET", f"/v0/topics?page_size=1000{cursor}")
        for topic in page["topics"]:
            if topic["count"] != RECORDS_EACH:
                raise BenchError(f"listed with a wrong count: {topic}")
            yield topic["topic"]
        if "next_cursor" not in page:
            return
        cursor = "&cursor=" + urllib.parse.quote(page["next_cursor"])


def _idle(bench: Bench, home: Path, empty: Cost) -> Iterator[Row]:
    ready_s, cost = _start_and_stop(home)
    ram, files, disk = cost.per_topic(empty, bench.sizes.topics)
    name = f"ready after a clean stop, {bench.sizes.topics:,} topics"
    yield statement(AREA, name, ready_s, "s")
    yield statement(AREA, "RAM per idle topic", ram, "B")
    yield statement(AREA, "files per idle topic", files, "files")
    yield statement(AREA, f"disk per topic of {RECORDS_EACH} records", disk, "B")


def _growth(bench: Bench, few: TopicsServer, many: TopicsServer) -> Iterator[Row]:
    """The same work on one topic of a server that has no others, and of one that has."""
    for server in (few, many):
        _fill_hot(server)
    requests = payload.append_requests(HOT, 1)
    alone, among = alternate(
        bench.sizes.rounds,
        bench.plan(few, CONNECTIONS, requests),
        bench.plan(many, CONNECTIONS, requests),
    )
    yield _compared(bench, "appends", "writes/s", among.rate, alone.rate)
    pages = payload.page_requests(HOT, range(0, HOT_PAGES * PAGE_RECORDS, PAGE_RECORDS))
    alone, among = alternate(
        bench.sizes.rounds,
        bench.plan(few, CONNECTIONS, pages),
        bench.plan(many, CONNECTIONS, pages),
    )
    yield _compared(bench, "reads of 1,000", "pages/s", among.rate, alone.rate)
    yield from _scattered(bench, many)


def _compared(bench: Bench, what: str, unit: str, value: float, baseline: float) -> Row:
    name = f"{what} beside {bench.sizes.topics:,} topics, against none"
    return relative(AREA, name, value, unit, baseline=baseline, goal=NO_GROWTH)


def _fill_hot(server: TopicsServer) -> None:
    records = [{"data": {"pad": "x" * 240}}] * PAGE_RECORDS
    for _ in range(HOT_PAGES):
        server.ask("POST", f"/v0/topics/{HOT}?return_seqs=false", {"records": records})


def _scattered(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    """Every request to another topic: nothing is warm."""
    append = payload.numbered_post("/v0/topics/idle-", payload.envelope(1))
    before, rest = payload.numbered_post("/v0/topics/idle-", b"{}")
    read = before, rest.replace(b" HTTP", b"/diff HTTP", 1)
    for halves, what, unit in ((read, "reads", "reads/s"), (append, "appends", "writes/s")):
        source = Numbered(*halves, bench.sizes.topics, stride=STRIDE)
        (side,) = alternate(1, bench.plan(server, CONNECTIONS, source))
        name = f"{what} spread over {bench.sizes.topics:,} topics"
        yield statement(AREA, name, side.rate, unit)

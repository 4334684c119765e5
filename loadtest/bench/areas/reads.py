"""Catching up: pages of 1,000 records over HTTP, and slices straight from the reader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter

from loadtest.bench import payload
from loadtest.bench.driver import open_driver, open_reader, settings_for
from loadtest.bench.load import alternate
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute, relative, statement
from loadtest.bench.server import BenchError, TopicsServer
from topicsd.reader import DiffQuery

AREA = "reads"
TOPIC = "long"
PAGE_RECORDS = 1000
BATCH_RECORDS = 100
CONNECTIONS = 32
OVER_APPENDS = Goal(">=", 5.0)
SLICES = Goal(">=", 5_000_000)


def run(bench: Bench) -> Iterator[Row]:
    home = bench.home / "server"
    with open_driver(settings_for(home)) as driver:
        driver.load(TOPIC, bench.sizes.read_records)
        yield _slices(bench, home, "just written")
    with open_driver(settings_for(home)):
        yield _slices(bench, home, "after a clean stop")
    with TopicsServer(home) as server:
        yield from _pages(bench, server)


def _slices(bench: Bench, home: Path, when: str) -> Row:
    """Records a second through `Reader.diff`, copied out, in the median round."""
    reader = open_reader(settings_for(home))
    topic = reader.find_topic(TOPIC)
    if topic is None:
        raise BenchError("the reader does not see the topic")
    rates = []
    for _ in range(bench.sizes.rounds):
        records = 0
        cursors = cycle(range(0, bench.sizes.read_records, PAGE_RECORDS))
        begun_s = perf_counter()
        while (elapsed_s := perf_counter() - begun_s) < bench.sizes.measure_s / 2:
            page = reader.diff(topic, _query(next(cursors)))
            if page is None or page.count != PAGE_RECORDS:
                raise BenchError(f"a page of {PAGE_RECORDS} records came back as {page}")
            # A page may be a view of the mapped file; what is promised is bytes in hand.
            if len(bytes(page.records)) < PAGE_RECORDS * payload.PAYLOAD_BYTES:
                raise BenchError(f"a page has only {len(page.records)} bytes")
            records += page.count
        rates.append(records / elapsed_s)
    name = f"slices of {PAGE_RECORDS:,}, reader in process, {when}"
    return absolute(AREA, name, median(rates), "records/s", goal=SLICES)


def _query(from_seq: int) -> DiffQuery:
    return DiffQuery(
        from_seq=from_seq,
        limit=PAGE_RECORDS,
        nodes=(),
        include_tags=False,
        include_meta=True,
        max_bytes=2**20,
    )


def _pages(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    _check_page(server)
    server.create("batches", durability="disk")
    cursors = range(0, bench.sizes.read_records, PAGE_RECORDS)
    appends, reads = alternate(
        bench.sizes.rounds,
        bench.plan(server, CONNECTIONS, payload.append_requests("batches", BATCH_RECORDS)),
        bench.plan(server, CONNECTIONS, payload.page_requests(TOPIC, cursors)),
    )
    if any(result.body_bytes < result.requests * PAGE_RECORDS * 256 for result in reads.results):
        raise BenchError("pages were shorter than their records")
    yield relative(
        AREA,
        f"pages of {PAGE_RECORDS:,} over HTTP, against batch appends",
        reads.rate * PAGE_RECORDS,
        "records/s",
        baseline=appends.rate * BATCH_RECORDS,
        goal=OVER_APPENDS,
    )
    yield statement(AREA, "page, p50", reads.latency_ms(50), "ms")
    yield statement(AREA, "page, p99", reads.latency_ms(99), "ms")


def _check_page(server: TopicsServer) -> None:
    """One page is looked at whole, so that the client need not look inside the others."""
    page = server.ask("POST", f"/v0/topics/{TOPIC}/diff", {"limit": PAGE_RECORDS})
    seqs = [record["$seq"] for record in page["records"]]
    if seqs != list(range(1, PAGE_RECORDS + 1)):
        raise BenchError(f"the first page has {len(seqs)} records, next {page['next_from_seq']}")

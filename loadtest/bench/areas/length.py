"""One long topic: what it costs in memory and at start, and that its length slows nothing.

The topic is filled in process; everything measured is the server over the result.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.bench import payload
from loadtest.bench.client import Cycle
from loadtest.bench.driver import open_driver, settings_for
from loadtest.bench.load import alternate, run_plan
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute, relative, statement
from loadtest.bench.server import BenchError, TopicsServer, files_under

AREA = "length"
LONG, SHORT = "long", "short"
PAGE_RECORDS = 1000
PAGES = 100
CONNECTIONS = 32
MB = 1_000_000
MEMORY = Goal("<", 300.0)
RESTART = Goal("<", 2.0)
NO_GROWTH = Goal(">=", 0.8)


def run(bench: Bench) -> Iterator[Row]:
    home = bench.home / "server"
    records = bench.sizes.long_records
    with open_driver(settings_for(home)) as driver:
        load_s = driver.load(LONG, records)
    yield statement(AREA, f"{records:,} records loaded, engine in process", records / load_s, "/s")
    with TopicsServer(home) as server:
        yield statement(AREA, f"{records:,} records on disk", _disk_bytes(server) / MB, "MB")
        yield from _memory(bench, server)
        yield from _growth(bench, server)
        yield statement(AREA, "clean stop", server.stop(), "s")
    with TopicsServer(home) as server:
        name = f"ready after a clean stop, {records:,} records"
        yield absolute(AREA, name, server.ready_s, "s", goal=RESTART)


def _disk_bytes(server: TopicsServer) -> int:
    return sum(found.st_blocks * 512 for found in files_under(server.data_dir))


def _memory(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    """Before and after every record was read and a batch of new ones was written."""
    yield absolute(AREA, "RssAnon when ready", _rss_mb(server), "MB", goal=MEMORY)
    _read_all(bench, server)
    run_plan(bench.plan(server, CONNECTIONS, payload.append_requests(LONG, 100)))
    yield absolute(AREA, "RssAnon after reading all", _rss_mb(server), "MB", goal=MEMORY)


def _rss_mb(server: TopicsServer) -> float:
    return server.rss_anon_bytes() / MB


def _read_all(bench: Bench, server: TopicsServer) -> None:
    requests = payload.page_requests(LONG, range(0, bench.sizes.long_records, PAGE_RECORDS))
    source = Cycle(requests, times=len(requests))
    read = run_plan(bench.plan(server, CONNECTIONS, source))
    expected = bench.sizes.long_records * payload.PAYLOAD_BYTES
    if read.body_bytes < expected:
        raise BenchError(f"read {read.body_bytes} bytes of at least {expected}")


def _growth(bench: Bench, server: TopicsServer) -> Iterator[Row]:
    """The same server, the same minute: the end of the long topic against a new one."""
    server.create(SHORT, durability="disk")
    for count in (1, 100):
        at_start, at_end = alternate(
            bench.sizes.rounds,
            bench.plan(server, CONNECTIONS, payload.append_requests(SHORT, count)),
            bench.plan(server, CONNECTIONS, payload.append_requests(LONG, count)),
        )
        name = f"appends by {count} at the end, against a new topic"
        yield relative(AREA, name, at_end.rate, "writes/s", baseline=at_start.rate, goal=NO_GROWTH)
    at_start, at_end = alternate(
        bench.sizes.rounds,
        bench.plan(server, CONNECTIONS, payload.page_requests(LONG, _cursors(0))),
        bench.plan(server, CONNECTIONS, payload.page_requests(LONG, _last_cursors(bench))),
    )
    name = f"pages of {PAGE_RECORDS:,} at the end, against the start"
    yield relative(AREA, name, at_end.rate, "pages/s", baseline=at_start.rate, goal=NO_GROWTH)


def _cursors(first: int) -> range:
    return range(first, first + PAGES * PAGE_RECORDS, PAGE_RECORDS)


def _last_cursors(bench: Bench) -> range:
    return _cursors(bench.sizes.long_records - PAGES * PAGE_RECORDS)

"""Back after `kill -9`: everything since the last checkpoint is still in the WAL.

Replay works by frame, so the same records are measured in few large frames and in many of
one record. The large ones are written over HTTP and the whole server is killed; the small
ones are written by an engine of its own process, which would take minutes over HTTP.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from loadtest.bench import payload
from loadtest.bench.client import Cycle
from loadtest.bench.crash import NO_CHECKPOINTS, TOPIC
from loadtest.bench.load import run_plan
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute
from loadtest.bench.server import BenchError, TopicsServer

AREA = "recovery"
BATCH_RECORDS = 100
CONNECTIONS = 32
GOAL = Goal("<", 3.0)


def run(bench: Bench) -> Iterator[Row]:
    _kill_server(bench)
    yield _restart(bench, f"writes of {BATCH_RECORDS}", "server")
    _kill_engine(bench)
    yield _restart(bench, "writes of 1", "engine")


def _kill_server(bench: Bench) -> None:
    requests = payload.append_requests(TOPIC, BATCH_RECORDS)
    source = Cycle(requests, times=bench.sizes.wal_records // BATCH_RECORDS)
    with TopicsServer(bench.home / "server", **NO_CHECKPOINTS) as server:
        run_plan(bench.plan(server, CONNECTIONS, source))
        server.kill()


def _kill_engine(bench: Bench) -> None:
    command = [sys.executable, "-m", "loadtest.bench.crash"]
    arguments = [str(bench.home / "engine"), str(bench.sizes.wal_records)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != -9:
        raise BenchError(f"the engine was not killed but ended: {done.stderr}")


def _restart(bench: Bench, how: str, home: str) -> Row:
    records = bench.sizes.wal_records
    with TopicsServer(bench.home / home, **NO_CHECKPOINTS) as server:
        state = server.ask("GET", f"/v0/topics/{TOPIC}")
        if state["count"] != records:
            raise BenchError(f"expected {records} records after the replay, found {state}")
        name = f"ready after kill -9, {records:,} records in {how}"
        return absolute(AREA, name, server.ready_s, "s", goal=GOAL)

"""Back after `kill -9`: what was written since the last checkpoint is still in the WAL.

Replay takes time by bytes and by frames, so the same records are measured in few large
frames and in many of one record. The large ones are written over HTTP and the whole server
is killed; the small ones are written by an engine in a process of its own, because they
would take minutes over HTTP.

A row that says "in the WAL" is only given when the server itself reports that it replayed
the records: a checkpoint on the way would make the number look better than it is. The one
that a topic takes when its first records outgrow their pack is allowed for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from loadtest.bench import payload
from loadtest.bench.client import Cycle
from loadtest.bench.crash import TOPIC
from loadtest.bench.load import run_plan
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute
from loadtest.bench.server import BenchError, TopicsServer

AREA = "recovery"
BATCH_RECORDS = 100
CONNECTIONS = 32
GOAL = Goal("<", 3.0)
IN_WAL_MIN = 0.99
# Far more than is written: no checkpoint may shorten the replay.
NO_CHECKPOINTS = {
    "checkpoint_bytes": 2**40,
    "checkpoint_frames": 2**31 - 1,
    "checkpoint_interval_ms": 86_400_000,
}
_REPLAYED = re.compile(r"recovered clean=\S+ frames=\d+ records=(\d+)")


def run(bench: Bench) -> Iterator[Row]:
    records = f"{bench.sizes.wal_records:,} records"
    _kill_server(bench)
    yield _restart(bench, "server", f"{records} in the WAL by {BATCH_RECORDS}", NO_CHECKPOINTS)
    _kill_engine(bench, "engine", NO_CHECKPOINTS)
    yield _restart(bench, "engine", f"{records} in the WAL by 1", NO_CHECKPOINTS)
    _kill_engine(bench, "default", {})
    yield _restart(bench, "default", f"{records} by 1, default checkpoints", {})


def _kill_server(bench: Bench) -> None:
    requests = payload.append_requests(TOPIC, BATCH_RECORDS)
    source = Cycle(requests, times=bench.sizes.wal_records // BATCH_RECORDS)
    with TopicsServer(bench.home / "server", **NO_CHECKPOINTS) as server:
        run_plan(bench.plan(server, CONNECTIONS, source))
        server.kill()


def _kill_engine(bench: Bench, home: str, settings: dict[str, int]) -> None:
    command = [sys.executable, "-m", "loadtest.bench.crash", str(bench.home / home)]
    command.append(str(bench.sizes.wal_records))
    command += [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != -9:
        raise BenchError(f"the engine was not killed but ended: {done.stderr}")


def _restart(bench: Bench, home: str, what: str, settings: dict[str, int]) -> Row:
    records = bench.sizes.wal_records
    with TopicsServer(bench.home / home, **settings) as server:
        state = server.ask("GET", f"/v0/topics/{TOPIC}")
        if state["count"] != records:
            raise BenchError(f"expected {records} records after the replay, found {state}")
        replayed = _replayed(server)
        if settings and replayed < records * IN_WAL_MIN:
            raise BenchError(f"only {replayed} of {records} records were in the WAL")
        return absolute(AREA, f"ready after kill -9, {what}", server.ready_s, "s", goal=GOAL)


def _replayed(server: TopicsServer) -> int:
    """How many records the last start took from the WAL, by its own log."""
    found = _REPLAYED.findall(server.log_tail())
    if not found:
        raise BenchError(f"the server did not say what it replayed\n{server.log_tail()}")
    return int(found[-1])

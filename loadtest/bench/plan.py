"""How much is measured: the sizes of a full run and of a quick one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from loadtest.bench.client import Cycle, Numbered, Plan
from loadtest.bench.server import Child


class Sizes(NamedTuple):
    """Everything that differs between `make bench` and `make bench` in a hurry."""

    rounds: int
    warmup_s: float
    measure_s: float
    # The topic that readers catch up on.
    read_records: int
    # The long topic: memory, clean restart, and growth with its length.
    long_records: int
    # What is in the WAL when the server is killed.
    wal_records: int
    topics: int
    # Event streams of one topic, and event streams on which nothing happens.
    subscribers: int
    idle_streams: int


FULL = Sizes(
    rounds=5,
    warmup_s=1.0,
    measure_s=4.0,
    read_records=1_000_000,
    long_records=10_000_000,
    wal_records=1_000_000,
    topics=100_000,
    subscribers=1000,
    idle_streams=5000,
)
QUICK = Sizes(
    rounds=3,
    warmup_s=0.5,
    measure_s=1.5,
    read_records=200_000,
    long_records=1_000_000,
    wal_records=200_000,
    topics=10_000,
    subscribers=1000,
    idle_streams=2000,
)


class Bench(NamedTuple):
    """What an area is given: the sizes, and a directory of its own on a real disk."""

    sizes: Sizes
    home: Path

    def plan(self, server: Child, connections: int, source: list[bytes] | Cycle | Numbered) -> Plan:
        """A load on `server` for as long as the sizes say."""
        return Plan(
            port=server.port,
            connections=connections,
            warmup_s=self.sizes.warmup_s,
            measure_s=self.sizes.measure_s,
            source=Cycle(source) if isinstance(source, list) else source,
        )

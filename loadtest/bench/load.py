"""Runs load plans in client processes and compares rates fairly.

Two sides of a comparison are measured in turn (A B A B ...), so that a slow minute of the
machine hits both; the median round of each side counts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import msgspec

from loadtest.bench.client import Plan, Result
from loadtest.bench.server import BenchError

GRACE_S = 600.0


def run_plan(plan: Plan) -> Result:
    """Run `plan` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.bench.client"],
        input=msgspec.msgpack.encode(plan),
        capture_output=True,
        timeout=plan.warmup_s + plan.measure_s + GRACE_S,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"the load client stopped: {done.stderr.decode(errors='replace')}")
    return msgspec.msgpack.decode(done.stdout, type=Result)


class Side(NamedTuple):
    """All rounds of one side of a comparison."""

    results: list[Result]

    @property
    def rate(self) -> float:
        """Requests a second in the median round."""
        return median(result.rate for result in self.results)

    def latency_ms(self, percent: float) -> float:
        return median(result.latency_us(percent) for result in self.results) / 1000


def alternate(
    rounds: int,
    *plans: Plan,
    before: Callable[[], None] = lambda: None,
    between: Callable[[], None] = lambda: None,
) -> tuple[Side, ...]:
    """Run the plans in turn, `rounds` times each.

    `before` is called before each plan of each round, `between` after every round.
    """
    sides = tuple(Side([]) for _ in plans)
    for _ in range(rounds):
        for side, plan in zip(sides, plans, strict=True):
            before()
            side.results.append(run_plan(plan))
        between()
    return sides

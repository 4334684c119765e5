"""Time, as an argument: wall clock in milliseconds, monotonic clock in microseconds.

Record timestamps, expiry and leases read `now_ms`; measured durations read `monotonic_us`,
which nothing can move. With `TOPICS_TEST_CLOCK_FILE` the wall clock is moved by the
milliseconds in that file (a `Dial`), so that black-box tests move time in every process of
the server at once instead of sleeping.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from topicsd.model.dial import Dial


class Clock(Protocol):
    """What every part of the product knows about time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment; only differences mean anything."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


class OffsetClock(SystemClock):
    """The machine's clock moved by the number in a file; a missing file moves nothing."""

    def __init__(self, path: Path) -> None:
        self._offset_ms = Dial(path)

    def now_ms(self) -> int:
        return super().now_ms() + self._offset_ms.read()


def open_clock(test_clock_file: Path | None) -> Clock:
    """Return the clock that the settings ask for."""
    return SystemClock() if test_clock_file is None else OffsetClock(test_clock_file)

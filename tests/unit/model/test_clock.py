"""Clocks: the machine's own, and one that a file moves."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from topicsd.model.clock import OffsetClock, SystemClock, open_clock

HOUR_MS = 3_600_000


def set_offset(path: Path, offset_ms: int) -> None:
    path.write_bytes(struct.pack("<q", offset_ms))


def assert_moved(clock: OffsetClock, offset_ms: int) -> None:
    before = time.time_ns() // 1_000_000
    now = clock.now_ms() - offset_ms
    assert before <= now <= time.time_ns() // 1_000_000


def test_the_system_clock_tells_milliseconds() -> None:
    """now_ms is the Unix time; monotonic_us never goes back."""
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    first = clock.monotonic_us()
    assert clock.monotonic_us() >= first


def test_the_offset_is_read_again_on_every_use(tmp_path: Path) -> None:
    """Time moves the moment a test writes the file, forward or back."""
    path = tmp_path / "clock"
    clock = OffsetClock(path)
    for offset_ms in (HOUR_MS, 2 * HOUR_MS, -HOUR_MS, 0):
        set_offset(path, offset_ms)
        assert_moved(clock, offset_ms)


def test_a_missing_file_moves_nothing(tmp_path: Path) -> None:
    """A server may start before the test writes its clock file."""
    assert_moved(OffsetClock(tmp_path / "absent"), 0)


def test_a_half_written_file_keeps_the_last_offset(tmp_path: Path) -> None:
    """Truncate-then-write is never seen as a jump."""
    path = tmp_path / "clock"
    clock = OffsetClock(path)
    set_offset(path, HOUR_MS)
    assert_moved(clock, HOUR_MS)
    path.write_bytes(b"\x01\x02")
    assert_moved(clock, HOUR_MS)


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    """The path is read, not a descriptor from long ago."""
    path, other = tmp_path / "clock", tmp_path / "other"
    clock = OffsetClock(path)
    set_offset(path, HOUR_MS)
    assert_moved(clock, HOUR_MS)
    set_offset(other, 3 * HOUR_MS)
    os.replace(other, path)
    assert_moved(clock, 3 * HOUR_MS)


def test_settings_choose_the_clock(tmp_path: Path) -> None:
    """Without a clock file nothing can move the time."""
    assert type(open_clock(None)) is SystemClock
    assert type(open_clock(tmp_path / "clock")) is OffsetClock

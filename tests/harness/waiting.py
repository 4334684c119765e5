"""Waiting for a condition with a deadline: the only way a test may let time pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.01


class ConditionTimeout(AssertionError):
    """The condition did not become true before the deadline."""


def until(
    condition: Callable[[], T | None],
    timeout: float = 5.0,
    *,
    why: str = "",
    poll_s: float = POLL_S,
) -> T:
    """Return the first truthy value of `condition`, or raise when `timeout` seconds passed."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            what = why or getattr(condition, "__name__", "the condition")
            raise ConditionTimeout(f"{what}: still {value!r} after {timeout} s")
        pause.wait(poll_s)

"""When to start a dead process again: at once, then ever later while it keeps dying."""

from __future__ import annotations

DELAY_S_MIN, DELAY_S_MAX = 0.1, 2.0
# A process that lived this long is healthy: its next death starts from zero.
HEALTHY_S = 10.0


class Backoff:
    """The restart delays of one process; times are monotonic seconds."""

    def __init__(self) -> None:
        self._delay_s = 0.0
        self._started_s = float("-inf")

    def started(self, now_s: float) -> None:
        self._started_s = now_s

    def died(self, now_s: float) -> float:
        """Seconds to wait before the next start."""
        if now_s - self._started_s >= HEALTHY_S:
            self._delay_s = 0.0
        delay_s = self._delay_s
        self._delay_s = min(max(delay_s * 2, DELAY_S_MIN), DELAY_S_MAX)
        return delay_s

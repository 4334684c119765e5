"""The gate: how many requests are inside, and whether new ones may still enter.

A draining worker sets `draining`, wakes every waiter and waits for `in_flight` to reach 0.
The per-key limit (API 11) is counted here too, in this process.
"""

from __future__ import annotations

from collections import Counter

from topicsd.model import errors
from topicsd.model.keys import Key


class Gate:
    """Counts requests in flight; `enter` and `leave` come in pairs."""

    def __init__(self, max_inflight_per_key: int = 0) -> None:
        self.draining = False
        self.in_flight = 0
        self._max_per_key = max_inflight_per_key
        self._per_key: Counter[bytes] = Counter()

    def enter(self, key: Key | None) -> None:
        """Let one request in, or raise `throttled` when its key has too many inside."""
        if key is not None and self._max_per_key:
            if self._per_key[key.digest] >= self._max_per_key:
                raise errors.throttled("max_inflight_per_key", self._max_per_key)
            self._per_key[key.digest] += 1
        self.in_flight += 1

    def leave(self, key: Key | None) -> None:
        self.in_flight -= 1
        if key is not None and self._max_per_key:
            self._per_key[key.digest] -= 1

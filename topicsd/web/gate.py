"""The gate: how many requests are inside, and whether new ones may still enter.

A draining worker sets `draining`, wakes every waiter and waits for `in_flight` to reach 0.

The per-key limit (API 11) holds for the whole server: every worker counts in its own column
of the shared tally, and the sum decides. A request is counted before the sum is looked at,
so workers that admit at the same moment cannot exceed the limit together; at worst both
refuse the last free slot. What a killed worker had inside does not count.
"""

from __future__ import annotations

from topicsd.model import errors
from topicsd.model.keys import Key, KeyRing
from topicsd.storage.tally import Tally


class Gate:
    """Counts requests in flight; `enter` and `leave` come in pairs."""

    def __init__(
        self,
        tally: Tally,
        keys: KeyRing,
        max_inflight_per_key: int,
        max_streams: int = 0,
        max_streams_per_key: int = 0,
    ) -> None:
        self.draining = False
        self.in_flight = 0
        self._tally = tally
        self._max_per_key = max_inflight_per_key
        self._max_streams = max_streams
        self._max_streams_per_key = max_streams_per_key
        self._slots = {key.digest: slot for slot, key in enumerate(keys)}
        self.join(0)

    def join(self, number: int) -> None:
        """Count in column `number` from now on; called by each process before it serves."""
        self.column = self._tally.take(number)

    def enter(self, key: Key | None) -> None:
        """Let one request in, or raise `throttled` when its key has too many inside."""
        if key is not None and self._max_per_key:
            slot = self._slots[key.digest]
            self.column.count_key(slot, 1)
            if self._is_over(slot):
                self.column.count_key(slot, -1)
                raise errors.throttled("max_inflight_per_key", self._max_per_key)
        self.in_flight += 1
        self.column.set_in_flight(self.in_flight)

    def leave(self, key: Key | None) -> None:
        self.in_flight -= 1
        self.column.set_in_flight(self.in_flight)
        if key is not None and self._max_per_key:
            self.column.count_key(self._slots[key.digest], -1)

    def open_stream(self, key: Key | None) -> None:
        """Let a connection stay open, or raise `throttled` when there are too many."""
        slot = None if key is None else self._slots[key.digest]
        self.column.count_stream(slot, 1)
        for place, limit, name in (
            (None, self._max_streams, "max_sse_connections"),
            (slot, self._max_streams_per_key, "max_sse_connections_per_key"),
        ):
            if name.endswith("per_key") and slot is None:
                continue
            if limit and self._streams_over(place, limit):
                self.column.count_stream(slot, -1)
                raise errors.throttled(name, limit)

    def close_stream(self, key: Key | None) -> None:
        self.column.count_stream(None if key is None else self._slots[key.digest], -1)

    def _streams_over(self, slot: int | None, limit: int) -> bool:
        tally = self._tally
        return tally.streams_of(slot) > limit and tally.living_streams_of(slot) > limit

    def _is_over(self, slot: int) -> bool:
        limit = self._max_per_key
        if self._tally.in_flight_of(slot) <= limit:
            return False
        # Before anybody is refused: is it only a dead worker that still seems busy?
        return self._tally.living_in_flight_of(slot) > limit

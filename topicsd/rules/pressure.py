"""Elastic throttling under CPU pressure (API 0.6, DESIGN 3): when, who first, how fast.

Pressure is the lag of a worker's event loop: how late a timer fires, smoothed. Under pressure
requests line up, and each turn of the timer lets the most important ones in. How many is the
pace: it halves while the pressure lasts and doubles while it does not, so throughput follows
what the machine can do. Waiting makes important (ageing), so nobody starves. Who has waited
for too long is told to come back later, unless it asked not to be.

No clock and no I/O: times are arguments, in milliseconds.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from topicsd.rules.priority import age_boost

Ticket = TypeVar("Ticket")

# How much of the newest lag goes into the average.
LAG_WEIGHT: Final = 0.3
PACE_MIN: Final = 1
PACE_MAX: Final = 1024


class Lag:
    """How late the loop is on average, and whether that is too late."""

    def __init__(self, threshold_ms: float) -> None:
        self._threshold_ms = threshold_ms
        self.average_ms = 0.0

    def note(self, late_ms: float) -> bool:
        """Take in one measurement; returns whether there is pressure."""
        self.average_ms += LAG_WEIGHT * (max(late_ms, 0.0) - self.average_ms)
        return self.average_ms > self._threshold_ms


def next_pace(pace: int, pressed: bool) -> int:
    """How many requests the next turn lets in."""
    return max(pace // 2, PACE_MIN) if pressed else min(pace * 2, PACE_MAX)


class Parked(NamedTuple, Generic[Ticket]):
    """A request in line; a patient one is never sent away."""

    ticket: Ticket
    priority: int
    since_ms: float
    patient: bool


class Line(Generic[Ticket]):
    """Requests waiting to be let in."""

    def __init__(self, wait_ms_max: float) -> None:
        self._wait_ms_max = wait_ms_max
        self._parked: dict[Ticket, Parked[Ticket]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, ticket: Ticket, priority: int, now_ms: float, *, patient: bool) -> None:
        self._parked[ticket] = Parked(ticket, priority, now_ms, patient)

    def leave(self, ticket: Ticket) -> None:
        """Forget a request that went away; one that is not in line is fine."""
        self._parked.pop(ticket, None)

    def take(self, count: int, now_ms: float) -> list[Ticket]:
        """The most important requests, in order; among equals who came first."""
        order = sorted(self._parked.values(), key=lambda parked: -_importance(parked, now_ms))
        return self._remove([parked.ticket for parked in order[:count]])

    def expire(self, now_ms: float) -> list[Ticket]:
        """The requests that have waited for too long."""
        return self._remove(
            [
                parked.ticket
                for parked in self._parked.values()
                if not parked.patient and now_ms - parked.since_ms >= self._wait_ms_max
            ]
        )

    def _remove(self, tickets: list[Ticket]) -> list[Ticket]:
        for ticket in tickets:
            del self._parked[ticket]
        return tickets


def _importance(parked: Parked[Ticket], now_ms: float) -> int:
    return parked.priority + age_boost(int(now_ms - parked.since_ms))

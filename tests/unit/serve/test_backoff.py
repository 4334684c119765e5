"""Dead processes come back at once, then ever later, and are forgiven when healthy."""

from __future__ import annotations

from topicsd.serve.backoff import DELAY_S_MAX, HEALTHY_S, Backoff


def test_first_death_restarts_at_once_and_later_ones_wait_longer() -> None:
    """Delays grow from zero to the maximum and stay there."""
    backoff = Backoff()
    delays = []
    for now in range(8):
        backoff.started(now)
        delays.append(backoff.died(now))
    assert delays == [0, 0.1, 0.2, 0.4, 0.8, 1.6, DELAY_S_MAX, DELAY_S_MAX]


def test_healthy_process_starts_from_zero() -> None:
    """A process that lived long enough is restarted at once again."""
    backoff = Backoff()
    backoff.started(0)
    backoff.died(1)
    backoff.started(1)
    assert backoff.died(1 + HEALTHY_S) == 0

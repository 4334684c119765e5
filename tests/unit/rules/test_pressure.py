"""The elastic scheduler as tables: lag, pace, order, ageing, expiry."""

from __future__ import annotations

import pytest

from topicsd.rules.pressure import PACE_MAX, Lag, Line, next_pace
from topicsd.rules.priority import age_boost


@pytest.mark.parametrize(
    ("waited_ms", "boost"),
    [(-5, 0), (0, 0), (9, 0), (10, 1), (500, 50), (1000, 100), (10_000, 1000), (60_000, 1000)],
)
def test_waiting_makes_important(waited_ms: int, boost: int) -> None:
    """DESIGN 3: +100 a second waited, capped at +1000 after 10 s."""
    assert boost == age_boost(waited_ms)


@pytest.mark.parametrize(
    ("threshold_ms", "measured", "pressed"),
    [
        (250, [0, 0, 0], False),
        (250, [800], False),
        (250, [900], True),
        (250, [400, 400, 400], True),
        (250, [240] * 50, False),
        (250, [900, 0, 0, 0], False),
        (1, [-3, -3], False),
        (1, [5], True),
    ],
)
def test_pressure_is_a_lag_that_lasts(
    threshold_ms: float, measured: list[float], pressed: bool
) -> None:
    """A single hiccup is averaged away, a late loop is not; an early timer is not late."""
    lag = Lag(threshold_ms)
    assert [lag.note(late_ms) for late_ms in measured][-1] is pressed


@pytest.mark.parametrize(
    ("pace", "pressed", "expected"),
    [(1024, True, 512), (3, True, 1), (1, True, 1), (1, False, 2), (PACE_MAX, False, PACE_MAX)],
)
def test_the_pace_follows_the_pressure(pace: int, pressed: bool, expected: int) -> None:
    """It halves under pressure and never reaches zero; it doubles without, up to a limit."""
    assert expected == next_pace(pace, pressed)


def line_of(*parked: tuple[str, int, float], patient: str = "") -> Line[str]:
    line: Line[str] = Line(2000)
    for ticket, priority, since_ms in parked:
        line.park(ticket, priority, since_ms, patient=ticket in patient)
    return line


@pytest.mark.parametrize(
    ("parked", "now_ms", "expected"),
    [
        ([("a", 0, 0), ("b", 10, 0), ("c", -10, 0)], 0, "bac"),
        ([("a", 5, 0), ("b", 5, 0), ("c", 5, 0)], 0, "abc"),
        ([("late", 0, 500), ("early", 0, 0)], 1000, ["early", "late"]),
        ([("old", 0, 0), ("urgent", 500, 1900)], 2000, ["urgent", "old"]),
        ([("starving", -1000, 0), ("hot", 0, 9_990)], 10_000, ["hot", "starving"]),
        ([("starving", -499, 0), ("hot", 500, 9_990)], 10_000, ["starving", "hot"]),
    ],
)
def test_the_most_important_goes_first(
    parked: list[tuple[str, int, float]], now_ms: float, expected: str | list[str]
) -> None:
    """Priority plus age decides; among equals who came first."""
    assert list(expected) == line_of(*parked).take(10, now_ms)


def test_a_turn_lets_in_as_many_as_the_pace_says() -> None:
    """The others stay in line, in their places."""
    line = line_of(("a", 1, 0), ("b", 3, 0), ("c", 2, 0))
    assert line.take(2, 0) == ["b", "c"]
    assert (len(line), line.take(2, 0), len(line)) == (1, ["a"], 0)


def test_nobody_starves_behind_a_stream_of_more_important_requests() -> None:
    """One newcomer of priority 500 every 100 ms: the old one still gets its turn in 5 s."""
    line: Line[str] = Line(60_000)
    line.park("quiet", 0, 0.0, patient=False)
    served_ms = None
    for now_ms in range(0, 20_000, 100):
        line.park(f"hot{now_ms}", 500, now_ms, patient=False)
        if line.take(1, now_ms) == ["quiet"]:
            served_ms = now_ms
            break
    assert served_ms == 5000


def test_who_waited_too_long_is_sent_away_unless_patient() -> None:
    """The bound is the setting's; `disable_backpressure` has none."""
    line = line_of(("a", 0, 0), ("p", 0, 0), ("b", 0, 1), patient="p")
    assert line.expire(1999) == []
    assert line.expire(2000) == ["a"]
    assert line.expire(99_999) == ["b"]
    assert line.take(5, 99_999) == ["p"]


def test_who_went_away_is_forgotten() -> None:
    """A closed connection frees its place."""
    line = line_of(("a", 0, 0), ("b", 0, 0))
    line.leave("a")
    line.leave("a")
    assert line.take(5, 0) == ["b"]

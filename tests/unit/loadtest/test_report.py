"""Rows say what was measured, and goals decide."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from loadtest.bench.report import (
    Goal,
    Report,
    Row,
    absolute,
    format_number,
    print_table,
    print_verdict,
    relative,
    statement,
)

MET = relative("appends", "one", 700.0, "writes/s", baseline=1000.0, goal=Goal(">=", 0.6))
MISSED = absolute("memory", "RssAnon", 301.0, "MB", goal=Goal("<", 300.0))


def _report(*rows: Row) -> Report:
    return Report(quick=True, cores=2, python="3.11.0", rows=list(rows))


def test_relative_row_compares_the_ratio() -> None:
    """A ratio goal looks at value over baseline."""
    expected = Row("appends", "one", 700.0, "writes/s", 1000.0, 0.7, ">= 0.6x", True)
    assert expected == MET


def test_absolute_row_compares_the_value() -> None:
    """A value goal looks at the value and shows its unit."""
    assert Row("memory", "RssAnon", 301.0, "MB", goal="< 300 MB", ok=False) == MISSED


@pytest.mark.parametrize(
    ("goal", "measured", "met"),
    [
        (Goal(">=", 0.6), 0.6, True),
        (Goal(">=", 0.6), 0.599, False),
        (Goal("<", 2.0), 2.0, False),
        (Goal("<", 2.0), 1.999, True),
    ],
)
def test_goal_at_its_edge(goal: Goal, measured: float, met: bool) -> None:
    """At least includes the bound, below excludes it."""
    assert met is goal.met(measured)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.01234, "0.0123"), (12.345, "12.3"), (99.99, "100"), (12766.2, "12,766")],
)
def test_numbers_are_shown_short(value: float, text: str) -> None:
    """Three significant digits are enough for people."""
    assert text == format_number(value)


def test_a_missed_goal_fails_the_report() -> None:
    """Statements and met goals pass; one missed goal does not."""
    assert _report(MET, statement("topics", "RAM", 400.0, "B")).ok()
    assert not _report(MET, MISSED).ok()


def test_an_area_that_failed_fails_the_report() -> None:
    """What was not measured was not promised either."""
    report = _report(MET)
    report.failures["reads"] = "no reply"
    assert not report.ok()


def test_verdict_names_what_was_missed() -> None:
    """The reader learns the row, the number and the goal."""
    output = io.StringIO()
    print_verdict(_report(MET, MISSED), Console(file=output, width=200))
    assert output.getvalue() == "missed: memory: RssAnon: 301, goal < 300 MB\n"


def test_table_shows_every_row() -> None:
    """Each row appears with its ratio and its verdict."""
    output = io.StringIO()
    print_table(_report(MET, MISSED), Console(file=output, width=200))
    shown = output.getvalue()
    assert all(text in shown for text in ("0.70x", "yes", "RssAnon", "NO"))


def test_file_holds_every_field(tmp_path: Path) -> None:
    """The JSON file can be compared with another run's."""
    path = tmp_path / "build" / "bench.json"
    _report(MET).write(path)
    row = msgspec.json.decode(path.read_bytes())["rows"][0]
    assert list(row) == ["area", "name", "value", "unit", "baseline", "ratio", "goal", "ok"]

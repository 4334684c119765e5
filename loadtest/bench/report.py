"""Rows of the report: a measured value, what it is compared with, and whether it will do.

A goal is on the ratio to a baseline or on the value itself; a row without a goal is a
statement. The table is for people, the JSON file for comparing runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Row(msgspec.Struct, frozen=True):
    """One line of the report; `ok` is None when nothing was promised."""

    area: str
    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    goal: str | None = None
    ok: bool | None = None


class Goal(msgspec.Struct, frozen=True):
    """`sign` is a key of the comparison table; `unit` only shows in the text."""

    sign: str
    bound: float
    unit: str = ""

    def met(self, measured: float) -> bool:
        return _COMPARE[self.sign](measured, self.bound)

    def __str__(self) -> str:
        return f"{self.sign} {format_number(self.bound)}{self.unit}"


class Report(msgspec.Struct):
    """The rows of one run, as written to the JSON file."""

    quick: bool
    cores: int
    python: str
    rows: list[Row]
    # Areas that could not be measured, with the reason.
    failures: dict[str, str] = {}

    def missed(self) -> list[Row]:
        return [row for row in self.rows if row.ok is False]

    def ok(self) -> bool:
        return not self.missed() and not self.failures

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def statement(area: str, name: str, value: float, unit: str) -> Row:
    """A measured value with nothing promised about it."""
    return Row(area, name, value, unit)


def absolute(area: str, name: str, value: float, unit: str, *, goal: Goal) -> Row:
    """A value that is promised as such."""
    shown = msgspec.structs.replace(goal, unit=f" {unit}")
    return Row(area, name, value, unit, goal=str(shown), ok=goal.met(value))


def relative(
    area: str, name: str, value: float, unit: str, *, baseline: float, goal: Goal | None = None
) -> Row:
    """A value compared with another of the same run."""
    ratio = value / baseline
    if goal is None:
        return Row(area, name, value, unit, baseline, ratio)
    shown = msgspec.structs.replace(goal, unit="x")
    return Row(area, name, value, unit, baseline, ratio, str(shown), goal.met(ratio))


def format_number(value: float) -> str:
    """Three significant digits or whole numbers, with separators."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def print_table(report: Report, console: Console) -> None:
    table = Table(title="topicsd bench" + (" (quick)" if report.quick else ""))
    for heading in ("area", "name"):
        table.add_column(heading)
    for heading in ("value", "unit", "baseline", "ratio", "goal", "ok"):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    previous = ""
    for row in report.rows:
        if previous and row.area != previous:
            table.add_section()
        table.add_row("" if row.area == previous else row.area, row.name, *_cells(row))
        previous = row.area
    console.print(table)


def _cells(row: Row) -> list[str]:
    verdict = {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[row.ok]
    return [
        format_number(row.value),
        row.unit,
        "" if row.baseline is None else format_number(row.baseline),
        "" if row.ratio is None else f"{row.ratio:.2f}x",
        row.goal or "",
        verdict,
    ]


def print_verdict(report: Report, console: Console) -> None:
    """Say which goals were missed and what could not be measured."""
    for row in report.missed():
        measured = row.value if row.ratio is None else row.ratio
        console.print(
            f"missed: {row.area}: {row.name}: {format_number(measured)}, goal {row.goal}",
            style="red",
            markup=False,
        )
    for area, reason in report.failures.items():
        console.print(f"failed: {area}: {reason}", style="red", markup=False)
    if report.ok():
        goals = sum(row.ok is True for row in report.rows)
        console.print(f"all {goals} goals met", style="green")

"""Run the measurements: `python -m loadtest.bench [--quick] [--out FILE] [AREA ...]`."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from loadtest.bench.areas import AREAS
from loadtest.bench.plan import FULL, QUICK, Bench
from loadtest.bench.report import Report, format_number, print_table, print_verdict
from loadtest.bench.server import BenchError

# A measurement of disks needs one: the system's own temporary directory may be memory.
BUILD = Path("build")
TABLE_COLUMNS = 140


@click.command()
@click.argument("areas", nargs=-1)
@click.option("--quick", is_flag=True, help="Smaller sizes, shorter rounds; rougher numbers.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=BUILD / "bench.json"
)
def main(areas: tuple[str, ...], quick: bool, out: Path) -> None:
    """Measure AREAS (all when none is named); exit 1 when a goal is missed."""
    unknown = sorted(set(areas) - set(AREAS))
    if unknown:
        raise click.UsageError(f"no area {', '.join(unknown)}; there are {', '.join(AREAS)}")
    # Ended from outside, the servers under measurement must end too: unwind the `with` blocks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report = Report(quick, os.cpu_count() or 1, platform.python_version(), [])
    # Piped output has no width of its own; the table needs about this much.
    console = Console(width=None if sys.stdout.isatty() else TABLE_COLUMNS)
    for area in areas or AREAS:
        _measure(area, report, console)
    report.write(out)
    print_table(report, console)
    print_verdict(report, console)
    console.print(f"written to {out}", markup=False)
    sys.exit(0 if report.ok() else 1)


def _measure(area: str, report: Report, console: Console) -> None:
    """Run one area in a directory of its own, which is removed whatever happens."""
    (BUILD / "bench").mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix=f"{area}-", dir=BUILD / "bench")).absolute()
    try:
        for row in AREAS[area](Bench(QUICK if report.quick else FULL, home)):
            report.rows.append(row)
            ratio = "" if row.ratio is None else f" ({row.ratio:.2f}x)"
            line = f"{row.area}: {row.name}: {format_number(row.value)} {row.unit}{ratio}"
            console.print(line, markup=False, highlight=False)
    except BenchError as error:
        report.failures[area] = str(error)
        console.print(f"{area}: failed: {error}", markup=False)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()

"""`topicsd config`: the effective settings, each with the source that decided it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from topicsd.cli.options import load_settings, settings_options
from topicsd.model.settings import specs
from topicsd.model.sources import Loaded

MASK = "***"


@click.command()
@settings_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(as_json: bool, **options: Any) -> None:
    """Print the effective settings; secrets are masked."""
    loaded = load_settings(**options)
    click.echo(_render_json(loaded) if as_json else _render_table(loaded))


def _shown(loaded: Loaded, name: str) -> Any:
    value = getattr(loaded.settings, name)
    if specs()[name].doc.secret:
        return MASK if value else None
    return str(value) if isinstance(value, Path) else value


def _render_json(loaded: Loaded) -> str:
    rows = {
        name: {"value": _shown(loaded, name), "source": loaded.sources[name]} for name in specs()
    }
    return json.dumps(rows, indent=2)


def _render_table(loaded: Loaded) -> str:
    header = ("variable", "value", "source", "meaning")
    rows = [header] + [
        (spec.variable, _cell(_shown(loaded, name)), loaded.sources[name], spec.doc.text)
        for name, spec in specs().items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)

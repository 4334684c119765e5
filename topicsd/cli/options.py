"""Options that several verbs share: the settings flags and the configuration file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from topicsd.model.settings import SettingsError
from topicsd.model.sources import Loaded, load

Verb = TypeVar("Verb", bound=Callable[..., Any])

# Values stay text here: one parser, the settings' own, decides and words every refusal.
_OPTIONS = (
    click.option("--host", metavar="HOST", help="Address to bind, host or host:port."),
    click.option("--port", metavar="PORT", help="TCP port; 0 takes any free one."),
    click.option("--data-dir", metavar="DIR", help="Directory that holds everything stored."),
    click.option("--workers", metavar="N", help="HTTP worker processes."),
    click.option(
        "--single-process/--no-single-process",
        default=None,
        help="Run the engine inside one worker process.",
    ),
    click.option("--config", "config_file", metavar="FILE", help="TOML file of settings."),
)


def settings_options(verb: Verb) -> Verb:
    """Add the flags that decide settings, in the order of the table above."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def load_settings(config_file: str | None, **flags: Any) -> Loaded:
    """Merge flags, environment, file and defaults, or end the command with one line."""
    try:
        file = {} if config_file is None else _read_toml(Path(config_file))
        return load(os.environ, file, flags)
    except SettingsError as problem:
        refuse(str(problem))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise SettingsError(f"cannot read --config {path}: {_cause(problem)}") from None
    except tomllib.TOMLDecodeError as problem:
        raise SettingsError(f"--config {path} is not valid TOML: {problem}") from None


def _cause(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)


def refuse(message: str) -> NoReturn:
    """End the command: one line on stderr, exit code 2."""
    click.echo(f"topicsd: {message}", err=True)
    raise click.exceptions.Exit(2)

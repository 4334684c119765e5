"""`topicsd serve`: start the server and stay until it stops."""

from __future__ import annotations

import os
from typing import Any

import click

from topicsd.cli.options import load_settings, refuse, settings_options
from topicsd.model.settings import SettingsError, check_exposure, variable


@click.command()
@settings_options
def serve(**options: Any) -> None:
    """Serve until SIGTERM or Ctrl-C. Flags win over TOPICS_* variables, those over --config."""
    settings = load_settings(**options).settings
    try:
        check_exposure(settings)
    except SettingsError as problem:
        refuse(str(problem))
    # The plaintext keys are parsed; no child process needs to inherit them.
    os.environ.pop(variable("api_keys"), None)

    from topicsd.serve.run import run

    raise click.exceptions.Exit(run(settings))

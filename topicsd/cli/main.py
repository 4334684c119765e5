"""The `topicsd` command: the table of its verbs.

Each verb is a module of this package. A refusal is one line on stderr and exit code 2; a
traceback is always a bug. Verbs import what they run inside the function, so that `--help`
and `config` stay quick and the server never pays for tools it does not use.
"""

from __future__ import annotations

import sys

import click

from topicsd import __version__
from topicsd.cli.check import check
from topicsd.cli.config import config
from topicsd.cli.serve import serve

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="topicsd")
def topicsd() -> None:
    """A persistent event engine: topics, queues and streams over HTTP."""


for _verb in (serve, config, check):
    topicsd.add_command(_verb)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = topicsd.main(arguments, prog_name="topicsd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        help_wanted.show()
        return EXIT_USAGE
    except click.ClickException as problem:
        click.echo(f"topicsd: {problem.format_message()}", err=True)
        return EXIT_USAGE
    except click.Abort:
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0

"""The command itself: help, version, and refusals of one line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from topicsd import __version__
from topicsd.cli.main import run


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    """`topicsd --help` names every command."""
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for verb in ("serve", "config", "check"):
        assert verb in shown


def test_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`topicsd --version` prints it."""
    assert run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["frob"], "frob"),
        (["serve", "--frob"], "--frob"),
        (["check"], "DATA_DIR"),
        (["config", "--port", "x"], "--port=x"),
        (["config", "--config", "/absent.toml"], "/absent.toml"),
        (["serve", "--host", "0.0.0.0"], "TOPICS_API_KEYS"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_two(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors for people: one line on stderr that names the culprit."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("topicsd: ")
    assert captured.err.count("\n") == 1
    assert word in captured.err


def test_no_arguments_show_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`topicsd` alone explains itself."""
    assert run([]) == 2
    assert "serve" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    """`python -m topicsd` works, and starts without the server's libraries."""
    probe = (
        "import sys; from topicsd.cli.main import run; code = run(['config']); "
        "heavy = {'sanic', 'numpy', 'apsw', 'pyspark'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    for command in (["-m", "topicsd", "--version"], ["-c", probe]):
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, env=environ, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")

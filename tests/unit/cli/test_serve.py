"""`topicsd serve`: flags reach the server, secrets do not reach its children."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import topicsd.serve.run
from topicsd.cli.main import run
from topicsd.model.settings import Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that `serve` would have run with; the server answers exit code 7."""
    seen: list[Settings] = []

    def record(settings: Settings) -> int:
        seen.append(settings)
        return 7

    monkeypatch.setattr(topicsd.serve.run, "run", record)
    return seen


def test_flags_become_settings_and_the_exit_code_is_the_servers(served: list[Settings]) -> None:
    """Every flag of the contract arrives; what run() returns is the exit code."""
    flags = "--host ::1 --port 0 --data-dir /d --workers 3 --single-process"
    assert run(["serve", *flags.split()]) == 7
    (settings,) = served
    assert (settings.host, settings.port, settings.data_dir) == ("::1", 0, Path("/d"))
    assert (settings.workers, settings.single_process) == (3, True)


def test_keys_leave_the_environment(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once parsed, the plaintext is not inherited by any process."""
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2")
    assert run(["serve", "--host", "0.0.0.0"]) == 7
    assert served[0].api_keys.find("hunter2") is not None
    assert "TOPICS_API_KEYS" not in os.environ


def test_a_reachable_bind_without_keys_does_not_start(served: list[Settings]) -> None:
    """API 0.2: refused before anything is touched."""
    assert run(["serve", "--host", "0.0.0.0:0"]) == 2
    assert served == []

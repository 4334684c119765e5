"""`topicsd config`: what is in effect, where it comes from, and no secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topicsd.cli.main import run
from topicsd.model.settings import specs


def shown_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    assert run(["config", "--json", *arguments]) == 0
    shown: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return shown


def test_every_setting_is_shown_with_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """default, file, env and flag, each where it decided."""
    file = tmp_path / "topicsd.toml"
    file.write_text('max_limit = 7\nworkers = 2\ndata_dir = "/file"\n')
    monkeypatch.setenv("TOPICS_WORKERS", "3")
    monkeypatch.setenv("TOPICS_DATA_DIR", "/env")
    shown = shown_json(capsys, "--config", str(file), "--data-dir", "/flag")
    assert list(shown) == list(specs())
    assert shown["port"] == {"value": 4000, "source": "default"}
    assert shown["max_limit"] == {"value": 7, "source": "file"}
    assert shown["workers"] == {"value": 3, "source": "env"}
    assert shown["data_dir"] == {"value": "/flag", "source": "flag"}


def test_the_table_is_aligned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line a setting, its columns starting at the same place."""
    monkeypatch.setenv("TOPICS_PORT", "4001")
    assert run(["config"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [spec.variable for spec in specs().values()]
    source = header.index("source")
    assert {row[source:].split()[0] for row in rows} == {"default", "env"}
    assert "4001" in next(row for row in rows if row.startswith("TOPICS_PORT "))


def test_keys_are_masked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the table nor the JSON shows a key, or that there is a second one."""
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2:r,hunter3")
    assert run(["config"]) == 0
    table = capsys.readouterr().out
    assert shown_json(capsys)["api_keys"] == {"value": "***", "source": "env"}
    assert "***" in table
    assert "hunter" not in table


def test_no_keys_show_as_unset(capsys: pytest.CaptureFixture[str]) -> None:
    """A mask would pretend that there is a secret."""
    assert shown_json(capsys)["api_keys"] == {"value": None, "source": "default"}


def test_single_process_can_be_turned_off_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags win in both directions."""
    monkeypatch.setenv("TOPICS_SINGLE_PROCESS", "1")
    assert shown_json(capsys)["single_process"] == {"value": True, "source": "env"}
    shown = shown_json(capsys, "--no-single-process")
    assert shown["single_process"] == {"value": False, "source": "flag"}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"port = ", "not valid TOML"),
        (b"\xff\xfe", "cannot read"),
        (b"prot = 1", "did you mean port?"),
        (b"port = true", "port=True is refused"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(
    content: bytes, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what is wrong with which file or key."""
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    assert run(["config", "--config", str(file)]) == 2
    message = capsys.readouterr().err
    assert word in message
    assert message.count("\n") == 1

"""Every command in the README is run, and answers what the README shows."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.harness.server import REPOSITORY, Server, start_server

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BIND = "http://127.0.0.1:4000"


class Step(NamedTuple):
    """A shell block and the answer shown below it, if one is."""

    script: str
    shown: str | None


def read_steps() -> list[Step]:
    """The shell blocks of the README in order."""
    blocks = _BLOCK.findall((REPOSITORY / "README.md").read_text())
    steps = []
    for index, (language, text) in enumerate(blocks):
        if language == "sh":
            follows = blocks[index + 1] if index + 1 < len(blocks) else ("", "")
            steps.append(Step(text, follows[1] if follows[0] == "json" else None))
    return steps


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = start_server(tmp_path)
    yield started
    started.finish()


def shape_of(value: Any) -> Any:
    """The value with its measured numbers replaced by their kind."""
    if isinstance(value, dict):
        return {
            key: "measured" if key in ("$ts", "performance") else shape_of(entry)
            for key, entry in value.items()
        }
    return [shape_of(entry) for entry in value] if isinstance(value, list) else value


def test_the_quickstart_works_line_by_line(server: Server) -> None:
    """Each block succeeds, answers JSON without an error, and matches what is shown."""
    steps = read_steps()
    assert len(steps) >= 6
    for step in steps:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.script.replace(_BIND, server.url)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ran.returncode == 0, (step.script, ran.stderr)
        answers = list(read_answers(ran.stdout))
        assert len(answers) == step.script.count("curl -s")
        assert not [answer for answer in answers if "error" in answer], (step.script, answers)
        if "idempotency_key" in step.script:
            assert [answer["deduped"] for answer in answers] == [False, True]
        if step.shown is not None:
            assert shape_of(json.loads(step.shown)) == shape_of(answers[0])


def read_answers(text: str) -> Iterator[Any]:
    """The JSON documents that stand one behind the other."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        yield document
        position += len(text[position:]) - len(text[position:].lstrip())


def test_the_catalog_reads_like_a_table(server: Server) -> None:
    """The plain sqlite3 shell shows topics while the server runs."""
    httpx.put(f"{server.url}/v0/topics/orders", json={"durability": "fsync"}).raise_for_status()
    ran = subprocess.run(
        ["sqlite3", "-header", "catalog.sqlite", "select name, type, durability from v_topics"],
        cwd=server.data_dir,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ran.stdout.splitlines() == ["name|type|durability", "orders|log|fsync"]

"""Every command in the README is run, and answers what the README shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.harness.server import REPOSITORY, Server, start_server

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = "127.0.0.1:4000"
_BIND = f"http://{_ADDRESS}"

_TIME = re.compile(r'"\$ts":\d+')
# A stream that has not said all that is shown by then never will.
_STREAM_TIMEOUT_S = 10.0


class Step(NamedTuple):
    """A shell block and the answer shown below it, if one is."""

    script: str
    shown: str | None

    @property
    def streams(self) -> bool:
        """Whether its last command goes on until somebody ends it."""
        return "curl -N" in self.script


def read_steps() -> list[Step]:
    """The shell blocks of the README in order."""
    blocks = _BLOCK.findall((REPOSITORY / "README.md").read_text())
    steps = []
    for index, (language, text) in enumerate(blocks):
        if language == "sh":
            follows = blocks[index + 1] if index + 1 < len(blocks) else ("", "")
            steps.append(Step(text, follows[1] if follows[0] in ("json", "text") else None))
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
        if step.streams:
            check_stream(step, server)
            continue
        ran = subprocess.run(
            shell(step, server),
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


def test_the_python_examples_print_what_is_shown(server: Server) -> None:
    """Each block runs as it stands, and says exactly what stands below it."""
    blocks = _BLOCK.findall((REPOSITORY / "README.md").read_text())
    examples = [pair for pair in pairwise(blocks) if pair[0][0] == "python"]
    assert examples
    for (_, script), (_, shown) in examples:
        ran = subprocess.run(
            [sys.executable, "-c", script.replace(_ADDRESS, f"{server.host}:{server.port}")],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert shown == ran.stdout


def shell(step: Step, server: Server) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", step.script.replace(_BIND, server.url)]


def check_stream(step: Step, server: Server) -> None:
    """The stream says what is shown, and is still open then."""
    assert step.shown is not None, step.script
    with subprocess.Popen(
        shell(step, server), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        end = threading.Timer(_STREAM_TIMEOUT_S, os.killpg, (running.pid, signal.SIGKILL))
        end.start()
        assert running.stdout is not None
        said = "".join(islice(running.stdout, step.shown.count("\n")))
        end.cancel()
        assert running.poll() is None
        os.killpg(running.pid, signal.SIGKILL)
    assert _TIME.sub("", step.shown) == _TIME.sub("", said)


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

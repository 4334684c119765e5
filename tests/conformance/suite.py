"""The official Durable Streams suite, run by Node against any server.

`make node` installs it at the versions of package-lock.json. A run counts only when vitest wrote
its report: a suite that did not load, or a Node that is not there, is an error and not a zero.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "node_modules"
# All of version 0.3.6, its six optional tests of subscriptions included.
TESTS = 338
# The suite's own clock for polls: the server under test must answer them within this time.
LONG_POLL_MS = 500
SUITE_TIMEOUT_S = 300.0


class SuiteBroken(AssertionError):
    """The suite did not run to its end; carries what was printed."""


@dataclass(frozen=True)
class Outcome:
    """What one run of the suite counted."""

    passed: int
    failed: int
    skipped: int
    # One line for each test that failed: its name and the first line of the reason.
    failures: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return (self.passed, self.failed, self.skipped) == (TESTS, 0, 0)

    def __str__(self) -> str:
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return "\n".join([*self.failures, counts])


def find_node() -> str:
    """Node with the suite's packages beside it; says how to get them when they are missing."""
    program = shutil.which("node")
    if program is None or not (PACKAGES / "vitest").is_dir():
        raise SuiteBroken("Node or the packages of tests/conformance are missing: make node")
    return program


def run_node(
    *arguments: str, timeout: float = 60.0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Node in this directory to its end."""
    return subprocess.run(
        [find_node(), *arguments],
        cwd=HERE,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_suite(url: str) -> Outcome:
    """Run every test of the suite against the server at `url`."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        ended = run_node(
            str(PACKAGES / "vitest" / "vitest.mjs"),
            "run",
            "--reporter=json",
            f"--outputFile={report}",
            timeout=SUITE_TIMEOUT_S,
            CONFORMANCE_URL=url,
            CONFORMANCE_LONG_POLL_MS=str(LONG_POLL_MS),
        )
        if not report.exists():
            raise SuiteBroken(f"vitest left no report:\n{ended.stdout}{ended.stderr}")
        return read_report(json.loads(report.read_text("utf-8")))


def read_report(report: dict[str, Any]) -> Outcome:
    """Count a report of vitest; a file that could not be loaded has no tests to count."""
    failures = []
    for file in report["testResults"]:
        if not file["assertionResults"]:
            raise SuiteBroken(f"the suite did not load: {file['message']}")
        for test in file["assertionResults"]:
            if test["status"] == "failed":
                reason = "".join(test["failureMessages"][:1]).partition("\n")[0]
                failures.append(f"FAILED {test['fullName'].strip()}: {reason}")
    return Outcome(
        passed=report["numPassedTests"],
        failed=report["numFailedTests"],
        skipped=report["numPendingTests"] + report["numTodoTests"],
        failures=tuple(failures),
    )

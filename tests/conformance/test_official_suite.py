"""Every test of the official suite passes, and the suite is known to have counted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.suite import TESTS, Outcome, SuiteBroken, read_report, run_suite
from tests.harness.server import Server


def build_report(*statuses: str) -> dict[str, Any]:
    """A report of vitest with one test for each status."""
    tests = [
        {"status": status, "fullName": f" Room test {number}", "failureMessages": ["no\n at x"]}
        for number, status in enumerate(statuses)
    ]
    return {
        "numPassedTests": statuses.count("passed"),
        "numFailedTests": statuses.count("failed"),
        "numPendingTests": statuses.count("pending"),
        "numTodoTests": statuses.count("todo"),
        "testResults": [{"message": "cannot load", "assertionResults": tests}],
    }


def test_the_official_suite_passes(server: Server) -> None:
    """338 passed, none failed, none skipped, against two workers."""
    outcome = run_suite(server.url)
    assert outcome.complete, f"\n{outcome}"


def test_a_report_is_counted_with_the_names_of_its_failures() -> None:
    """Failed and skipped tests are told apart, and a failure is named with its reason."""
    outcome = read_report(build_report("passed", "failed", "pending", "todo"))
    assert outcome == Outcome(1, 1, 2, ("FAILED Room test 1: no",))
    assert str(outcome) == "FAILED Room test 1: no\n1 passed, 1 failed, 2 skipped"


@pytest.mark.parametrize(
    ("statuses", "complete"),
    [
        (["passed"] * TESTS, True),
        (["passed"] * (TESTS - 1), False),
        (["passed"] * (TESTS - 1) + ["failed"], False),
        (["passed"] * (TESTS - 1) + ["pending"], False),
        (["passed"] * TESTS + ["pending"], False),
    ],
)
def test_only_all_of_the_tests_are_a_pass(statuses: list[str], complete: bool) -> None:
    """A test that failed, was skipped or is not there leaves the run incomplete."""
    assert read_report(build_report(*statuses)).complete is complete


def test_a_suite_that_does_not_load_is_an_error() -> None:
    """A file without tests is not a run of zero tests."""
    with pytest.raises(SuiteBroken, match="cannot load"):
        read_report(build_report())

"""`python -m tests.conformance [URL]`: the official suite against a new server, or the given one.

Prints the tests that failed and the counts; exits with 1 unless every test passed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.conformance.suite import LONG_POLL_MS, run_suite
from tests.harness.server import TWO_WORKERS, start_server


def main(arguments: list[str]) -> int:
    if arguments:
        outcome = run_suite(arguments[0])
    else:
        with tempfile.TemporaryDirectory() as directory:
            variables = {"TOPICS_STREAM_LONG_POLL_MS": str(LONG_POLL_MS)}
            server = start_server(Path(directory), TWO_WORKERS, **variables)
            try:
                outcome = run_suite(server.url)
            finally:
                server.finish()
    print(outcome)
    return 0 if outcome.complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

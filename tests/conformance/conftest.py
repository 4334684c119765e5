"""A server with two workers and short polls, for the clients of the outside world."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.suite import LONG_POLL_MS
from tests.harness.server import TWO_WORKERS, Server, start_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    variables = {"TOPICS_STREAM_LONG_POLL_MS": str(LONG_POLL_MS)}
    started = start_server(tmp_path_factory.mktemp("conformance"), TWO_WORKERS, **variables)
    yield started
    started.finish()

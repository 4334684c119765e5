"""One server for all fuzz tests; it ends cleanly and never logged a traceback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.server import Server, start_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker; small limits bring their edges within reach."""
    started = start_server(
        tmp_path_factory.mktemp("fuzz"),
        TOPICS_MAX_BODY_BYTES="200000",
        TOPICS_MAX_BATCH_RECORDS="50",
        TOPICS_MAX_RECORD_BYTES="20000",
    )
    yield started
    started.finish()
    assert "Traceback" not in started.log(), started.log()[-8000:]

"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.family import Servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Servers that are stopped, and whose data is checked, when the test is over."""
    made = Servers(tmp_path)
    try:
        yield made
        for server in made.started:
            server.finish()
    finally:
        for server in made.started:
            if server.running:
                server.kill()

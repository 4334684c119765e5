"""An engine in a small directory, checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.driver import Driver, fast_directory, small_settings
from tests.faults.faulty import FaultyFiles
from topicsd.model.settings import Settings


@pytest.fixture
def settings() -> Iterator[Settings]:
    with fast_directory() as home:
        yield small_settings(home)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def driver(settings: Settings, files: FaultyFiles) -> Iterator[Driver]:
    made = Driver(settings, files)
    # A new directory starts with a checkpoint: have it behind us.
    made.checkpoint()
    yield made
    made.close()

"""A world of fakes for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.web.fakes import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(autouse=True, scope="session")
def _short_linger() -> Iterator[None]:
    """Connections of refused requests end soon, so that reading until the end is quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topicsd.web.app.LINGER_S", 0.05)
        yield

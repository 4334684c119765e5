"""What every kind of test shares: a quiet environment."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test sees only the TOPICS_* variables that it sets itself."""
    for name in [name for name in os.environ if name.startswith("TOPICS_")]:
        monkeypatch.delenv(name)

"""Paths inside and beside a data directory."""

from __future__ import annotations

from pathlib import Path

from topicsd.storage import paths


def test_each_data_directory_has_its_own_place_in_memory() -> None:
    """Two servers that share an ephemeral directory never share what they remove in it."""
    shared = Path("/dev/shm")
    one, two = (paths.resident(shared, Path(name)) for name in ("one", "two"))
    assert one != two
    assert one.parent == two.parent == shared
    assert one == paths.resident(shared, Path("one").absolute())

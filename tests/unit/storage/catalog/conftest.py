"""A fresh catalog for each test, checked by SQLite itself at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from topicsd.storage.catalog import CatalogReader, CatalogWriter, CreateLog

CONFIG = '{"type":"log","durability":"disk","ttl_ms":0,"cap_records":5,"cap_bytes":0}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def writer(path: Path) -> Iterator[CatalogWriter]:
    catalog = CatalogWriter(path)
    yield catalog
    assert catalog.find_damage() == []
    catalog.close()


@pytest.fixture
def reader(path: Path) -> Iterator[CatalogReader]:
    catalog = CatalogReader(path)
    yield catalog
    catalog.close()


@pytest.fixture
def new_log() -> Callable[..., CreateLog]:
    """Build a `CreateLog` with everything but its id and name filled in."""

    def build(log_id: int, name: str, row: int | None = None, epoch: int = 1) -> CreateLog:
        return CreateLog(
            id=log_id,
            row=log_id if row is None else row,
            name=name,
            kind="topic",
            epoch=epoch,
            config_json=CONFIG,
            created_ts=1_700_000_000_123,
        )

    return build

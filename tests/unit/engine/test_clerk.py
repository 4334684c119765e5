"""The clerk: changes are numbered, committed in order, and a failure is final."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from topicsd.engine.clerk import Clerk
from topicsd.storage.catalog import (
    CatalogWriter,
    CreateLog,
    DropLog,
    SaveSegment,
    Segment,
    SetMeta,
    UpdateConfig,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogWriter]:
    made = CatalogWriter(tmp_path / "catalog.sqlite")
    yield made
    made.close()


def _create(log_id: int) -> CreateLog:
    return CreateLog(
        id=log_id,
        row=log_id,
        name=f"topic{log_id}",
        kind="topic",
        epoch=1,
        config_json='{"durability":"disk"}',
        created_ts=1,
    )


def _save(log_id: int) -> SaveSegment:
    return SaveSegment(
        Segment(
            log_id=log_id,
            base_seq=1,
            rows=1,
            bytes=1,
            payload_bytes=1,
            live_rows=1,
            first_ts=1,
            last_ts=1,
            sealed_ts=1,
            checksum=1,
            state="sealed",
        )
    )


def test_changes_are_committed_in_order(catalog: CatalogWriter) -> None:
    """Each submission has a number; nothing to commit is a number too."""
    clerk = Clerk(catalog, lambda: None)
    numbers = [clerk.submit([SetMeta("key", str(value))]) for value in range(20)]
    numbers.append(clerk.submit([]))
    clerk.wait(numbers[-1])
    assert numbers == list(range(1, 22)) and clerk.done == 21
    assert catalog.meta("key") == "19"
    clerk.close()


def test_closing_commits_what_waits(catalog: CatalogWriter) -> None:
    """Then the thread ends."""
    clerk = Clerk(catalog, lambda: None)
    clerk.submit([SetMeta("key", "value")])
    clerk.close()
    assert catalog.meta("key") == "value"


def test_a_failed_commit_is_final(catalog: CatalogWriter) -> None:
    """Whoever waits hears of it, and so does everybody who asks later."""
    rung = threading.Event()
    clerk = Clerk(catalog, rung.set)
    number = clerk.submit([UpdateConfig(99, "{}")])
    with pytest.raises(LookupError):
        clerk.wait(number)
    assert rung.wait(10) and clerk.done < number
    with pytest.raises(LookupError):
        clerk.check()
    clerk.close()


def test_segments_of_dropped_logs_are_not_saved(catalog: CatalogWriter) -> None:
    """Dropped before or during the checkpoint that saves them."""
    clerk = Clerk(catalog, lambda: None)
    clerk.submit([_create(1), _create(2), _create(3)])
    clerk.submit([DropLog(1)])
    clerk.begin_checkpoint()
    clerk.submit([DropLog(2)])
    clerk.wait(clerk.submit([_save(1), _save(2), _save(3)]))
    assert [len(catalog.list_segments(log_id)) for log_id in (1, 2, 3)] == [0, 0, 1]
    clerk.begin_checkpoint()
    clerk.wait(clerk.submit([_save(2)]))
    assert catalog.list_segments(2) == []
    clerk.close()

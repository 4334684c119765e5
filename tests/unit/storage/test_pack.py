"""Pack files: blocks are taken, parked and reused, and never shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.faulty import FaultyFiles
from topicsd.storage import place
from topicsd.storage.pack import GROW_BYTES_MIN, Packs


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def packs(files: FaultyFiles, tmp_path: Path) -> Packs:
    return Packs(files, tmp_path)


def test_every_taken_block_is_another_one(packs: Packs) -> None:
    """In each class, by class."""
    taken = [packs.take(number) for number in (1, 1, 2, 3, 1, 2)]
    assert len(set(taken)) == 6
    assert [place.pack_class(location).number for location in taken] == [1, 1, 2, 3, 1, 2]


def test_a_taken_block_has_space_behind_it(packs: Packs, tmp_path: Path) -> None:
    """The file grows in steps before its blocks are handed out."""
    for _ in range(GROW_BYTES_MIN // 4096 + 1):
        location = packs.take(1)
    size = place.pack_path(tmp_path, 1).stat().st_size
    assert place.block_position(location) + 4096 <= size == 2 * GROW_BYTES_MIN


def test_a_released_block_waits_for_a_checkpoint(packs: Packs) -> None:
    """Until `settle` a crash would need what is in it."""
    first = packs.take(1)
    packs.release(first)
    assert packs.take(1) != first
    assert packs.parked() == 1
    packs.settle(1)
    assert packs.take(1) == first


def test_only_what_was_parked_before_the_checkpoint_is_freed(packs: Packs) -> None:
    """Blocks released while it ran wait for the next one."""
    early, late = packs.take(2), packs.take(2)
    packs.release(early)
    count = packs.parked()
    packs.release(late)
    packs.settle(count)
    assert packs.parked() == 1
    assert packs.take(2) == early and packs.take(2) != late


def test_a_log_may_keep_a_block_it_gave_up(packs: Packs) -> None:
    """A move that is taken back leaves the block to its log."""
    location = packs.take(1)
    packs.release(location)
    packs.keep(location)
    packs.keep(location)
    packs.settle(packs.parked())
    assert packs.take(1) != location


def test_restoring_finds_the_holes(packs: Packs) -> None:
    """Blocks that no log names are free; the others are not."""
    used = [place.pack_location(1, block) for block in (0, 2, 5)]
    packs.restore([*used, place.pack_location(3, 0), place.OWN_FILES, place.NOWHERE])
    taken = {packs.take(1) >> 4 for _ in range(4)}
    assert taken == {1, 3, 4, 6}
    assert packs.take(3) >> 4 == 1


def test_no_space_is_told_before_a_block_is_taken(packs: Packs, files: FaultyFiles) -> None:
    """The block that could not be had is had later."""
    files.refuse("allocate")
    with pytest.raises(OSError, match="No space left"):
        packs.take(1)
    files.allow()
    assert packs.take(1) == place.pack_location(1, 0)


def test_only_used_packs_are_synced(packs: Packs, files: FaultyFiles) -> None:
    """A class without a log has no file."""
    packs.take(2)
    packs.sync()
    assert files.count("sync") == 1
    packs.close()

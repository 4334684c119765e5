"""Locations: one integer says where a segment is."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicsd.model.record import ROW_BYTES
from topicsd.storage import place


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("block", [0, 1, 1000, 2**40])
def test_a_location_names_class_and_block(number: int, block: int) -> None:
    """Packed and taken apart again, without loss."""
    location = place.pack_location(number, block)
    assert place.is_packed(location)
    assert place.pack_class(location).number == number
    assert place.block_position(location) == block * place.PACK_CLASSES[number - 1].block_bytes


def test_nowhere_and_own_files_are_not_packed() -> None:
    """The two locations that are not blocks."""
    assert not place.is_packed(place.NOWHERE)
    assert not place.is_packed(place.OWN_FILES)


@pytest.mark.parametrize(
    ("number", "block_bytes", "rows_max", "dat_max"),
    [(1, 4096, 16, 3584), (2, 16384, 64, 14336), (3, 65536, 256, 57344)],
)
def test_a_block_holds_what_the_table_says(
    number: int, block_bytes: int, rows_max: int, dat_max: int
) -> None:
    """The table in the module's text, with both limits inclusive."""
    each = place.PACK_CLASSES[number - 1]
    assert (each.block_bytes, each.rows_max, each.dat_max) == (block_bytes, rows_max, dat_max)
    assert each.rows_bytes == rows_max * ROW_BYTES
    assert each.fits(rows_max, dat_max)
    assert not each.fits(rows_max + 1, 1) and not each.fits(1, dat_max + 1)


def test_names_of_files_are_numbers() -> None:
    """Segments of one log sort by seq, whatever the number of digits."""
    root = Path("root")
    assert place.dat_path(root, 7, 42) == root / "7" / "00000000000000000042.dat"
    assert place.idx_path(root, 7, 42) == root / "7" / "00000000000000000042.idx"
    assert place.pack_path(root, 2) == root / "pack-16k.blocks"
    assert place.log_directory(root, 7) == root / "7"

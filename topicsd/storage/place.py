"""Where the bytes of a segment are: small ones share pack files, larger ones own two files.

A log starts in a 4 KiB block of a pack file, moves to a 16 KiB and a 64 KiB block as it
grows, and gets `.dat` and `.idx` files of its own after that. An idle log of a few records
therefore costs one block and no inode.

A location is one integer, stored on the board and in the catalog:

    0                     nothing was written yet
    block << 4 | class    a block of pack file `class` (1, 2 or 3)
    15                    files of its own

A block holds the rows first (`rows_max` slots of 32 bytes), then the records:

    class  block    rows_max  dat_max
    1      4 KiB    16        3,584
    2      16 KiB   64        14,336
    3      64 KiB   256       57,344

Files of a segment, in `<root>/<log id>/`:

    <base seq>.dat   the records in wire form, from position 0
    <base seq>.idx   64 bytes of header, then rows; after sealing, sums and a footer
    <base seq>.tag   the tags of a sealed segment that has any (`storage.tags`)
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from topicsd.model.record import ROW_BYTES

NOWHERE: Final = 0
OWN_FILES: Final = 15

# The roots that segments may be under: the data directory, memory, and the cold directory.
DISK: Final = 0
RAM: Final = 1
COLD: Final = 2

IDX_HEADER_BYTES: Final = 64


class PackClass(NamedTuple):
    number: int
    block_bytes: int
    rows_max: int

    @property
    def rows_bytes(self) -> int:
        return self.rows_max * ROW_BYTES

    @property
    def dat_max(self) -> int:
        return self.block_bytes - self.rows_bytes

    def fits(self, rows: int, dat_bytes: int) -> bool:
        return rows <= self.rows_max and dat_bytes <= self.dat_max


PACK_CLASSES: Final = (
    PackClass(1, 4096, 16),
    PackClass(2, 16384, 64),
    PackClass(3, 65536, 256),
)


def pack_location(number: int, block: int) -> int:
    return block << 4 | number


def pack_class(location: int) -> PackClass:
    return PACK_CLASSES[(location & 15) - 1]


def block_position(location: int) -> int:
    return (location >> 4) * pack_class(location).block_bytes


def is_packed(location: int) -> bool:
    return location not in (NOWHERE, OWN_FILES)


def pack_path(root: Path, number: int) -> Path:
    return root / f"pack-{PACK_CLASSES[number - 1].block_bytes // 1024}k.blocks"


def log_directory(root: Path, log_id: int) -> Path:
    return root / str(log_id)


def dat_path(root: Path, log_id: int, base_seq: int) -> Path:
    return root / str(log_id) / f"{base_seq:020d}.dat"


def segment_paths(root: Path, log_id: int, base_seq: int) -> tuple[Path, Path, Path]:
    """All files of a segment; the .idx comes first, because without it there is no segment."""
    return (
        idx_path(root, log_id, base_seq),
        dat_path(root, log_id, base_seq),
        tag_path(root, log_id, base_seq),
    )


def tag_path(root: Path, log_id: int, base_seq: int) -> Path:
    return root / str(log_id) / f"{base_seq:020d}.tag"


def idx_path(root: Path, log_id: int, base_seq: int) -> Path:
    return root / str(log_id) / f"{base_seq:020d}.idx"

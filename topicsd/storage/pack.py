"""Pack files: blocks for logs too small to deserve files of their own.

The used blocks are those that some log's location names, so nothing about allocation is
stored: the catalog is read once at start. A block that a log left must not be reused
before a checkpoint has recorded the log's new place, because until then recovery starts
from the old one; `release` therefore parks blocks and `settle` frees those parked before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from topicsd.storage import place
from topicsd.storage.fs import Files

GROW_BYTES_MIN: Final = 1 << 20
GROW_BYTES_MAX: Final = 64 << 20


class PackFile:
    """The blocks of one class."""

    def __init__(self, files: Files, root: Path, number: int) -> None:
        self._files = files
        self._path = place.pack_path(root, number)
        self._block_bytes = place.PACK_CLASSES[number - 1].block_bytes
        self._fresh = 0
        self._free: list[int] = []
        self._capacity = 0
        self._fd = -1

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = self._files.open(self._path, create=True)
            self._capacity = self._files.size(self._fd) // self._block_bytes
        return self._fd

    def restore(self, used: list[int]) -> None:
        """Learn which blocks are taken."""
        used.sort()
        self._fresh = used[-1] + 1 if used else 0
        taken = set(used)
        self._free = [block for block in range(self._fresh) if block not in taken]

    def take(self) -> int:
        """A free block, with disk space behind it."""
        if self._free:
            return self._free.pop()
        fd = self.fd
        if self._fresh >= self._capacity:
            grown = self._capacity * self._block_bytes
            step = min(max(grown, GROW_BYTES_MIN), GROW_BYTES_MAX)
            self._files.allocate(fd, grown, step)
            self._capacity = (grown + step) // self._block_bytes
        self._fresh += 1
        return self._fresh - 1

    def give_back(self, block: int) -> None:
        self._free.append(block)

    def sync(self) -> None:
        if self._fd >= 0:
            self._files.sync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1


class Packs:
    """The three pack files of one volume."""

    def __init__(self, files: Files, root: Path) -> None:
        self._packs = {
            each.number: PackFile(files, root, each.number) for each in place.PACK_CLASSES
        }
        self._parked: list[int] = []

    def restore(self, locations: Iterable[int]) -> None:
        used: dict[int, list[int]] = {number: [] for number in self._packs}
        for location in locations:
            if place.is_packed(location):
                used[location & 15].append(location >> 4)
        for number, blocks in used.items():
            self._packs[number].restore(blocks)

    def take(self, number: int) -> int:
        """The location of a free block of class `number`."""
        return place.pack_location(number, self._packs[number].take())

    def fd(self, location: int) -> int:
        return self._packs[location & 15].fd

    def release(self, location: int) -> None:
        """Give a block up; it is reused only after `settle`."""
        self._parked.append(location)

    def keep(self, location: int) -> None:
        """Take a block out of those given up: its log stays there after all."""
        if location in self._parked:
            self._parked.remove(location)

    def parked(self) -> int:
        """How many blocks wait; pass it to `settle` once a checkpoint begun now is durable."""
        return len(self._parked)

    def settle(self, count: int) -> None:
        """Free the first `count` parked blocks."""
        for location in self._parked[:count]:
            self._packs[location & 15].give_back(location >> 4)
        del self._parked[:count]

    def sync(self) -> None:
        for pack in self._packs.values():
            pack.sync()

    def close(self) -> None:
        for pack in self._packs.values():
            pack.close()

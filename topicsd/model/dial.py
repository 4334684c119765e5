"""A number that black-box tests turn while the server runs (`TOPICS_TEST_*_FILE`).

The file holds 8 bytes, a little-endian i64, and is read again on every use, so that every
process of the server sees a turn at once. A missing file is 0.
"""

from __future__ import annotations

import struct
from pathlib import Path

_NUMBER = struct.Struct("<q")


class Dial:
    """The number in a file; what was read last counts while there is no whole one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0

    def read(self) -> int:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return self._number
        # A writer may be caught between truncating and writing: keep the last whole value.
        if len(content) == _NUMBER.size:
            self._number = _NUMBER.unpack(content)[0]
        return self._number

"""A number of a server under test, turned through a TOPICS_TEST_*_FILE.

The file holds 8 bytes, a little-endian i64, read again on every use. It is written in place
by one write of 8 bytes, so that no reader ever sees half of it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_NUMBER = struct.Struct("<q")


class ServerDial:
    """The file, and the way to turn it; it starts at 0."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_NUMBER.pack(0))

    def turn(self, number: int) -> None:
        """Make the server read `number` from its next look on."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), _NUMBER.pack(number), 0)

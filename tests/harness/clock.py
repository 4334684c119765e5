"""The clock of a server under test, moved through TOPICS_TEST_CLOCK_FILE.

The file holds 8 bytes, a little-endian i64: milliseconds the server adds to now, read again
on every use. It is written in place by one write of 8 bytes, so that a server that has the
file mapped sees the move too, and never half of it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_OFFSET = struct.Struct("<q")


class ServerClock:
    """Moves one server's time forward; a clock shared by tests never goes back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset_ms = 0
        path.write_bytes(_OFFSET.pack(0))

    def advance(self, ms: int) -> None:
        """Make the server's now `ms` milliseconds later, from its next look at the clock."""
        if ms < 0:
            raise ValueError(f"time only moves forward, not by {ms} ms")
        self.offset_ms += ms
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), _OFFSET.pack(self.offset_ms), 0)

"""The clock of a server under test, moved through TOPICS_TEST_CLOCK_FILE."""

from __future__ import annotations

from pathlib import Path

from tests.harness.dial import ServerDial


class ServerClock:
    """Moves one server's time forward; a clock shared by tests never goes back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset_ms = 0
        self._dial = ServerDial(path)

    def advance(self, ms: int) -> None:
        """Make the server's now `ms` milliseconds later, from its next look at the clock."""
        if ms < 0:
            raise ValueError(f"time only moves forward, not by {ms} ms")
        self.offset_ms += ms
        self._dial.turn(self.offset_ms)

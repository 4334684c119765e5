"""Numbers that tests turn while a server runs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from topicsd.model.dial import Dial


def turn(path: Path, number: int) -> None:
    path.write_bytes(struct.pack("<q", number))


def test_the_number_is_read_again_on_every_use(tmp_path: Path) -> None:
    """It changes the moment a test writes the file."""
    dial = Dial(tmp_path / "dial")
    for number in (0, 5, 2**63 - 1, -(2**63)):
        turn(tmp_path / "dial", number)
        assert number == dial.read()


def test_without_a_whole_number_the_last_one_counts(tmp_path: Path) -> None:
    """A file that is not there yet is 0; a half-written or removed one changes nothing."""
    path = tmp_path / "dial"
    dial = Dial(path)
    assert dial.read() == 0
    turn(path, 7)
    assert dial.read() == 7
    path.write_bytes(b"\x01\x02")
    assert dial.read() == 7
    os.unlink(path)
    assert dial.read() == 7

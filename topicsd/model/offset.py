"""Offsets of streams: a position in a log, in two spellings (streams spec 1.2, 2).

A position is an epoch, which changes when a name is created anew, and the number of entries
before it. Both spellings sort as text in the order of their positions:

    base32   26 characters of Crockford base32: u32 epoch, u64 entries, u32 zero, 128 bits
             with two zero bits in front; upper case
    padded   {epoch:016d}_{entries:016d}

`-1` and `now` are words of clients and never written by the server. Epoch 0 with no entries
is the start of any stream, in both spellings.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from topicsd.model import errors

PADDED: Final = "padded"
BASE32: Final = "base32"

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_LENGTH: Final = 26
_BASE32 = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.IGNORECASE)
_PADDED = re.compile(r"([0-9]{16})_([0-9]{16})")


class Position(NamedTuple):
    """Where in which life of a log; `entries` is also the seq of the entry before it."""

    epoch: int
    entries: int


# What stands for the two words; no stream has such an epoch.
START: Final = Position(0, 0)
NOW: Final = Position(-1, 0)


def parse_offset(text: str, field: str = "offset") -> Position:
    """A client's offset, or raise `invalid_request`."""
    if text == "-1":
        return START
    if text == "now":
        return NOW
    padded = _PADDED.fullmatch(text)
    if padded is not None:
        return Position(int(padded[1]), int(padded[2]))
    if _BASE32.fullmatch(text) is None:
        raise errors.invalid_request(f"{field} is not an offset of this server", field=field)
    number = 0
    for digit in text.upper():
        number = number << 5 | _VALUES[digit]
    if number & 0xFFFFFFFF:
        raise errors.invalid_request(f"{field} points inside an entry", field=field)
    return Position(number >> 96, number >> 32 & 0xFFFFFFFFFFFFFFFF)


def build_offset(position: Position, spelling: str) -> str:
    """The text of a position."""
    if spelling == PADDED:
        return f"{position.epoch:016d}_{position.entries:016d}"
    number = position.epoch << 96 | position.entries << 32
    return "".join(_DIGITS[number >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))

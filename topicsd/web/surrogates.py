"""Lone surrogate escapes (`"\\ud800"`) inside payloads, which are stored verbatim (API 0.3).

JSON's grammar allows them and the decoder does not. A body that has some is decoded in a
masked copy of the same length, in which each lone escape is replaced by the escape of a
noncharacter that the body does not use; payloads are then cut from the original at the same
positions. Text that we keep as text (tags, nodes, keys) must not contain the stand-in.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy

# Walks whole escapes, so that an escaped backslash is never taken for the start of one.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class Masked(NamedTuple):
    """A decodable copy of `original`, and the character that stands for lone surrogates."""

    original: bytes
    body: bytes
    stand_in: str

    def cut(self, raw: msgspec.Raw) -> bytes:
        """The original bytes of a payload decoded from the copy, which it is a view of."""
        start = _address(memoryview(raw)) - _address(memoryview(self.body))
        return self.original[start : start + len(raw)]


def mask(body: bytes) -> Masked | None:
    """Return a copy of `body` without lone surrogate escapes, or None when it has none."""
    if b"\\u" not in body or not any(match["lone"] for match in _ESCAPE.finditer(body)):
        return None
    text, lower = body.decode(), body.lower()
    for stand_in in _NONCHARACTERS:
        escape = b"\\u%04x" % ord(stand_in)
        if stand_in not in text and escape not in lower:
            masked = _ESCAPE.sub(lambda m, e=escape: e if m["lone"] else m[0], body)  # type: ignore[misc]
            return Masked(body, masked, stand_in)
    return None


def _address(view: memoryview) -> int:
    return int(numpy.frombuffer(view, numpy.uint8).ctypes.data)

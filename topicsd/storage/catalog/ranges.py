"""Ranges of names in byte order: how a prefix becomes something an index can seek.

Prefixes are compared as text, never as patterns, so `%` and `_` are ordinary characters.
SQLite's BINARY order, UTF-8's byte order and Python's order of `str` are all the order of
code points, so bounds are computed here and compared there.
"""

from __future__ import annotations

from collections.abc import Iterable

_LAST = 0x10FFFF
_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000


def plan_prefixes(prefix: str, allow: Iterable[str]) -> list[str]:
    """The fewest prefixes, in order and disjoint, of names that fit `prefix` and `allow`.

    An empty `allow` allows every name.
    """
    wanted = {max(prefix, allowed, key=len) for allowed in allow if _meet(prefix, allowed)}
    disjoint: list[str] = []
    for candidate in sorted(wanted):
        if not disjoint or not candidate.startswith(disjoint[-1]):
            disjoint.append(candidate)
    return disjoint


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def after_prefix(prefix: str) -> str | bytes:
    """The least bound above every name with `prefix`.

    Empty bytes when there is none: SQLite orders every text before every blob.
    """
    stem = prefix.rstrip(chr(_LAST))
    if not stem:
        return b""
    last = ord(stem[-1])
    return stem[:-1] + chr(_AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1)

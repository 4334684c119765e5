"""API keys: what a bearer token may do, and how one is found (API 0.2).

`KeyRing.parse` reads the text of `TOPICS_API_KEYS` once; only SHA-256 digests stay. A look-up
compares the digest of the presented token with every configured digest in constant time and
never stops early, so timing tells neither which key matched nor how much of it. No message
and no repr in this module contains any part of an entry: a misplaced colon can turn half a
secret into a "scope".
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

import msgspec

SCOPES = ("read", "write", "delete", "admin")
ALL_SCOPES = frozenset(SCOPES)

_SCOPE_WORDS: dict[str, frozenset[str]] = {
    **{scope: frozenset({scope}) for scope in SCOPES},
    **{scope[0]: frozenset({scope}) for scope in SCOPES},
    "rw": frozenset({"read", "write"}),
}
_ID_DIGITS = 12


class Key(msgspec.Struct, frozen=True):
    """One configured key: its digest, its scopes, the name prefixes it may touch."""

    digest: bytes
    scopes: frozenset[str] = ALL_SCOPES
    prefixes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """A short digest that names the key in logs and counters."""
        return self.digest.hex()[:_ID_DIGITS]

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def allows(self, name: str) -> bool:
        """Tell whether the key may touch `name`; no prefixes means any name."""
        return not self.prefixes or name.startswith(self.prefixes)

    def __repr__(self) -> str:
        return f"Key({self.id})"


class KeyRing:
    """All configured keys; falsy when there are none, which turns authentication off."""

    __slots__ = ("_keys",)

    def __init__(self, keys: tuple[Key, ...] = ()) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """Read comma-separated `key[:scopes[:prefixes]]` entries, or raise ValueError."""
        keys: dict[bytes, Key] = {}
        for number, entry in enumerate(text.split(","), start=1):
            key = _parse_entry(entry.strip(), number)
            if key.digest in keys:
                raise ValueError(f"entry {number} repeats an earlier key")
            keys[key.digest] = key
        return cls(tuple(keys.values()))

    def find(self, token: str) -> Key | None:
        """Return the key whose secret is `token`, looking at every key whatever matches."""
        presented = _digest(token)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, presented):
                found = key
        return found

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyRing) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"KeyRing({len(self._keys)} keys)"


def _digest(token: str) -> bytes:
    # Header bytes that are not UTF-8 arrive as lone surrogates: hash them, do not raise.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _parse_entry(entry: str, number: int) -> Key:
    # Prefixes contain colons ("tenant42:"), so only the first two separate fields.
    secret, scopes, prefixes = (*entry.split(":", 2), "", "")[:3]
    if not secret.strip():
        raise ValueError(f"entry {number} has an empty key")
    return Key(_digest(secret), _parse_scopes(scopes, number), _parse_prefixes(prefixes, number))


def _parse_scopes(text: str, number: int) -> frozenset[str]:
    if not text:
        return ALL_SCOPES
    granted: frozenset[str] = frozenset()
    for word in text.split("+"):
        scopes = _SCOPE_WORDS.get(word.strip())
        if scopes is None:
            raise ValueError(
                f"entry {number} has an unknown scope; "
                f"scopes are {', '.join(_SCOPE_WORDS)}, joined by +"
            )
        granted |= scopes
    return granted


def _parse_prefixes(text: str, number: int) -> tuple[str, ...]:
    if not text:
        return ()
    prefixes = tuple(prefix.strip() for prefix in text.split("|"))
    if not all(prefixes):
        # An empty prefix would match every name and undo the others.
        raise ValueError(f"entry {number} has an empty name prefix")
    return prefixes

"""The tag predicate of deletes, filters and reads (API 5): exact, or a trailing prefix.

    ["tag", "Eq", "X"]     the tag is X
    ["tag", "Glob", "X*"]  the tag starts with X
    "X"                    short for Eq

Nothing more general, so that a match is a point look-up or a range of the tag index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from topicsd.model import errors


class Match(NamedTuple):
    """A predicate on the tag."""

    text: str
    is_prefix: bool

    def accepts(self, tag: str | None) -> bool:
        """Whether a record with this tag matches; one without a tag never does."""
        if tag is None:
            return False
        return tag.startswith(self.text) if self.is_prefix else tag == self.text

    def to_tuple(self) -> list[str]:
        """The predicate as a client writes it, in full."""
        return ["tag", "Glob", f"{self.text}*"] if self.is_prefix else ["tag", "Eq", self.text]


def parse_match(raw: Any, name: str = "match") -> Match:
    """Read a predicate from decoded JSON, or raise `invalid_request` about the field `name`."""
    if isinstance(raw, str):
        return Match(raw, is_prefix=False)
    if not isinstance(raw, list) or len(raw) != 3 or not all(isinstance(part, str) for part in raw):
        raise _bad(name, f'{name} must be a string or ["tag", "Eq" | "Glob", text]')
    field, operator, text = raw
    if field != "tag":
        raise _bad(name, f'{name} can only look at "tag"')
    if operator == "Eq":
        return Match(text, is_prefix=False)
    if operator != "Glob":
        raise _bad(name, f"the operator of {name} must be Eq or Glob")
    prefix = text[:-1]
    if not text.endswith("*") or "*" in prefix:
        raise _bad(name, "a Glob is a literal prefix followed by a single *")
    return Match(prefix, is_prefix=True)


def _bad(name: str, message: str) -> errors.TopicsError:
    return errors.invalid_request(message, field=name)

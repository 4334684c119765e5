"""A request as handlers see it, whichever door it came through.

The fast lane and Sanic both build this object, so a handler cannot tell them apart. `path`
and `query_string` are still percent-encoded text; header names are looked up in lower case;
`body` is complete, decoded from its content encoding, and not yet looked into.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

from topicsd.model import errors
from topicsd.model.keys import Key
from topicsd.model.topic import U64_MAX

if TYPE_CHECKING:
    from topicsd.web.route import Route

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# More digits than any bound: the value only ever gets clamped.
_DIGITS_MAX = 18
_U64_DIGITS = 20


class Headers(Protocol):
    """What a handler needs of a header table: look-up by lower-case name."""

    def get(self, name: str, /) -> str | None: ...


class Request:
    """One request; `name`, `key` and `route` are filled in when it is admitted."""

    def __init__(
        self, method: str, path: str, query_string: str, headers: Headers, started_us: int
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers
        self.started_us = started_us
        self.body = b""
        # Time parked behind the elastic throttle.
        self.throttle_wait_us = 0
        self.name = ""
        self.params: dict[str, str] = {}
        self.key: Key | None = None
        self.route: Route | None = None

    def header(self, name: str) -> str | None:
        """The value of the header with this lower-case name, without outer blanks."""
        value = self.headers.get(name)
        return None if value is None else value.strip()

    @cached_property
    def query_pairs(self) -> list[tuple[str, str]]:
        """Query parameters in order, percent-decoded as strict UTF-8."""
        try:
            return parse_qsl(self.query_string, keep_blank_values=True, errors="strict")
        except ValueError:
            raise errors.invalid_request("the query string is not valid UTF-8") from None

    @cached_property
    def query(self) -> dict[str, str]:
        """Query parameters by name; the last of a name wins."""
        return dict(self.query_pairs)

    def query_bool(self, name: str, default: bool) -> bool:
        if not self.query_string:
            return default
        text = self.query.get(name)
        if text is None:
            return default
        if text not in _BOOLEANS:
            raise errors.invalid_request(f"{name} must be true or false", field=name)
        return _BOOLEANS[text]

    def query_number(self, name: str) -> int:
        """An unsigned number of any size; absent means 0."""
        text = self.query.get(name, "0")
        if not (text.isascii() and text.isdigit()):
            raise errors.invalid_request(f"{name} must be an unsigned integer", field=name)
        return int(text) if len(text) <= _U64_DIGITS else U64_MAX + 1

    def query_size(self, name: str, default: int, maximum: int) -> int:
        """A page size: clamped to `maximum`; 0 or absent means `default`."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()):
            raise errors.invalid_request(f"{name} must be an unsigned integer", field=name)
        if len(text) > _DIGITS_MAX:
            return maximum
        return min(int(text) or default, maximum)

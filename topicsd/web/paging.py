"""Pages of a listing: their sizes, and the opaque cursor between two of them (API 0.7)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import msgspec

from topicsd.model import errors
from topicsd.web.reply import encode

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1000

_CURSOR = msgspec.json.Decoder(dict[str, str])


def encode_cursor(after: str) -> str:
    return base64.b64encode(encode({"after": after})).decode()


def decode_cursor(cursor: str | None, is_key: Callable[[str], bool]) -> str:
    """The name or number a page starts after; one we did not make is refused (spec 2.6)."""
    if cursor is None:
        return ""
    try:
        content = _CURSOR.decode(base64.b64decode(cursor, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        content = {}
    after = content.get("after", "")
    if len(content) != 1 or not is_key(after):
        raise errors.invalid_request("the cursor is not one this server made", field="cursor")
    return after

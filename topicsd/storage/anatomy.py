"""What a record's bytes say about its index row.

A row's sum covers the record, not the row's own other fields. Those can be derived from the
record, so a damaged row is told by deriving them again. The one thing that the bytes do not
tell unambiguously is where the data ends and meta begins: there the row's claim is checked.
"""

from __future__ import annotations

from typing import Final

import msgspec

from topicsd.model.record import END, HAS_KEY, HAS_META, HAS_NODE, key_hash

_DATA: Final = b'"data":'
_TAG: Final = b'"$tag":'
_NODE: Final = b'"$node":'
_META: Final = b',"meta":'

# key_hash, node_hash, head_len, tag_len, tail_len, flags
Parts = tuple[int, ...]

_decode = msgspec.json.Decoder(str).decode


def parts_of(rest: bytes, claimed: Parts) -> Parts | None:
    """The row fields of a record, or None when its bytes are not a record's."""
    tail_len = claimed[4]
    plain = rest.endswith(END) and tail_len == len(END)
    if not plain and not _is_meta(rest, tail_len):
        return None
    flags = 0 if plain else HAS_META
    if rest.startswith(_DATA):
        return 0, 0, len(_DATA), 0, tail_len, flags
    key = node = tag_len = position = 0
    try:
        if rest.startswith(_TAG):
            tag, tag_len = _text(rest, len(_TAG))
            key, flags, position = key_hash(tag), flags | HAS_KEY, tag_len
        if rest.startswith(_NODE, position):
            name, position = _text(rest, position + len(_NODE))
            node, flags = key_hash(name), flags | HAS_NODE
    except (ValueError, msgspec.DecodeError):
        return None
    if not rest.startswith(_DATA, position):
        return None
    return key, node, position + len(_DATA), tag_len, tail_len, flags


def _is_meta(rest: bytes, tail_len: int) -> bool:
    return rest.endswith(END) and rest[len(rest) - tail_len :].startswith(_META)


def _text(rest: bytes, start: int) -> tuple[str, int]:
    """The JSON string at `start`, and the position after the comma that follows it."""
    end = start + 1
    while rest[end] != ord('"'):
        end += 2 if rest[end] == ord("\\") else 1
    return _decode(rest[start : end + 1]), end + 2

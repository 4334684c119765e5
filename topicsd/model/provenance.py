"""Where a dead-lettered job came from: three members of its meta, as text (API 10.6).

Other members stay byte for byte what they were: ours are added behind them, and taken out
again from there. Only a meta that already has some of ours elsewhere is put together anew,
from the bytes of its values.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SRC_SEQ = "$dead_letter_src_seq"

_MARK = b'"$dead_letter_'
# What we added, at the end of an object; names of topics need no escapes.
_OURS = re.compile(
    rb',?"\$dead_letter_from":"(?P<topic>[A-Za-z0-9._:-]+)",'
    rb'"\$dead_letter_deliveries":"(?P<deliveries>[0-9]+)",'
    rb'"\$dead_letter_src_seq":"(?P<seq>[0-9]+)"\}\Z'
)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


class Origin(NamedTuple):
    topic: str
    deliveries: int
    seq: int


def add_origin(meta: bytes | None, origin: Origin) -> bytes:
    """A meta that says where its job came from."""
    kept = (_without(meta) or b"{}").rstrip()
    opened = kept[:-1].rstrip()
    ours = b'"%b":"%b","%b":"%d","%b":"%d"}' % (
        FROM.encode(),
        origin.topic.encode(),
        DELIVERIES.encode(),
        origin.deliveries,
        SRC_SEQ.encode(),
        origin.seq,
    )
    return opened + (b"" if opened == b"{" else b",") + ours


def find_origin(meta: bytes | None) -> Origin | None:
    """Where a job came from, if its meta says so in our own words."""
    found = None if meta is None or _MARK not in meta else _OURS.search(meta)
    if found is None:
        return None
    return Origin(found["topic"].decode(), int(found["deliveries"]), int(found["seq"]))


def remove_origin(meta: bytes) -> bytes | None:
    """A meta as it was before; None when nothing is left of it."""
    opened = _OURS.sub(b"", meta)
    return None if opened == b"{" else opened + b"}"


def _without(meta: bytes | None) -> bytes | None:
    """A meta without members named as ours are."""
    if meta is None or _MARK not in meta:
        return meta
    if _OURS.search(meta):
        return _without(remove_origin(meta))
    try:
        members = _members(meta)
    except msgspec.DecodeError:
        # A name in it is no Unicode text: of two members with one name the last counts.
        return meta
    kept = [
        _encode(name) + b":" + bytes(value)
        for name, value in members.items()
        if name not in (FROM, DELIVERIES, SRC_SEQ)
    ]
    return b"{" + b",".join(kept) + b"}"

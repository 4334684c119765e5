"""Where a watch goes on: event ids, and which of several cursors counts (API 7.4).

An id is the whole cursor map at its moment, as base64url of JSON. A topic stands in it by its
name; one that is not the topic the session was created with (it was made anew, or found later
by a prefix) stands as `name@epoch`, so that a seq is never taken for one of another topic.
Beyond `TOPICS_INLINE` topics an id names the generation of the stream instead and lists only
what moved since that one opened; the rest is in the opening map, which the session keeps.

The session's cursors are what was sent. A client that says it has less rewinds them, one that
says more is not believed, unless the session does not know for sure what was sent (a killed
worker): then the client's word is the better one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

TOPICS_INLINE: Final = 64
ID_CHARS_MAX: Final = 1 << 20

# Epoch and seq of one topic.
Cursor = tuple[int, int]
Cursors = dict[str, Cursor]

_decode_map = msgspec.json.Decoder(dict[str, int]).decode
_encode = msgspec.json.encode


class BadId(ValueError):
    """A Last-Event-ID that no stream of ours ever sent."""


class EventId(NamedTuple):
    """A decoded id: cursors by topic, and the generation whose opening map fills the rest.

    Epoch 0 stands for the topic that the session was created with.
    """

    cursors: Cursors
    generation: int | None


def id_key(name: str, epoch: int, epochs: Mapping[str, int]) -> str:
    """How a topic stands in an id; `epochs` are those the session was created with."""
    return name if epochs.get(name) == epoch else f"{name}@{epoch}"


def encode_id(seqs: Mapping[str, int]) -> bytes:
    return base64.urlsafe_b64encode(_encode(seqs)).rstrip(b"=")


def encode_partial_id(generation: int, moved: Mapping[str, int]) -> bytes:
    return b"g%d." % generation + encode_id(moved)


def decode_id(text: str) -> EventId:
    """Read an id; raises BadId when it is not one."""
    generation = None
    if len(text) > ID_CHARS_MAX:
        raise BadId("too long")
    if text.startswith("g") and "." in text:
        number, _, text = text[1:].partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise BadId("no generation")
        generation = int(number)
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        seqs = _decode_map(raw)
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        raise BadId("not the map of a stream") from None
    if any(not 0 <= seq < 2**64 for seq in seqs.values()):
        raise BadId("seqs out of range")
    return EventId(dict(_read_entry(key, seq) for key, seq in seqs.items()), generation)


def _read_entry(key: str, seq: int) -> tuple[str, Cursor]:
    name, at, epoch = key.partition("@")
    if at and not (epoch.isascii() and epoch.isdigit() and len(epoch) < 19):
        raise BadId("no epoch")
    return name, (int(epoch) if at else 0, seq)


def resolve(
    session: Cursors,
    openings: list[tuple[int, Cursors]],
    claimed: EventId | None,
    *,
    clean: bool,
    epochs: Mapping[str, int],
    is_followed: Callable[[str], bool] = lambda name: False,
) -> Cursors:
    """The cursors a stream opens with.

    `is_followed` tells of a topic that the session does not know yet whether it would find it.
    """
    if claimed is None:
        return session
    said = {
        name: (epoch or epochs.get(name, 0), seq)
        for name, (epoch, seq) in _fill(openings, claimed).items()
    }
    resolved = {
        name: _choose(cursor, said.get(name), clean=clean) for name, cursor in session.items()
    }
    if not clean:
        # What a prefix found after the session was saved last.
        found = {name: said[name] for name in said.keys() - resolved if is_followed(name)}
        resolved |= {name: cursor for name, cursor in found.items() if cursor[0]}
    return resolved


def _choose(known: Cursor, said: Cursor | None, *, clean: bool) -> Cursor:
    if said is None or not said[0]:
        return known
    if said[0] == known[0]:
        return min(said, known) if clean else said
    # A seq of the former topic: its reader has to be told that there is another one now.
    return said if said[0] < known[0] or not clean else known


def _fill(openings: list[tuple[int, Cursors]], claimed: EventId) -> Cursors:
    """The whole map of an id."""
    if claimed.generation is None:
        return claimed.cursors
    known = dict(openings)
    opening = known.get(claimed.generation)
    if opening is None:
        # Older than what is kept: whatever it did not name was nowhere before the oldest.
        opening = openings[0][1] if openings else {}
    return {**opening, **claimed.cursors}

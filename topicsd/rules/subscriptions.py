"""Decisions about subscriptions, without I/O: globs, phases, backoff, acknowledgements.

The phases of a wake (spec 1.16):

    idle    nobody is woken; entries that are not acknowledged start a wake
    waking  a webhook is on its way or to be repeated, or a wake event is out
    live    somebody holds the lease, until it is given back or runs out

A generation is one wake. Its number and id fence off everybody who was woken before.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Final

BACKOFF_MS_MIN: Final = 1000
BACKOFF_MS_MAX: Final = 60_000
JITTER: Final = 0.2
# 2 to this power is above the largest backoff in seconds.
_DOUBLINGS_MAX: Final = 6


class Phase(StrEnum):
    IDLE = "idle"
    WAKING = "waking"
    LIVE = "live"


@lru_cache(4096)
def compile_glob(pattern: str) -> Callable[[str], object]:
    """A function that is true for the paths a glob matches, all of it.

    `*` stands for characters of one segment, `**` as a whole segment for any number of them.
    """
    parts: list[str] = []
    segments = pattern.split("/")
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "**":
            parts.append(r"(?:[^/]+(?:/[^/]+)*)?" if last else r"(?:[^/]+/)*")
            continue
        text = re.sub(r"\*+", "*", segment)
        body = "[^/]*".join(re.escape(piece) for piece in text.split("*"))
        # A star alone stands for a segment, which is never empty.
        parts.append(("[^/]+" if text == "*" else body) + ("" if last else "/"))
    joined = "".join(parts)
    if len(segments) > 1 and segments[-1] == "**":
        # `a/**` is also `a` itself.
        joined = joined.removesuffix(r"/(?:[^/]+(?:/[^/]+)*)?") + r"(?:/[^/]+)*"
    return re.compile(joined, re.DOTALL).fullmatch


def literal_prefix(pattern: str) -> str:
    """What every path that a glob matches begins with."""
    found = pattern.partition("*")[0]
    return found.removesuffix("/") if pattern[len(found) :] == "**" else found


def backoff_ms(attempt: int, jitter: float) -> int:
    """How long to wait after the failure number `attempt`; `jitter` is within 0 and 1."""
    base = min(BACKOFF_MS_MIN << min(attempt - 1, _DOUBLINGS_MAX), BACKOFF_MS_MAX)
    return round(base * (1 - JITTER + 2 * JITTER * jitter))


def is_pending(acked: tuple[int, int], tail: tuple[int, int] | None) -> bool:
    """Whether a stream has entries after what is acknowledged; another life is all new."""
    if tail is None or not tail[1]:
        return False
    return acked[1] < tail[1] if acked[0] == tail[0] else True


def may_ack(
    asked: tuple[int, int], acked: tuple[int, int], tail: tuple[int, int] | None, inherited: int = 0
) -> bool:
    """Whether a position can be acknowledged: of this life, not back, not past the tail.

    Up to `inherited` entries the positions of a fork have the epoch of its source.
    """
    epoch, entries = asked
    if tail is None or (epoch, entries) == (0, 0) or entries > tail[1]:
        return False
    if epoch != tail[0] and entries > inherited:
        return False
    return acked[0] != tail[0] or entries >= acked[1]


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def is_token(token: str, token_hash: str) -> bool:
    """Whether a token is the one, found out in a time that tells nothing."""
    return bool(token_hash) and hmac.compare_digest(hash_token(token), token_hash)


def is_fenced(asked: tuple[str, int], current: tuple[str, int], phase: Phase) -> bool:
    """Whether who asks was woken by a generation that is over."""
    return phase is Phase.IDLE or asked != current

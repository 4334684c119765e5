"""Idempotent producers (streams spec 1.5): what becomes of a numbered append."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from topicsd.model.stream import Producer


class Verdict(Enum):
    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    # A later incarnation of the producer has been here.
    FENCED = "fenced"
    # A new incarnation must begin with seq 0.
    BAD_START = "bad_start"
    GAP = "gap"


class Known(NamedTuple):
    """The last append of a producer that was accepted."""

    epoch: int
    seq: int


def judge(known: Known | None, producer: Producer) -> tuple[Verdict, int]:
    """What to do with an append, and the seq that was expected."""
    if known is None:
        return (Verdict.ACCEPT if producer.seq == 0 else Verdict.GAP), 0
    if producer.epoch < known.epoch:
        return Verdict.FENCED, known.seq + 1
    if producer.epoch > known.epoch:
        return (Verdict.ACCEPT if producer.seq == 0 else Verdict.BAD_START), 0
    expected = known.seq + 1
    if producer.seq < expected:
        return Verdict.DUPLICATE, expected
    return (Verdict.ACCEPT if producer.seq == expected else Verdict.GAP), expected

"""What happens to the jobs of a queue: the events of its lease log, and the names of leases.

Every change of who holds what is one of these events (DESIGN 10). They ride in the WAL frame
of the commit that made them and are applied to a table (`rules.leases`), now and on replay.
Times are milliseconds of the wall clock and absolute, so that an event means the same
whenever it is applied.
"""

from __future__ import annotations

import re

import msgspec

# A lease is a number of so many bits, which fits a signed 64-bit column.
LEASE_BITS = 60
_LEASE = re.compile(r"lease_[0-9a-f]{1,16}\Z")


class Claimed(msgspec.Struct, array_like=True, tag="c", frozen=True):
    """Jobs are leased to a node; the first has this lease, each further one the next."""

    seqs: list[int]
    node: str
    lease: int
    deadline: int
    # Where the queue goes on handing out jobs that were never delivered.
    cursor: int


class Released(msgspec.Struct, array_like=True, tag="r", frozen=True):
    """Leases end without an ack; the jobs are claimable from `due` on."""

    seqs: list[int]
    due: int


class Extended(msgspec.Struct, array_like=True, tag="x", frozen=True):
    """Leases go on until a new deadline."""

    seqs: list[int]
    deadline: int


class Acked(msgspec.Struct, array_like=True, tag="a", frozen=True):
    """Jobs are done; the same frame deletes their records."""

    seqs: list[int]


class Delayed(msgspec.Struct, array_like=True, tag="d", frozen=True):
    """New jobs that are not claimable before `due`."""

    seqs: list[int]
    due: int


class DeadLettered(msgspec.Struct, array_like=True, tag="l", frozen=True):
    """Jobs moved to the dead-letter topic; the same frame holds their copies."""

    seqs: list[int]


Event = Claimed | Released | Extended | Acked | Delayed | DeadLettered

encode_events = msgspec.msgpack.encode
decode_events = msgspec.msgpack.Decoder(list[Event]).decode


def lease_text(lease: int) -> str:
    """A lease as clients see it."""
    return f"lease_{lease:x}"


def parse_lease(text: str) -> int | None:
    """The number of a lease; None when the text is none of ours."""
    return int(text[len("lease_") :], 16) if _LEASE.match(text) else None

"""Replies of the queue endpoints, as types for the document."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from topicsd.web.docs.shapes import Performance, Record


class ClaimedJob(Record, kw_only=True):
    """A job and the lease under which it was delivered."""

    lease_id: str
    deadline: int
    deliveries: int


class ClaimReply(msgspec.Struct):
    """The leased jobs, by ascending seq."""

    topic: str
    claimed: list[ClaimedJob]
    count: int
    ready: int
    performance: Performance


class AckReply(msgspec.Struct):
    """How many jobs are done."""

    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class NackReply(msgspec.Struct):
    """How many jobs were given back."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class ExtendReply(msgspec.Struct):
    """The leases that go on, and until when."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    performance: Performance


class QueuedJob(Record, kw_only=True):
    """A job as it is now."""

    deliveries: int
    holder: str | UnsetType = msgspec.field(name="node", default=UNSET)
    deadline: int | UnsetType = UNSET
    due: int | UnsetType = UNSET


class JobsReply(msgspec.Struct):
    """One page of the jobs in a state."""

    topic: str
    state: Literal["ready", "in_flight", "delayed", "dead"]
    jobs: list[QueuedJob]
    performance: Performance
    next_cursor: str | UnsetType = UNSET


class RedriveReply(msgspec.Struct):
    """How many dead jobs were moved back."""

    topic: str
    redriven: int
    ready: int
    performance: Performance

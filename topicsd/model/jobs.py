"""Queue commands and their replies (API 10): a part of the messages of the bridge.

The engine says which jobs a claimer gets; the worker reads their bytes itself.
"""

from __future__ import annotations

import msgspec


class ClaimJobs(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Lease up to `max` jobs to a node (API 10.2); a `lease_ms` of 0 is the queue's own.

    A claim that waits for others is dropped when its worker leaves.
    """

    topic: str
    node: str
    max: int
    lease_ms: int
    worker: int = 0


class AckJobs(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Complete jobs (API 10.4); `leases`, if any, has one lease for each seq."""

    topic: str
    node: str
    seqs: list[int]
    leases: list[int]


class NackJobs(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Give jobs back, claimable after `delay_ms` (API 10.5)."""

    topic: str
    node: str
    seqs: list[int]
    leases: list[int]
    delay_ms: int


class ExtendJobs(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Let leases run `lease_ms` from now (API 10.6)."""

    topic: str
    node: str
    seqs: list[int]
    leases: list[int]
    lease_ms: int


class QueueState(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Ask for the counters of a queue (API 10.7)."""

    topic: str


class ListJobs(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Ask for jobs in one state (ready, in_flight, delayed) above a seq, ascending."""

    topic: str
    state: str
    after_seq: int
    limit: int


class Redrive(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Move these records of the queue's dead-letter topic back, if they came from it."""

    topic: str
    seqs: list[int]


class OpenWork(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Begin to claim for a stream (API 10.8), which its worker numbers."""

    topic: str
    worker: int
    stream: int
    node: str
    max: int
    lease_ms: int


class NextWork(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Answered when there are jobs for a stream, or when it must end."""

    worker: int
    stream: int


class CloseWork(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A stream is over: whatever it was given and did not settle is free again."""

    worker: int
    stream: int


QueueCommand = (
    ClaimJobs
    | AckJobs
    | NackJobs
    | ExtendJobs
    | QueueState
    | ListJobs
    | Redrive
    | OpenWork
    | NextWork
    | CloseWork
)


class JobsClaimed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Leased jobs, ascending; the first has this lease, each further one the next."""

    seqs: list[int]
    lease: int
    deadline: int
    deliveries: list[int]
    ready: int


class JobsAcked(msgspec.Struct, array_like=True, tag=True):
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    # Filled in when the reply was held for a sync; 0 otherwise.
    fsync_us: int = 0


class JobsNacked(msgspec.Struct, array_like=True, tag=True, frozen=True):
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int


class JobsExtended(msgspec.Struct, array_like=True, tag=True, frozen=True):
    extended: list[int]
    skipped: list[int]
    deadline: int


class QueueCounts(msgspec.Struct, array_like=True, tag=True, frozen=True):
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int


class ListedJob(msgspec.Struct, array_like=True, frozen=True):
    """A job for inspection; `at` is its deadline, or when it is due, or 0."""

    seq: int
    deliveries: int
    lease: int
    node: str
    at: int


class JobsListed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    jobs: list[ListedJob]


class Redriven(msgspec.Struct, array_like=True, tag=True, frozen=True):
    moved: int
    ready: int


class WorkOpened(msgspec.Struct, array_like=True, tag=True, frozen=True):
    pass


class WorkEnded(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """No more jobs for a stream: its queue is deleted, or nobody knows of it any more."""

    deleted: bool


class WorkClosed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    released: int


QueueReply = (
    JobsClaimed
    | JobsAcked
    | JobsNacked
    | JobsExtended
    | QueueCounts
    | JobsListed
    | Redriven
    | WorkOpened
    | WorkEnded
    | WorkClosed
)

"""What a worker asks of the engine, and what it answers: the messages of the bridge.

Arrays on the wire (msgpack), tagged by class name. Every request carries names as text;
ids are the engine's business. A refusal crosses the bridge as `Failed` and becomes a
`TopicsError` again on the other side.
"""

from __future__ import annotations

from typing import Any

import msgspec

from topicsd.model.errors import TopicsError
from topicsd.model.jobs import QueueCommand, QueueReply
from topicsd.model.match import Match
from topicsd.model.router import RouterConfig
from topicsd.model.stream import StreamCommand, StreamReply
from topicsd.model.subscription import SubscriptionCommand, SubscriptionReply
from topicsd.model.topic import TopicConfig

# Where a watch session stands: topic name to (epoch, seq).
Cursors = dict[str, tuple[int, int]]
# A generation of a session, and the cursors it opened with.
Opening = tuple[int, Cursors]


class PutTopic(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Create a topic or replace its configuration (API 1.1)."""

    topic: str
    config: TopicConfig
    # False when the request left `type` out: an existing topic then keeps its own.
    type_given: bool


class DeleteTopic(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Remove a topic with all its records (API 1.4)."""

    topic: str
    if_empty: bool


class FindTopic(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Ask the writer whether a name exists, after a worker's own look-up missed."""

    topic: str


class Append(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Append records already rendered by `model.record.pack_record` (API 2)."""

    topic: str
    count: int
    forms: bytes
    rows: bytes
    payload_bytes: int
    create: bool | None = None
    config: TopicConfig | None = None
    idempotency_key: str | None = None
    disable_backpressure: bool = False
    # For jobs that are not claimable at once: (place in the batch, milliseconds).
    delays: list[tuple[int, int]] = []


class WriteMany(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Append to several topics, all or nothing; no topic is named twice."""

    writes: list[Append]


class DeleteRecords(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Delete records below a seq and/or by tag (API 5); at least one is given."""

    topic: str
    before_seq: int | None
    match: Match | None


class CreateWatch(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Create a watch session (API 7.1); `spec` is JSON text that only workers read."""

    wid: str
    # Id of the creating key, "" without auth.
    key: str
    spec: str
    cursors: Cursors


class AttachWatch(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Take a session for a stream, from another stream if need be (API 7.2)."""

    wid: str
    key: str
    worker: int
    # From a worker that has been serving the stream all along: it knows better than we do,
    # unless somebody else took over after the generation that it served.
    known: Cursors | None
    generation: int = 0


class HoldWatch(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Answered when the stream of this generation must end, and not before."""

    wid: str
    generation: int


class DetachWatch(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Give a session back, with the cursors of what was sent."""

    wid: str
    generation: int
    cursors: Cursors


class SaveCursors(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """How far open streams got: (wid, generation, cursors) of each that moved."""

    saves: list[tuple[str, int, Cursors]]


class Join(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A worker says who it is, first of all on its connection."""

    worker: int


class Leave(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A worker's connection is lost; the engine's side of the bridge says so itself."""

    worker: int


class AwaitSynced(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Answered when everything committed to a topic so far is synced."""

    topic: str


class PutRouter(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Create a router or replace its configuration (API 6.1)."""

    router: str
    config: RouterConfig
    create_dest: bool


class DeleteRouter(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Stop forwarding and forget the router (API 6.4)."""

    router: str


class GetRouter(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """One router, once it has forwarded what its source holds now (API 6.2)."""

    router: str


class ListRouters(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Routers by name, after `after` (API 6.3); an empty `allow` allows every name."""

    prefix: str
    source: str | None
    dest: str | None
    after: str
    limit: int
    allow: tuple[str, ...]


class CatchUp(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Answered when a destination has what its source holds now, or will not soon."""

    topic: str


Command = (
    PutTopic
    | DeleteTopic
    | FindTopic
    | Append
    | WriteMany
    | DeleteRecords
    | CreateWatch
    | AttachWatch
    | HoldWatch
    | DetachWatch
    | SaveCursors
    | Join
    | Leave
    | AwaitSynced
    | QueueCommand
    | PutRouter
    | DeleteRouter
    | GetRouter
    | ListRouters
    | CatchUp
    | StreamCommand
    | SubscriptionCommand
)


class TopicPut(msgspec.Struct, array_like=True, tag=True, frozen=True):
    created: bool
    config: TopicConfig


class TopicDeleted(msgspec.Struct, array_like=True, tag=True, frozen=True):
    deleted: bool
    routers_removed: list[str]


class TopicFound(msgspec.Struct, array_like=True, tag=True, frozen=True):
    found: bool


class Appended(msgspec.Struct, array_like=True, tag=True):
    first_seq: int
    last_seq: int
    head_seq: int
    created: bool
    deduped: bool
    wal_append_us: int
    # Filled in when the reply was held for a sync; 0 otherwise.
    fsync_us: int = 0


class Written(msgspec.Struct, array_like=True, tag=True):
    """One answer for each part of a `WriteMany`, in its order; times are of the whole."""

    parts: list[Appended]
    wal_append_us: int = 0
    fsync_us: int = 0


class RecordsDeleted(msgspec.Struct, array_like=True, tag=True, frozen=True):
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class WatchCreated(msgspec.Struct, array_like=True, tag=True, frozen=True):
    pass


class WatchAttached(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A session as its new stream finds it.

    `openings` are the last few generations with the cursors each opened with, this one
    last. Unless `clean`, an earlier stream may have sent more than `cursors` says.
    """

    generation: int
    spec: str
    cursors: Cursors
    openings: list[Opening]
    clean: bool


class WatchEnded(msgspec.Struct, array_like=True, tag=True, frozen=True):
    # taken_over: another stream has it; detached: given back; gone: no such hold.
    reason: str


class WatchDetached(msgspec.Struct, array_like=True, tag=True, frozen=True):
    # False when another stream has taken the session since: nothing was changed.
    ok: bool


class CursorsSaved(msgspec.Struct, array_like=True, tag=True, frozen=True):
    pass


class Joined(msgspec.Struct, array_like=True, tag=True, frozen=True):
    pass


class Synced(msgspec.Struct, array_like=True, tag=True, frozen=True):
    epoch: int
    head_seq: int


class RouterPut(msgspec.Struct, array_like=True, tag=True, frozen=True):
    created: bool


class RouterDeleted(msgspec.Struct, array_like=True, tag=True, frozen=True):
    deleted: bool


class RouterFound(msgspec.Struct, array_like=True, tag=True, frozen=True):
    router: str
    config: RouterConfig
    forwarded_total: int


class RoutersListed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    routers: list[RouterFound]


class CaughtUp(msgspec.Struct, array_like=True, tag=True, frozen=True):
    # False when the destination refuses, or it took too long.
    done: bool


class Failed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    code: str
    message: str
    detail: dict[str, Any] | None = None
    retry_after_ms: int | None = None

    @classmethod
    def of(cls, error: TopicsError) -> Failed:
        return cls(error.code, error.message, error.detail, error.retry_after_ms)

    def error(self) -> TopicsError:
        return TopicsError(self.code, self.message, self.detail, self.retry_after_ms)


Reply = (
    TopicPut
    | TopicDeleted
    | TopicFound
    | Appended
    | Written
    | RecordsDeleted
    | WatchCreated
    | WatchAttached
    | WatchEnded
    | WatchDetached
    | CursorsSaved
    | Joined
    | Synced
    | QueueReply
    | RouterPut
    | RouterDeleted
    | RouterFound
    | RoutersListed
    | CaughtUp
    | StreamReply
    | SubscriptionReply
    | Failed
)

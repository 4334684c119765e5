"""Subscriptions: which streams each one follows, how far it got, and who is to be woken.

All of them are in memory and each change goes to the catalog before anybody hears of it. An
append only notes that its log moved; `step`, at the end of the batch, links streams that are
new to a glob and starts wakes. A crash in between loses nothing: a start looks at all streams
anew, and those that a glob matches without a link had their first append after it.

Who is woken and how that goes on is the business of `wakes`.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from topicsd.engine.commit import THIS_BATCH
from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.model.subscription import LinkedStream, Place, SubscriptionConfig
from topicsd.rules.subscriptions import Phase, compile_glob, is_pending, literal_prefix
from topicsd.storage.catalog import (
    LinkRecord,
    SaveLinks,
    SaveSubscription,
    SetMeta,
    SubscriptionRecord,
)

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

EXPLICIT: Final = "explicit"
GLOB: Final = "glob"
# Logs whose followers are remembered, and streams named in one wake.
FOLLOWERS_MAX: Final = 65_536
WAKE_STREAMS_MAX: Final = 1000
_PAGE: Final = 1000
_SEED_KEY: Final = "signing_seed"
_SEED_BYTES: Final = 32


class _Stored(msgspec.Struct):
    """What the catalog keeps of a subscription as JSON."""

    config: SubscriptionConfig
    place: Place


class Link(msgspec.Struct):
    """A stream that is followed, and the position acknowledged."""

    path: str
    link_type: str
    acked: tuple[int, int] = (0, 0)


class Hold(NamedTuple):
    """A worker that waits for a webhook to send."""

    ticket: Ticket
    worker: int


class Subscription(msgspec.Struct, eq=False):
    """One subscription and the state of its wake."""

    id: str
    config: SubscriptionConfig
    place: Place
    config_hash: str
    created_ts: int
    phase: Phase = Phase.IDLE
    generation: int = 0
    wake_id: str = ""
    holder: str = ""
    token_hash: str = ""
    lease_until: int = 0
    attempt: int = 0
    next_retry_ts: int = 0
    links: dict[str, Link] = {}
    # Streams that have, or may have, entries to acknowledge.
    pending: dict[str, None] = {}
    # Of a webhook under way: the worker that sends it, its token, and the tails it names.
    worker: int | None = None
    token: str = ""
    snapshot: dict[str, tuple[int, int]] = {}

    def follows(self, path: str) -> bool:
        """Whether appends to a stream concern this one; never those to its own wake stream."""
        config = self.config
        if path == config.wake_stream:
            return False
        glob = config.pattern
        return path in self.links or (glob is not None and compile_glob(glob)(path) is not None)

    def record(self) -> SubscriptionRecord:
        stored = msgspec.json.encode(_Stored(self.config, self.place)).decode()
        return SubscriptionRecord(
            self.id,
            stored,
            self.config_hash,
            self.created_ts,
            self.phase,
            self.generation,
            self.wake_id,
            self.holder,
            self.token_hash,
            self.lease_until,
            self.attempt,
            self.next_retry_ts,
        )


def _load(record: SubscriptionRecord) -> Subscription:
    stored = msgspec.json.decode(record.config_json, type=_Stored)
    return Subscription(
        record.id,
        stored.config,
        stored.place,
        record.config_hash,
        record.created_ts,
        Phase(record.phase),
        generation=record.generation,
        wake_id=record.wake_id,
        holder=record.holder,
        token_hash=record.token_hash,
        lease_until=record.lease_until,
        attempt=record.attempt,
        next_retry_ts=record.next_retry_ts,
    )


def _is_stream(log: Log) -> bool:
    return log.config.stream is not msgspec.UNSET


class Subscriptions:
    """All subscriptions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._all = {each.id: _load(each) for each in engine.catalog.list_subscriptions()}
        for path in engine.catalog.list_links():
            link = Link(path.path, path.link_type, (path.epoch, path.seq))
            self._all[path.subscription].links[path.path] = link
        self._followers: dict[int, tuple[Subscription, ...]] = {}
        self._seed = bytes.fromhex(engine.catalog.meta(_SEED_KEY) or "")
        # Subscriptions to look at, with the stream that moved, if it was one.
        self.due: dict[Subscription, str] = {}
        # Workers that wait for a webhook to send.
        self.holds: deque[Hold] = deque()
        batch = Batch()
        for each in self._all.values():
            self.link_existing(batch, each, at_tail=False)
            for link in each.links.values():
                if is_pending(link.acked, self.tail(link.path)):
                    each.pending[link.path] = None
            self.due[each] = ""
        if batch.changes:
            engine.catalog.commit(batch.changes)

    def find(self, name: str) -> Subscription | None:
        return self._all.get(name)

    def list_all(self) -> list[Subscription]:
        return list(self._all.values())

    def add(self, found: Subscription) -> None:
        self._all[found.id] = found
        self.forget_followers()

    def remove(self, found: Subscription) -> None:
        del self._all[found.id]
        self.due.pop(found, None)
        self.forget_followers()

    def forget_followers(self) -> None:
        """Who follows what has changed."""
        self._followers.clear()

    def note_moved(self, log: Log) -> None:
        """A log was touched; called for every log of every batch."""
        if not self._all or not log.head_seq:
            return
        followers = self._followers.get(log.id)
        if followers is None:
            followers = self._find_followers(log)
        for each in followers:
            link = each.links.get(log.name)
            if link is None or is_pending(link.acked, (log.epoch, log.head_seq)):
                each.pending[log.name] = None
                self.due[each] = log.name

    def _find_followers(self, log: Log) -> tuple[Subscription, ...]:
        is_stream = _is_stream(log)
        found = tuple(
            each
            for each in self._all.values()
            if (is_stream or log.name in each.links) and each.follows(log.name)
        )
        if len(self._followers) >= FOLLOWERS_MAX:
            self._followers.clear()
        self._followers[log.id] = found
        return found

    def tail(self, path: str) -> tuple[int, int] | None:
        """Where a stream ends; None when there is none of that name."""
        log = self._engine.registry.find(path)
        if log is None or log.gone or log.config.type == "queue":
            return None
        return log.epoch, log.head_seq

    def link(self, batch: Batch, found: Subscription, links: list[Link]) -> None:
        """Follow streams, or keep that they are followed."""
        for link in links:
            found.links[link.path] = link
        self.save_links(batch, found, links)

    def save_links(self, batch: Batch, found: Subscription, links: list[Link]) -> None:
        records = [LinkRecord(found.id, each.path, each.link_type, *each.acked) for each in links]
        if records:
            batch.changes.append(SaveLinks(records))

    def link_existing(self, batch: Batch, found: Subscription, *, at_tail: bool) -> None:
        """Link the streams a glob matches: at their tail, or all that has been appended."""
        if found.config.pattern is None:
            return
        engine, links, after = self._engine, [], ""
        names = {log.name for log in engine.registry.list_pending() if _is_stream(log)}
        prefix = literal_prefix(found.config.pattern)
        while True:
            page = engine.catalog.list_logs(prefix, after, _PAGE, kind="stream")
            names.update(record.name for record in page)
            for name in names:
                tail = self.tail(name)
                if name in found.links or tail is None or not found.follows(name):
                    continue
                if at_tail or tail[1]:
                    links.append(Link(name, GLOB, tail if at_tail else (0, 0)))
            names.clear()
            if len(page) < _PAGE:
                break
            after = page[-1].name
        self.link(batch, found, links)

    def save(self, batch: Batch, found: Subscription, outcome: Outcome | None = None) -> None:
        """Send the state to the catalog; `outcome` waits for that."""
        batch.changes.append(SaveSubscription(found.record()))
        if outcome is not None:
            outcome.need.catalog = THIS_BATCH

    def seed(self, batch: Batch, outcome: Outcome) -> bytes:
        """The seed of the signing key, made at the first call."""
        if not self._seed:
            self._seed = secrets.token_bytes(_SEED_BYTES)
            batch.changes.append(SetMeta(_SEED_KEY, self._seed.hex()))
        # The one who made it may still be on its way to the catalog.
        outcome.need.catalog = THIS_BATCH
        return self._seed

    def describe(self, found: Subscription, paths: list[str]) -> list[LinkedStream]:
        described = []
        for path in paths:
            link, tail = found.links[path], self.tail(path)
            pending = is_pending(link.acked, tail)
            described.append(LinkedStream(path, link.link_type, link.acked, tail, pending))
        return described

    def wake_links(self, found: Subscription) -> list[LinkedStream]:
        """The streams a wake names: those with entries to acknowledge come first."""
        paths = [path for path in found.pending if path in found.links]
        if len(paths) < WAKE_STREAMS_MAX:
            paths += [path for path in found.links if path not in found.pending]
        return self.describe(found, paths[:WAKE_STREAMS_MAX])

    def has_pending(self, found: Subscription) -> bool:
        """Whether there is something to acknowledge; forgets streams without it."""
        for path in list(found.pending):
            link = found.links.get(path)
            if link is not None and is_pending(link.acked, self.tail(path)):
                return True
            del found.pending[path]
        return False

"""Watch sessions: durable in the catalog, in memory only while something is going on.

A session is in memory while it has a stream, and while a change of it is on its way to the
catalog, which another thread writes: until then it is answered from here (as in `registry`).
What a session follows and how far it got is text, held here only until the catalog has it,
so an open session costs a few hundred bytes whatever it follows.

A session without a stream expires `watch_session_ttl_ms` after its last use. An open one
never does: who holds it is the business of `attach`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from topicsd.engine.commit import THIS_BATCH
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import AttachWatch, CreateWatch, Cursors, Opening, WatchCreated
from topicsd.storage.catalog import (
    WATCH_IDLE,
    WATCH_OPEN,
    AddWatch,
    CatalogWriter,
    Change,
    DropWatches,
    WatchRecord,
)

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

# One look for expired sessions takes at most so many; the next one goes on.
EXPIRED_MAX = 1000

decode_cursors = msgspec.json.Decoder(Cursors).decode
decode_openings = msgspec.json.Decoder(list[Opening]).decode


def encode(value: Cursors | list[Opening]) -> str:
    return msgspec.json.encode(value).decode()


class Claim(NamedTuple):
    """A stream that waits for a session which another one still holds."""

    ticket: Ticket
    command: AttachWatch
    deadline_us: int


class Parked(NamedTuple):
    """A command that is answered when its time has come."""

    ticket: Ticket


class Texts(NamedTuple):
    """The part of a session that is large and rarely looked at."""

    spec: str
    cursors: str
    openings: str


class Watch(msgspec.Struct, eq=False):
    """One session, as far as it is in memory."""

    wid: str
    key: str
    generation: int
    state: int
    last_access_ts: int
    # Each only while the catalog may not have it.
    spec: str | None = None
    cursors: str | None = None
    openings: str | None = None
    # Changes on their way to the catalog.
    changes: int = 0
    dropped: bool = False
    # Of an open session: who has it, who is to be told when that ends, and who is next.
    worker: int = 0
    hold: Parked | None = None
    claims: deque[Claim] = msgspec.field(default_factory=deque)

    @property
    def open(self) -> bool:
        return self.state == WATCH_OPEN


class Watches:
    """All sessions, of which those in use are in memory."""

    def __init__(self, catalog: CatalogWriter, ttl_ms: int) -> None:
        self._catalog = catalog
        self._ttl_ms = ttl_ms
        self._live: dict[str, Watch] = {}
        self.count = catalog.count_watches()
        # Workers whose connection stands; nobody else can hold a session.
        self.workers: set[int] = set()
        # Sessions with claims, by wid.
        self.claimed: dict[str, Watch] = {}
        self.expire_due_us = 0

    def find(self, wid: str) -> Watch | None:
        """The session of that wid, also one that is old enough to expire."""
        watch = self._live.get(wid)
        if watch is None:
            found = self._catalog.find_watch(wid)
            if found is None:
                return None
            return Watch(found.wid, found.key, found.generation, found.open, found.last_access_ts)
        return None if watch.dropped else watch

    def find_held(self, wid: str, generation: int) -> Watch | None:
        """The session, if its stream is still that generation."""
        watch = self._live.get(wid)
        if watch is None or not watch.open or watch.generation != generation:
            return None
        return watch

    def list_open(self) -> Iterator[Watch]:
        return (watch for watch in list(self._live.values()) if watch.open)

    def texts(self, watch: Watch) -> Texts:
        """What a session follows and how far it got, from memory or from the catalog."""
        spec, cursors, openings = watch.spec, watch.cursors, watch.openings
        if spec is None or cursors is None or openings is None:
            stored = self._catalog.find_watch(watch.wid)
            assert stored is not None, f"watch session {watch.wid} is not in the catalog"
            spec = stored.spec if spec is None else spec
            cursors = stored.cursors if cursors is None else cursors
            openings = stored.openings if openings is None else openings
        return Texts(spec, cursors, openings)

    def stage(self, batch: Batch, change: Change, watches: Sequence[Watch]) -> None:
        """Send a change of these sessions to the catalog; they stay in memory until then."""
        for watch in watches:
            watch.changes += 1
            self._live[watch.wid] = watch
        batch.changes.append(change)
        batch.settles.append(lambda: self._settle(watches))

    def add(self, batch: Batch, record: WatchRecord) -> None:
        watch = Watch(
            record.wid,
            record.key,
            record.generation,
            record.open,
            record.last_access_ts,
            record.spec,
            record.cursors,
            record.openings,
        )
        self.count += 1
        self.stage(batch, AddWatch(record), [watch])

    def is_old(self, watch: Watch, now_ms: int) -> bool:
        return not watch.open and watch.last_access_ts + self._ttl_ms < now_ms

    def expire(self, batch: Batch, now_ms: int) -> bool:
        """Drop sessions that nobody used for too long; True when there may be more."""
        wids = self._catalog.list_old_watches(now_ms - self._ttl_ms, EXPIRED_MAX)
        # Only memory knows what has happened since the catalog's last commit.
        found = [self._live.get(wid) or Watch(wid, "", 0, WATCH_IDLE, 0) for wid in wids]
        old = [watch for watch in found if not watch.dropped and self.is_old(watch, now_ms)]
        for watch in old:
            watch.dropped = True
        if old:
            self.count -= len(old)
            self.stage(batch, DropWatches([watch.wid for watch in old]), old)
        return len(wids) == EXPIRED_MAX

    def _settle(self, watches: Sequence[Watch]) -> None:
        """The catalog has a change; after the last one the session may leave memory."""
        for watch in watches:
            watch.changes -= 1
            if watch.changes:
                continue
            watch.spec = watch.cursors = watch.openings = None
            if not watch.open and self._live.get(watch.wid) is watch:
                del self._live[watch.wid]

    def __len__(self) -> int:
        """How many sessions are in memory."""
        return len(self._live)


def apply_create(
    engine: Engine, batch: Batch, outcome: Outcome, command: CreateWatch
) -> WatchCreated:
    watches, now_ms = engine.watches, engine.clock.now_ms()
    watches.expire(batch, now_ms)
    limit = engine.settings.max_watch_sessions
    if limit and watches.count >= limit:
        raise errors.throttled("max_watch_sessions", limit)
    if watches.find(command.wid) is not None:
        raise errors.invalid_request("a watch session of that wid exists already")
    watches.add(
        batch,
        WatchRecord(
            wid=command.wid,
            key=command.key,
            spec=command.spec,
            cursors=encode(command.cursors),
            openings="[]",
            generation=0,
            open=WATCH_IDLE,
            created_ts=now_ms,
            last_access_ts=now_ms,
        ),
    )
    outcome.need.catalog = THIS_BATCH
    return WatchCreated()

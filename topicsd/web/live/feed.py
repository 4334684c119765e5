"""What one connection follows: snapshot, scan, render, and wait for a wakeup (law 6).

A `Feed` has a subscription for each topic. A topic that moves makes its subscription ready;
`_pump` takes ready ones in turn, reads a page each and writes it, for as long as the client
keeps up. A quiet topic costs nothing. Nothing is buffered for a client that does not read:
its cursors stay where they are, and what it then misses it is told like any other reader.

The rule that makes a wakeup impossible to miss: listen first, then look. Everything here runs
on the event loop, in callbacks, without a task for each connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from topicsd.model.errors import TopicsError
from topicsd.rules.floors import Tombstone
from topicsd.web.follow import observe_lag
from topicsd.web.live.holds import Hold, Holds
from topicsd.web.live.pages import SharedPage

if TYPE_CHECKING:
    from topicsd.reader import DiffQuery, TopicView
    from topicsd.web.context import Context
    from topicsd.web.live.tunnel import Tunnel

# Pages written before others on the loop have their turn.
TURN_PAGES = 16
RETRY_S = 0.25
FROM_SEQ_TOO_OLD = "from_seq_too_old"
# A cursor above any head: a read from it is told that the topic is another one now.
_BEYOND = 2**64 - 1

_log = logging.getLogger("topicsd.live")


class Encoder(Protocol):
    """Turns what happens into bytes for one connection."""

    def record(self, sub: Subscription, shared: SharedPage, from_seq: int) -> bytes: ...

    def tombstone(self, sub: Subscription, tombstone: Tombstone, reason: str) -> bytes: ...

    def caught_up(self, sub: Subscription, head_seq: int) -> bytes: ...

    def deleted(self, sub: Subscription, head_seq: int) -> bytes: ...

    def throttled(self, topics: list[str], retry_after_ms: int) -> bytes: ...

    def full(self, name: str, limit: int) -> bytes: ...


class Subscription:
    """One topic of a feed, and how far it is delivered."""

    __slots__ = (
        "_feed",
        "asking",
        "behind",
        "cursor",
        "head_seq",
        "live",
        "query",
        "strong",
        "synced_seq",
        "topic",
    )

    def __init__(
        self, feed: Feed, topic: TopicView, cursor: int, query: DiffQuery, *, strong: bool
    ) -> None:
        self._feed = feed
        self.topic = topic
        self.cursor = cursor
        self.query = query
        self.strong = strong
        self.head_seq = cursor
        # Whether the client was told that it is caught up, and nothing was left over since.
        self.live = False
        # Whether a loss shows that the client came too late, and not what took the records.
        self.behind = True
        self.synced_seq = 0
        self.asking = False

    @property
    def sent_cursor(self) -> int:
        """Where the client is; a cursor of another epoch was never in this one."""
        return 0 if self.cursor == _BEYOND else self.cursor

    @property
    def name(self) -> str:
        return self.topic.name

    def wake(self) -> None:
        self._feed.wake(self)


class Feed:
    """The subscriptions of one connection."""

    def __init__(
        self, context: Context, tunnel: Tunnel, encoder: Encoder, ended: Callable[[str], None]
    ) -> None:
        self._context = context
        self._tunnel = tunnel
        self._encoder = encoder
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self.subscriptions: dict[str, Subscription] = {}
        # In order: who was served last is served last again.
        self._ready: dict[Subscription, None] = {}
        self._holds = Holds()
        self._due = False
        self._waits_for_turn = False
        self.closed = False
        self.sent_at = self._loop.time()

    def add(
        self, topic: TopicView, cursor: int, query: DiffQuery, *, strong: bool, epoch: int = 0
    ) -> Subscription:
        """Follow a topic from a cursor; one of another epoch starts anew, and says so."""
        self.remove(topic.name)
        if epoch and epoch != topic.epoch:
            cursor = _BEYOND
        sub = Subscription(self, topic, cursor, query, strong=strong)
        self.subscriptions[topic.name] = sub
        self._context.port.wakeups.listen(topic.row, sub)
        self.wake(sub)
        return sub

    def remove(self, name: str) -> bool:
        """Stop following a topic."""
        sub = self.subscriptions.pop(name, None)
        if sub is None:
            return False
        self._context.port.wakeups.forget(sub, (sub.topic.row,))
        self._ready.pop(sub, None)
        return True

    def is_full(self, name: str) -> bool:
        """Whether a topic has no place here any more, of which the client is told."""
        limit = self._context.settings.max_watch_topics
        if name in self.subscriptions or len(self.subscriptions) < limit:
            return False
        self.write(self._encoder.full(name, limit))
        return True

    def close(self) -> None:
        """Stop following anything."""
        self.closed = True
        for name in list(self.subscriptions):
            self.remove(name)

    def wake(self, sub: Subscription) -> None:
        """A topic moved, or everything may have changed."""
        self._ready[sub] = None
        self.schedule()

    def schedule(self) -> None:
        """Deliver what is ready in the next turn of the loop."""
        if not (self._due or self.closed):
            self._due = True
            self._loop.call_soon(self._pump)

    def fell_behind(self) -> None:
        """The client did not read for long: what it misses now, it came too late for."""
        for sub in self.subscriptions.values():
            sub.behind = True

    def hold(self, name: str) -> Hold:
        """A write to a topic begins: deliver nothing of what it causes until its answer."""
        return self._holds.take(name)

    def let_go(self, hold: Hold, answer: bytes, last_seq: int) -> None:
        """Answer a write when all before it are; `last_seq` is 0 when nothing was written."""
        for ready in self._holds.drop(hold, answer, last_seq):
            if ready and not self.closed:
                self.write(ready)
        sub = self.subscriptions.get(hold.name)
        if sub is not None:
            self.wake(sub)

    def write(self, data: bytes) -> None:
        self.sent_at = self._loop.time()
        self._tunnel.write(data)

    def _pump(self) -> None:
        self._due = False
        if self.closed or self._tunnel.paused or not self._ready:
            return
        if self._context.throttle.pressed and not self._may_go():
            return
        try:
            self._context.check_readable()
            self._deliver()
        except TopicsError as error:
            # The engine starts again, or a file is damaged: what is ready stays so.
            _log.debug("delivery waits problem=%s", error.message)
            self._loop.call_later(RETRY_S, self.schedule)
        except Exception:
            _log.exception("a stream failed")
            self._ended("internal error")

    def _deliver(self) -> None:
        for _ in range(TURN_PAGES):
            if not self._ready:
                return
            sub = next((each for each in self._ready if not self._is_held(each)), None)
            if sub is None or self._tunnel.paused:
                return
            # Before the look: what comes after it makes it ready again.
            del self._ready[sub]
            if self._advance(sub):
                self._ready[sub] = None
        self.schedule()

    def _is_held(self, sub: Subscription) -> bool:
        until_seq = self._holds.limit(sub.name)
        return until_seq is not None and sub.cursor >= until_seq

    def _until(self, sub: Subscription) -> int | None:
        """The last seq that may be delivered now; None when there is no such bound."""
        held = self._holds.limit(sub.name)
        if not sub.strong:
            return held
        synced = self._context.synced.head(sub)
        return synced if held is None else min(held, synced)

    def _advance(self, sub: Subscription) -> bool:
        """Deliver one page; whether there may be more at once."""
        until_seq = self._until(sub)
        query = sub.query
        if until_seq is not None:
            query = msgspec.structs.replace(query, until_seq=until_seq)
        shared = self._context.pages.read(sub.topic, query, sub.cursor)
        if shared is None:
            self.remove(sub.name)
            self.write(self._encoder.deleted(sub, sub.head_seq))
            return False
        page = shared.page
        sub.head_seq = page.head_seq
        if page.tombstone is not None:
            self._report_loss(sub, page.tombstone, page.earliest_seq)
        sub.behind = False
        from_seq, sub.cursor = sub.cursor, page.next_from_seq
        if page.count:
            if sub.live and not shared.observed:
                shared.observed = True
                observe_lag(self._context, page)
            self._context.gate.column.count_read(page.count)
            self.write(self._encoder.record(sub, shared, from_seq))
        if sub.cursor < page.head_seq:
            if until_seq is not None and sub.cursor >= until_seq:
                # What is beyond comes with a wakeup of its own, and is no backlog.
                return False
            sub.live = False
            return True
        if not sub.live:
            sub.live = True
            self.write(self._encoder.caught_up(sub, page.head_seq))
        return False

    def _report_loss(self, sub: Subscription, tombstone: Tombstone, earliest_seq: int) -> None:
        if tombstone.reason == "recreated":
            sub.cursor = earliest_seq - 1
            sub.live = False
        else:
            sub.cursor = tombstone.gap_to
        too_late = sub.behind and tombstone.reason in ("cap", "ttl", "mixed")
        reason = FROM_SEQ_TOO_OLD if too_late else tombstone.reason
        self.write(self._encoder.tombstone(sub, tombstone, reason))

    def _may_go(self) -> bool:
        """Under CPU pressure deliveries stand in line like requests (API 0.6)."""
        if self._waits_for_turn:
            return False
        reader = self._context.reader
        priority = max(reader.effective_priority(sub.name) for sub in self._ready)
        turn = self._context.throttle.line_up(priority)
        if turn is None:
            self._pace()
            return False
        self._waits_for_turn = True
        turn.add_done_callback(self._turn_came)
        return False

    def _turn_came(self, turn: asyncio.Future[bool]) -> None:
        self._waits_for_turn = False
        if self.closed or turn.cancelled():
            return
        if not turn.result():
            self._pace()
            return
        try:
            self._context.check_readable()
            self._deliver()
        except TopicsError:
            self._loop.call_later(RETRY_S, self.schedule)

    def _pace(self) -> None:
        """Tell the client that its topics are slowed down, and come back later (API 7.5)."""
        retry_ms = self._context.settings.throttle_wait_ms
        names = sorted(sub.name for sub in self._ready)
        if not self._tunnel.paused:
            self.write(self._encoder.throttled(names, retry_ms))
        self._loop.call_later(retry_ms / 1000, self.schedule)

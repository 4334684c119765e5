"""Replies that wait: for a sync of a WAL shard, for the catalog, or for both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from topicsd.model.commands import Appended, Reply, Written
from topicsd.model.jobs import JobsAcked

Ticket = Any


class Need:
    """What a reply waits for; 0 means nothing."""

    __slots__ = ("also", "catalog", "gated", "lsn", "shard")

    def __init__(self) -> None:
        self.shard = 0
        self.lsn = 0
        self.catalog = 0
        # Whether the wait for a sync is the durability class's own and is reported.
        self.gated = False
        # Syncs of further shards, for a reply about several topics.
        self.also: list[tuple[int, int]] = []

    def add_sync(self, shard: int, lsn: int) -> None:
        """Wait for one more frame."""
        if not self.lsn:
            self.shard, self.lsn = shard, lsn
        else:
            self.also.append((shard, lsn))


class _Held:
    __slots__ = ("gated", "reply", "since_us", "ticket", "waits")

    def __init__(self, ticket: Ticket, reply: Reply, since_us: int, gated: bool) -> None:
        self.ticket = ticket
        self.reply = reply
        self.since_us = since_us
        self.gated = gated
        self.waits = 0


class HeldReplies:
    """Queues in the order in which what they wait for is reached."""

    def __init__(self, shards: int) -> None:
        self._by_shard: list[deque[tuple[int, _Held]]] = [deque() for _ in range(shards)]
        self._by_catalog: deque[tuple[int, _Held]] = deque()
        self._actions: deque[tuple[int, Callable[[], None]]] = deque()
        self._replies = 0

    def hold(self, ticket: Ticket, reply: Reply, need: Need, now_us: int) -> None:
        held = _Held(ticket, reply, now_us, need.gated)
        self._replies += 1
        if need.lsn:
            held.waits += 1
            self._by_shard[need.shard].append((need.lsn, held))
            for shard, lsn in need.also:
                held.waits += 1
                self._by_shard[shard].append((lsn, held))
        if need.catalog:
            held.waits += 1
            self._by_catalog.append((need.catalog, held))

    def after_catalog(self, number: int, action: Callable[[], None]) -> None:
        """Run `action` before the replies that wait for the same number."""
        self._actions.append((number, action))

    def release(
        self, synced: Sequence[int], catalog_done: int, now_us: int
    ) -> list[tuple[Ticket, Reply]]:
        """The replies whose last need is met, in order."""
        ready: list[tuple[Ticket, Reply]] = []
        while self._actions and self._actions[0][0] <= catalog_done:
            self._actions.popleft()[1]()
        for queue, lsn in zip(self._by_shard, synced, strict=True):
            while queue and queue[0][0] <= lsn:
                held = queue.popleft()[1]
                if held.gated and isinstance(held.reply, Appended | Written | JobsAcked):
                    held.reply.fsync_us = max(now_us - held.since_us, 1)
                _settle(held, ready)
        while self._by_catalog and self._by_catalog[0][0] <= catalog_done:
            _settle(self._by_catalog.popleft()[1], ready)
        self._replies -= len(ready)
        return ready

    def __len__(self) -> int:
        """How many replies wait, whatever each of them waits for."""
        return self._replies


def _settle(held: _Held, ready: list[tuple[Ticket, Reply]]) -> None:
    held.waits -= 1
    if held.waits == 0:
        ready.append((held.ticket, held.reply))

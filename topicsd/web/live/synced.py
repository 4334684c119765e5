"""Heads that are known to be on disk, for `consistency: "strong"` (API 7.2).

A strong subscription is not shown a record before its WAL frame is synced, whatever the
topic's durability class. Only the engine knows; it is asked once for all subscriptions of a
topic that wait at the same time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topicsd.model.commands import AwaitSynced, Reply, Synced

if TYPE_CHECKING:
    from topicsd.bridge.port import Port
    from topicsd.reader import Reader
    from topicsd.web.live.feed import Subscription

RETRY_S = 0.25


class SyncedHeads:
    """One a worker process."""

    def __init__(self, port: Port, reader: Reader) -> None:
        self._port = port
        self._reader = reader
        self._waiting: dict[str, list[Subscription]] = {}

    def head(self, sub: Subscription) -> int:
        """The newest seq that is known to be synced; asks when there is a newer one."""
        if not sub.asking and self._reader.head_seq(sub.topic) > sub.synced_seq:
            sub.asking = True
            self._ask(sub)
        return sub.synced_seq

    def _ask(self, sub: Subscription) -> None:
        waiting = self._waiting.setdefault(sub.name, [])
        waiting.append(sub)
        if len(waiting) == 1:
            future = self._port.submit(AwaitSynced(sub.name))
            future.add_done_callback(lambda done: self._answered(sub.name, done))

    def _answered(self, name: str, done: asyncio.Future[Reply]) -> None:
        subs = self._waiting.pop(name)
        if done.cancelled() or done.exception() is not None:
            # No engine, or no topic: the next look at it tells which.
            asyncio.get_running_loop().call_later(RETRY_S, _wake, subs)
            return
        reply = done.result()
        assert isinstance(reply, Synced)
        for sub in subs:
            if sub.topic.epoch == reply.epoch:
                sub.synced_seq = max(sub.synced_seq, reply.head_seq)
        _wake(subs)


def _wake(subs: list[Subscription]) -> None:
    for sub in subs:
        sub.asking = False
        sub.wake()

"""Follows prefixes (our extension): topics that exist, and those created later.

A created topic wakes everybody who listens for names; the catalog then tells, by id, which
ones are new. What that costs depends on the new topics, not on all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from topicsd.storage.board import NAMES

if TYPE_CHECKING:
    from topicsd.model.keys import Key
    from topicsd.web.context import Context

PAGE = 1000


def list_names(context: Context, prefixes: Iterable[str], limit: int) -> list[str]:
    """Topics under any of the prefixes, at most `limit` of them."""
    found: dict[str, None] = {}
    for prefix in prefixes:
        after = ""
        while len(found) < limit:
            page = context.reader.list_topics(prefix, after, min(PAGE, limit), ())
            found.update((each.topic, None) for each in page)
            if len(page) < min(PAGE, limit):
                break
            after = page[-1].topic
    return list(found)[:limit]


class PrefixFollower:
    """The prefixes of one connection."""

    def __init__(
        self,
        context: Context,
        prefixes: Iterable[str],
        found: Callable[[str], None],
        is_full: Callable[[str], bool],
        key: Key | None,
    ) -> None:
        self._context = context
        self._prefixes = tuple(prefixes)
        self._found = found
        self._is_full = is_full
        self._key = key
        self._last_id = 0
        self._due = False
        self._closed = False

    def start(self) -> None:
        """Listen, then look: also for what was created since the session last looked."""
        self._context.port.wakeups.listen(NAMES, self)
        self._last_id = self._context.reader.last_topic_id()
        for name in list_names(
            self._context, self._prefixes, self._context.settings.max_watch_topics + 1
        ):
            self._offer(name)

    def close(self) -> None:
        self._closed = True
        self._context.port.wakeups.forget(self, (NAMES,))

    def wake(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        if self._closed:
            return
        for log_id, name in self._context.reader.created_after(self._last_id):
            self._last_id = log_id
            if name.startswith(self._prefixes):
                self._offer(name)

    def _offer(self, name: str) -> None:
        allowed = self._key is None or self._key.allows(name)
        if allowed and not self._is_full(name):
            self._found(name)

"""What one WebSocket follows: topics it named, and prefixes with the topics they match.

A topic that is subscribed again is replaced. One that came through a prefix goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.model import errors
from topicsd.web.live.prefixes import PrefixFollower
from topicsd.web.live.stream import build_query
from topicsd.web.throttle import pass_throttle
from topicsd.web.v0.watch import check_watch, find_starts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topicsd.model.watch import Spec
    from topicsd.web.context import Context
    from topicsd.web.live.feed import Feed
    from topicsd.web.request import Request
    from topicsd.web.v0.messages import Subscribe, Unsubscribe


class Subscriptions:
    """The subscriptions of one connection; its feed delivers them."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed
        self._followers: dict[str, PrefixFollower] = {}
        # Topics that the client named itself; the others came through a prefix.
        self._named: set[str] = set()

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    async def subscribe(self, asked: Subscribe, request: Request) -> dict[str, dict[str, int]]:
        """Follow what was asked for, or nothing; returns where each topic starts."""
        asked = msgspec.structs.replace(asked, topics=asked.all_topics())
        spec = check_watch(asked, request, self._context)
        if self._context.throttle.pressed:
            await pass_throttle(request, self._context, list(asked.topics))
        found = await find_starts(asked, spec, self._context, lenient=False)
        self._check_room(found, "topics", self._feed.subscriptions)
        self._check_room(spec.prefixes, "prefixes", self._followers)
        for name, (topic, told) in found.items():
            self._feed.add(topic, told["from_seq"], build_query(spec, name), strong=spec.strong)
        # Topics that were deleted meanwhile are forgotten here, too.
        self._named = (self._named | asked.topics.keys()) & self._feed.subscriptions.keys()
        for prefix in spec.prefixes:
            self._follow(prefix, spec, request)
        return {name: told for name, (_, told) in found.items()}

    def unsubscribe(self, asked: Unsubscribe) -> list[str]:
        """Stop following; returns the topics that were followed until now."""
        names = asked.all_topics()
        if not names and not asked.prefixes:
            raise errors.invalid_request("topic or topics must name what to leave", field="topics")
        for prefix in asked.prefixes:
            follower = self._followers.pop(prefix, None)
            if follower is not None:
                follower.close()
                names += self._came_through(prefix)
        self._named.difference_update(names)
        return [name for name in names if self._feed.remove(name)]

    def _came_through(self, prefix: str) -> list[str]:
        others = tuple(self._followers)
        return [
            name
            for name in self._feed.subscriptions
            if name.startswith(prefix) and name not in self._named and not name.startswith(others)
        ]

    def _check_room(self, wanted: Iterable[str], field: str, there: Iterable[str]) -> None:
        limit = self._context.settings.max_watch_topics
        if len({*wanted, *there}) > limit:
            raise errors.invalid_request(
                f"a connection follows at most {limit} {field}", field=field, max=limit
            )

    def _follow(self, prefix: str, spec: Spec, request: Request) -> None:
        def found(name: str) -> None:
            topic = self._context.reader.find_topic(name)
            if topic is not None and name not in self._feed.subscriptions:
                self._feed.add(topic, 0, build_query(spec, name), strong=spec.strong)

        before = self._followers.pop(prefix, None)
        if before is not None:
            before.close()
        follower = PrefixFollower(self._context, (prefix,), found, self._feed.is_full, request.key)
        self._followers[prefix] = follower
        follower.start()

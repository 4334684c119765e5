"""A connection that delivers a feed at its client's speed, whatever the protocol (API 7.6).

While the socket's buffer is full nothing is read for the client. One that does not take
anything for `slow_consumer_timeout_ms` is hung up on; one that was away for longer than
`watch_buffer_grace_ms` came too late for what a topic dropped meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topicsd.web.live.feed import Encoder, Feed
from topicsd.web.live.tunnel import Tunnel

if TYPE_CHECKING:
    from topicsd.web.context import Context

SLOW = "slow consumer: the client does not keep up"


class Consumer(Tunnel):
    """A tunnel with a feed; subclasses say how it ends."""

    def __init__(self, context: Context, head: bytes, encoder: Encoder) -> None:
        super().__init__(head, context.settings.stream_buffer_bytes)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.feed = Feed(context, self, encoder, self.fail)
        self._slow: asyncio.TimerHandle | None = None
        self._paused_at = 0.0

    def opened(self) -> None:
        self._context.streams.add(self)

    def pause(self) -> None:
        super().pause()
        self._paused_at = self._loop.time()
        delay_s = self._context.settings.slow_consumer_timeout_ms / 1000
        self._slow = self._loop.call_later(delay_s, self.give_up)

    def resume(self) -> None:
        super().resume()
        if self._slow is not None:
            self._slow.cancel()
        grace_s = self._context.settings.watch_buffer_grace_ms / 1000
        if self._loop.time() - self._paused_at >= grace_s:
            self.feed.fell_behind()
        self.feed.schedule()

    def give_up(self) -> None:
        """The client is too slow: say so and hang up."""
        raise NotImplementedError

    def fail(self, problem: str) -> None:
        """A bug ended the feed: say so and hang up."""
        raise NotImplementedError

    def lost(self) -> None:
        self.stop()
        super().lost()

    def stop(self) -> None:
        """Deliver nothing more; safe to call twice."""
        self.feed.close()
        self._context.streams.discard(self)
        if self._slow is not None:
            self._slow.cancel()

"""The event stream of `GET /v0/topics/:q/work` (API 10.8): jobs, pushed as they are leased.

The engine claims for the stream; here its answers become frames. The next question is asked
when the last answer is written and the client keeps up, so a client that does not read is
given nothing more. When the connection is gone the engine is told, which frees at once what
the stream still holds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topicsd.model.commands import Reply
from topicsd.model.errors import TopicsError
from topicsd.model.jobs import CloseWork, JobsClaimed, NextWork, WorkEnded
from topicsd.web.live import sse
from topicsd.web.live.jobs import read_jobs
from topicsd.web.live.stream import RETRY_MS, SHUTTING_DOWN
from topicsd.web.live.tunnel import Tunnel

if TYPE_CHECKING:
    from topicsd.web.context import Context


class WorkStream(Tunnel):
    """One open stream of jobs; `number` is the worker's and its own."""

    def __init__(
        self, context: Context, topic: str, number: tuple[int, int], heartbeat_ms: int
    ) -> None:
        super().__init__(sse.HEAD, context.settings.stream_buffer_bytes)
        self._context = context
        self._topic = topic
        self._number = number
        self._heartbeat_s = heartbeat_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._asked: asyncio.Future[Reply] | None = None
        self._stopped = False
        self._beating: asyncio.TimerHandle | None = None
        self._slow: asyncio.TimerHandle | None = None

    def opened(self) -> None:
        self._context.streams.add(self)
        self.write(sse.retry(RETRY_MS) + sse.heartbeat(self._context.clock.now_ms()))
        self._arm()
        self._ask()
        if self._context.gate.draining:
            self.shut_down()

    def pause(self) -> None:
        super().pause()
        delay_s = self._context.settings.slow_consumer_timeout_ms / 1000
        self._slow = self._loop.call_later(delay_s, self._give_up)

    def resume(self) -> None:
        super().resume()
        if self._slow is not None:
            self._slow.cancel()
        self._ask()

    def shut_down(self) -> None:
        self._end(503, SHUTTING_DOWN)

    def lost(self) -> None:
        self._stop()
        super().lost()

    def _give_up(self) -> None:
        self._end(408, "slow consumer: the client does not keep up")

    def _ask(self) -> None:
        """Wait for the next jobs, unless that is going on or the client is behind."""
        if self._stopped or self.paused or self._asked is not None:
            return
        self._asked = self._context.port.submit(NextWork(*self._number))
        self._asked.add_done_callback(self._answered)

    def _answered(self, done: asyncio.Future[Reply]) -> None:
        self._asked = None
        if done.cancelled():
            return
        problem = done.exception()
        if self._stopped:
            return
        try:
            if isinstance(problem, TopicsError):
                raise problem
            self._deliver(done.result())
        except TopicsError as error:
            self._end(error.status, error.message)
            return
        self._ask()

    def _deliver(self, reply: Reply) -> None:
        if isinstance(reply, WorkEnded):
            code, reason = (404, "the queue was deleted") if reply.deleted else (410, "closed")
            self._end(code, reason)
            return
        assert isinstance(reply, JobsClaimed)
        frames = [
            sse.chunk(
                b'id: %d\nevent: job\ndata: {"topic":"%b",%b\n\n' % (seq, self._topic.encode(), job)
            )
            for seq, job in read_jobs(self._context, self._topic, reply)
        ]
        if frames:
            self._sent_at = self._loop.time()
            self.write(b"".join(frames))

    def _end(self, code: int, message: str) -> None:
        """Free what is held, say why, and hang up."""
        self._stop()
        self.finish(sse.error(code, message) + sse.LAST_CHUNK)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._context.streams.discard(self)
        for timer in (self._beating, self._slow):
            if timer is not None:
                timer.cancel()
        # Without an engine there is nobody to tell, and nothing held any more.
        closing = self._context.port.submit(CloseWork(*self._number))
        closing.add_done_callback(lambda late: late.exception())

    def _arm(self) -> None:
        self._beating = self._loop.call_at(self._sent_at + self._heartbeat_s, self._beat)

    def _beat(self) -> None:
        """Break a silence; a job in the meantime has already done so."""
        now = self._loop.time()
        if self.paused:
            self._sent_at = now
        elif now - self._sent_at >= self._heartbeat_s:
            self._sent_at = now
            self.write(sse.heartbeat(self._context.clock.now_ms()))
        self._arm()

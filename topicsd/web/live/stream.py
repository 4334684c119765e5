"""The event stream of one watch session: frames, heartbeats and the end.

When it ends, for whatever reason, its session stays, and so do its cursors.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from topicsd.model.errors import TopicsError
from topicsd.model.match import Match
from topicsd.model.watch import Spec
from topicsd.reader import DiffQuery
from topicsd.rules.resume import Cursors
from topicsd.web.live import sse
from topicsd.web.live.consumer import SLOW, Consumer
from topicsd.web.live.prefixes import PrefixFollower
from topicsd.web.live.session import TAKEN_OVER, Session

if TYPE_CHECKING:
    from topicsd.model.keys import Key
    from topicsd.web.context import Context

RETRY_MS = 2000
SHUTTING_DOWN = "server_shutting_down"


def build_query(spec: Spec, name: str) -> DiffQuery:
    """What a session reads of one topic; its cursor comes with each read."""
    return DiffQuery(
        from_seq=0,
        limit=spec.limit,
        nodes=spec.nodes,
        include_tags=spec.include_tags,
        include_meta=spec.include_meta,
        max_bytes=spec.max_batch_bytes,
        match=match_of(spec, name),
        include_data=spec.include_data,
    )


def match_of(spec: Spec, name: str) -> Match | None:
    found = spec.matches.get(name)
    if found is None:
        for prefix, options in spec.prefixes.items():
            if name.startswith(prefix):
                return options.match
    return found


class SseStream(Consumer):
    """One open `GET /v0/watch/:wid`."""

    def __init__(
        self, context: Context, session: Session, spec: Spec, cursors: Cursors, key: Key | None
    ) -> None:
        self._encoder = sse.SseEncoder(cursors, spec.epochs, session)
        super().__init__(context, sse.HEAD, self._encoder)
        self._session = session
        self._spec = spec
        self._key = key
        self._start = cursors
        self._prefixes: PrefixFollower | None = None
        self._heartbeat: asyncio.TimerHandle | None = None

    def opened(self) -> None:
        super().opened()
        self.feed.write(sse.retry(RETRY_MS))
        self._session.begin(self._cursors, self._lost_session)
        self._arm_heartbeat()
        try:
            self._follow_all()
        except TopicsError as error:
            self._end(error.status, error.message)
        if self._context.gate.draining:
            self.shut_down()

    def _follow_all(self) -> None:
        for name, (epoch, seq) in self._start.items():
            self._follow(name, epoch, seq)
        if self._spec.prefixes:
            self._prefixes = PrefixFollower(
                self._context, self._spec.prefixes, self._found, self.feed.is_full, self._key
            )
            self._prefixes.start()

    def write(self, data: bytes) -> None:
        self._session.changed = True
        super().write(data)

    def _follow(self, name: str, epoch: int, seq: int) -> None:
        topic = self._context.reader.find_topic(name)
        if topic is None:
            self.feed.write(self._encoder.missing(name, epoch, seq))
            return
        self.feed.add(
            topic, seq, build_query(self._spec, name), strong=self._spec.strong, epoch=epoch
        )

    def _found(self, name: str) -> None:
        """A topic under one of the prefixes that was not there before."""
        if name not in self.feed.subscriptions:
            self._follow(name, 0, 0)

    def _cursors(self) -> Cursors:
        """What was sent so far; a topic that is deleted is not followed again."""
        return {
            name: (sub.topic.epoch, sub.sent_cursor)
            for name, sub in self.feed.subscriptions.items()
        }

    def give_up(self) -> None:
        self._end(408, SLOW)

    def fail(self, problem: str) -> None:
        self._end(500, problem)

    def _lost_session(self, reason: str) -> None:
        if reason == TAKEN_OVER:
            self._end(409, "another connection took this session over")
        else:
            self._end(410, "the session is gone; create a new one")

    def shut_down(self) -> None:
        self._end(503, SHUTTING_DOWN)

    def _end(self, code: int, message: str) -> None:
        """Give the session back, say why, and hang up."""
        self.stop()
        self.finish(sse.error(code, message) + sse.LAST_CHUNK)

    def stop(self) -> None:
        self._session.end()
        super().stop()
        if self._prefixes is not None:
            self._prefixes.close()
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    def _arm_heartbeat(self) -> None:
        due = self.feed.sent_at + self._spec.heartbeat_ms / 1000
        self._heartbeat = self._loop.call_at(due, self._beat)

    def _beat(self) -> None:
        """Break a silence; data in the meantime has already done so."""
        if self.closing:
            return
        now = self._loop.time()
        if now - self.feed.sent_at >= self._spec.heartbeat_ms / 1000 and not self.paused:
            self.feed.sent_at = now
            super().write(sse.heartbeat(self._context.clock.now_ms()))
        elif self.paused:
            self.feed.sent_at = now
        self._arm_heartbeat()


def decode_spec(text: str) -> Spec:
    return _decode(text.encode())


def encode_spec(spec: Spec) -> str:
    return msgspec.json.encode(spec).decode()


_decode = msgspec.json.Decoder(Spec).decode

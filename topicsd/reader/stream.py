"""A stream as a reader sees it: one line of positions over a log and those it was forked from.

A fork holds only its own entries; what it inherited is read where it is, in the source, up
to the point of the fork (streams spec 1.15). Positions of the inherited part have the epoch
of the log that holds it, so that offsets of the source are good in the fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from topicsd.model import errors
from topicsd.model.match import Match
from topicsd.model.offset import NOW, START, Position
from topicsd.model.stream import LOG_AS_STREAM, StreamConfig
from topicsd.model.topic import U64_MAX
from topicsd.reader.entries import EntryQuery, StreamStatus

if TYPE_CHECKING:
    from topicsd.reader.reader import Reader
    from topicsd.reader.topics import TopicView


class Span(NamedTuple):
    """A log, and the last seq that is read from it."""

    topic: TopicView
    until_seq: int


class StreamPage(NamedTuple):
    """Payloads, the position after them, and the stream's state just after they were read."""

    parts: list[bytes]
    next_seq: int
    status: StreamStatus

    @property
    def up_to_date(self) -> bool:
        return self.next_seq >= self.status.head_seq

    @property
    def closed(self) -> bool:
        """Whether there will never be anything behind this page."""
        return self.status.closed and self.up_to_date


def config_of(topic: TopicView) -> StreamConfig:
    return LOG_AS_STREAM if topic.config.stream is msgspec.UNSET else topic.config.stream


class StreamView:
    """One stream, for as long as its log is the one it was made for."""

    def __init__(self, reader: Reader, topic: TopicView) -> None:
        self._reader = reader
        self.topic = topic
        self.config = config_of(topic)
        self._spans: list[Span] | None = None

    @property
    def spans(self) -> list[Span]:
        """The logs that hold the stream, the oldest first, this one's own last."""
        if self._spans is None:
            spans = [Span(self.topic, U64_MAX)]
            fork = self.config.fork
            while fork is not None:
                source = self._reader.find_log(fork.source)
                if source is None or source.log_id != fork.source_id:
                    raise errors.stream_not_found(self.topic.name)
                spans.append(Span(source, min(fork.seq, spans[-1].until_seq)))
                fork = config_of(source).fork
            self._spans = spans[::-1]
        return self._spans

    def status(self) -> StreamStatus:
        found = self._reader.stream_status(self.topic)
        if found is None:
            raise errors.stream_not_found(self.topic.name)
        return found

    def position(self, seq: int) -> Position:
        """The position after an entry."""
        epoch = next(span.topic.epoch for span in self.spans if seq <= span.until_seq)
        return Position(epoch, seq)

    def resolve(self, position: Position, head_seq: int) -> int:
        """The seq of the entry before a client's position; refuses what is not one of ours."""
        if position == NOW:
            return head_seq
        if position == START:
            return 0
        epoch = self.topic.epoch
        if position.epoch not in {epoch, self.position(position.entries).epoch}:
            if position.epoch < epoch:
                raise errors.offset_gone("the offset is from an earlier life of this stream")
            raise errors.invalid_request("offset is not of this stream", field="offset")
        if position.entries > head_seq:
            raise errors.invalid_request("offset is past the end of the stream", field="offset")
        return position.entries

    def read(
        self, from_seq: int, max_bytes: int, max_entries: int, match: Match | None = None
    ) -> StreamPage:
        """What follows an entry; from 0 on, what is left of the stream."""
        parts: list[bytes] = []
        at, room = from_seq, max_bytes
        for span in self.spans:
            if at >= span.until_seq:
                continue
            query = EntryQuery(at, span.until_seq, room, max_entries - len(parts), match)
            page = self._reader.entries(span.topic, query)
            if page is None:
                raise errors.stream_not_found(self.topic.name)
            if at and at + 1 < page.earliest_seq and at == from_seq:
                earliest = self.position(page.earliest_seq - 1)
                raise errors.offset_gone(
                    "entries at this offset are no longer kept",
                    epoch=earliest.epoch,
                    entries=earliest.entries,
                )
            parts += page.parts
            at, room = page.next_seq, room - page.size
            if page.full or room <= 0 or len(parts) >= max_entries:
                break
        return StreamPage(parts, at, self.status())

    def seek(self, ts_ms: int) -> int:
        """The seq before the first entry written at or after a time."""
        for span in self.spans:
            found = self._reader.seek(span.topic, ts_ms)
            if found is None:
                raise errors.stream_not_found(self.topic.name)
            if found <= span.until_seq and span.until_seq != U64_MAX:
                return found - 1
        return (found or 1) - 1

"""Durable streams: what a stream is, and what workers ask the engine about one.

A stream is a log with a content type, a lifetime and maybe an ancestor. `StreamConfig` is
fixed at creation and kept inside the log's `TopicConfig`; whether the stream is closed, its
last `Stream-Seq` and its producers change with appends and ride in the WAL with them.
"""

from __future__ import annotations

import msgspec

JSON_TYPE = "application/json"
DEFAULT_TYPE = "application/octet-stream"


class Fork(msgspec.Struct, frozen=True):
    """Where a stream branched off: everything up to `seq` is read from the source."""

    source: str
    source_id: int
    seq: int
    # As the creating request said it, for comparison with a repeated one.
    anchor: int
    sub: int


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream was created with; None for no such limit."""

    content_type: str = JSON_TYPE
    ttl_ms: int | None = None
    expires_ms: int | None = None
    fork: Fork | None = None

    @property
    def is_json(self) -> bool:
        return base_type(self.content_type) == JSON_TYPE


# How a log topic appears at the door of streams.
LOG_AS_STREAM = StreamConfig()


def base_type(content_type: str) -> str:
    """A content type without parameters, in lower case: what is compared."""
    return content_type.partition(";")[0].strip().lower()


class Producer(msgspec.Struct, array_like=True, frozen=True):
    """The triple of headers an idempotent producer sends."""

    id: str
    epoch: int
    seq: int


class StreamWrite(msgspec.Struct, array_like=True, frozen=True):
    """Entries already rendered by `model.record`; none when `count` is 0."""

    count: int = 0
    forms: bytes = b""
    rows: bytes = b""
    payload_bytes: int = 0
    # Why the body cannot be stored; told after the checks that come first (spec 1.4).
    invalid: str | None = None
    # Milliseconds; None for the server's own time.
    ts_ms: int | None = None


class ForkRequest(msgspec.Struct, array_like=True, frozen=True):
    """A source as the worker found it; `seq` includes whole entries of the sub-offset."""

    source: str
    source_id: int
    seq: int
    # None when the request named no offset.
    anchor: int | None
    sub: int
    # The first bytes of the entry after `seq`, when the sub-offset ends inside it.
    part: StreamWrite | None = None


class PutStream(msgspec.Struct, array_like=True, tag=True, frozen=True, kw_only=True):
    """Create a stream, or find that it exists with the same configuration."""

    topic: str
    content_type: str | None
    ttl_ms: int | None = None
    expires_ms: int | None = None
    closed: bool = False
    retention_ms: int = 0
    retention_bytes: int = 0
    fork: ForkRequest | None = None
    write: StreamWrite = StreamWrite()


class AppendStream(msgspec.Struct, array_like=True, tag=True, frozen=True, kw_only=True):
    """Append, close, or both in one step."""

    topic: str
    content_type: str
    write: StreamWrite
    producer: Producer | None = None
    seq: str | None = None
    close: bool = False
    # The tail the client believes in: epoch and entries.
    if_match: tuple[int, int] | None = None


class DeleteStream(msgspec.Struct, array_like=True, tag=True, frozen=True):
    topic: str


class StreamPut(msgspec.Struct, array_like=True, tag=True, frozen=True):
    created: bool
    content_type: str
    epoch: int
    entries: int
    closed: bool


class StreamAppended(msgspec.Struct, array_like=True, tag=True, frozen=True):
    epoch: int
    entries: int
    closed: bool
    duplicate: bool
    # The producer's epoch and highest accepted seq, when there is a producer.
    producer: tuple[int, int] | None


class StreamDeleted(msgspec.Struct, array_like=True, tag=True, frozen=True):
    # Whether forks still need its entries.
    kept: bool


StreamCommand = PutStream | AppendStream | DeleteStream
StreamReply = StreamPut | StreamAppended | StreamDeleted

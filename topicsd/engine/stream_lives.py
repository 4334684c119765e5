"""Streams begin and end: creation, forks, expiry, deletion with all that hangs on it.

A stream that others were forked from is not removed when it ends: it is marked as gone, its
name stays taken, and its entries are read through the forks. The end of the last fork takes
it along, and so on up the line (streams spec 1.7, 1.15).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from topicsd.engine import append, topics
from topicsd.engine.held import Need
from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.stream import (
    DEFAULT_TYPE,
    LOG_AS_STREAM,
    DeleteStream,
    Fork,
    PutStream,
    StreamConfig,
    StreamDeleted,
    StreamPut,
    base_type,
)
from topicsd.model.topic import TopicConfig
from topicsd.rules.lifetime import is_expired
from topicsd.storage.catalog import CatalogWriter, KeepForForks

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

# Streams looked at for expiry at once, and how often; who asks for one finds out at once.
RECLAIM_STREAMS: Final = 500
RECLAIM_US: Final = 1_000_000


class Lives:
    """Who was forked from whom, and where the search for expired streams has come to."""

    def __init__(self, catalog: CatalogWriter) -> None:
        self._children: dict[int, set[int]] = {}
        for source_id, log_id in catalog.list_forks():
            self.add(source_id, log_id)
        self.reclaimed_id = 0
        self.reclaimed_us = 0

    def add(self, source_id: int, log_id: int) -> None:
        self._children.setdefault(source_id, set()).add(log_id)

    def remove(self, source_id: int, log_id: int) -> None:
        children = self._children.get(source_id, set())
        children.discard(log_id)
        if not children:
            self._children.pop(source_id, None)

    def has_forks(self, log_id: int) -> bool:
        return log_id in self._children


def stream_of(log: Log) -> StreamConfig:
    """What a log is at the door of streams."""
    return LOG_AS_STREAM if log.config.stream is msgspec.UNSET else log.config.stream


def get_live(engine: Engine, name: str, now_ms: int) -> Log:
    """The stream, or log topic, of that name; refuses one that is not there any more."""
    log = engine.registry.find(name)
    if log is None or _has_expired(engine, log, now_ms):
        raise errors.stream_not_found(name)
    if log.gone:
        raise errors.stream_gone(name)
    if log.config.type == "queue":
        raise errors.topic_exists_incompatible(name, f'"{name}" is a queue, not a stream')
    return log


def _has_expired(engine: Engine, log: Log, now_ms: int) -> bool:
    stream = log.config.stream
    if stream is msgspec.UNSET or log.gone:
        return False
    accessed_ms = max(log.created_ts, engine.board.last_read(log.row))
    return is_expired(stream, accessed_ms, now_ms)


def touch(engine: Engine, log: Log, now_ms: int) -> None:
    """An append restarts a sliding lifetime."""
    if log.config.stream is not msgspec.UNSET and log.config.stream.ttl_ms is not None:
        engine.board.set_last_read(log.row, now_ms)


def apply_put(engine: Engine, batch: Batch, outcome: Outcome, command: PutStream) -> StreamPut:
    now_ms = engine.clock.now_ms()
    log = engine.registry.find(command.topic)
    if log is not None and _has_expired(engine, log, now_ms):
        end(engine, batch, outcome, log)
        log = engine.registry.find(command.topic)
    if log is not None:
        engine.commits.await_catalog(outcome, log.name)
        return _repeat(engine, outcome, log, command)
    source = None if command.fork is None else _find_source(engine, command, now_ms)
    config = _build_config(engine, command, source)
    if command.write.invalid is not None:
        raise errors.invalid_request(command.write.invalid)
    append.admit(engine, config, command.write, None)
    return _create(engine, batch, outcome, command, config, source=source)


def _repeat(engine: Engine, outcome: Outcome, log: Log, command: PutStream) -> StreamPut:
    """The answer to a PUT of what exists: the same configuration, or a conflict."""
    stream = log.config.stream
    if stream is msgspec.UNSET:
        raise errors.topic_exists_incompatible(
            log.name, f'"{log.name}" is a topic', type=log.config.type
        )
    if log.gone:
        raise errors.stream_conflict(log.name, "it is deleted, and forks still read it")
    difference = _difference(log, stream, command)
    if difference is not None:
        raise errors.stream_conflict(log.name, f"it exists with another {difference}")
    engine.commits.await_written(outcome, log)
    return StreamPut(False, stream.content_type, log.epoch, log.head_seq, log.closed)


def _difference(log: Log, stream: StreamConfig, command: PutStream) -> str | None:
    """What a repeated PUT says otherwise; a fork inherits what its request leaves out."""
    fork, asked = stream.fork, command.fork
    if (fork is None) != (asked is None):
        return "source"
    if fork is not None and asked is not None:
        if (fork.source, fork.source_id) != (asked.source, asked.source_id):
            return "source"
        if asked.anchor is not None and (asked.anchor, asked.sub) != (fork.anchor, fork.sub):
            return "fork offset"
    if command.content_type is not None or fork is None:
        found = base_type(command.content_type or DEFAULT_TYPE)
        if found != base_type(stream.content_type):
            return "content type"
    inherits = fork is not None and command.ttl_ms is None and command.expires_ms is None
    if not inherits and (stream.ttl_ms, stream.expires_ms) != (command.ttl_ms, command.expires_ms):
        return "lifetime"
    retention = (command.retention_ms, command.retention_bytes)
    if (log.config.ttl_ms, log.config.cap_bytes) != retention and any(retention):
        return "retention"
    if log.closed != command.closed:
        return "closed state"
    return None


def _find_source(engine: Engine, command: PutStream, now_ms: int) -> Log:
    """The stream to fork, as it was when the worker looked at it."""
    fork = command.fork
    assert fork is not None
    source = engine.registry.find(fork.source)
    if source is None or source.id != fork.source_id or _has_expired(engine, source, now_ms):
        raise errors.stream_not_found(fork.source)
    if source.gone:
        raise errors.stream_conflict(fork.source, "it is deleted and cannot be forked")
    if fork.seq > source.head_seq:
        raise errors.invalid_request("Stream-Fork-Offset is past the end of the source")
    found = base_type(stream_of(source).content_type)
    if command.content_type is not None and base_type(command.content_type) != found:
        raise errors.content_type_mismatch(found)
    return source


def _build_config(engine: Engine, command: PutStream, source: Log | None) -> TopicConfig:
    content_type, ttl_ms, expires_ms = command.content_type, command.ttl_ms, command.expires_ms
    fork = None
    if source is not None and command.fork is not None:
        asked, parent = command.fork, stream_of(source)
        anchor = asked.seq if asked.anchor is None else asked.anchor
        fork = Fork(source.name, source.id, asked.seq, anchor, asked.sub)
        content_type = content_type or parent.content_type
        if ttl_ms is None and expires_ms is None:
            ttl_ms, expires_ms = parent.ttl_ms, parent.expires_ms
    settings = engine.settings
    durability = settings.stream_durability
    return TopicConfig(
        ttl_ms=command.retention_ms or settings.stream_retention_age_ms,
        cap_bytes=command.retention_bytes or settings.stream_retention_bytes,
        durable=durability == "fsync",
        durability=durability,
        stream=StreamConfig(
            content_type=content_type or DEFAULT_TYPE,
            ttl_ms=ttl_ms,
            expires_ms=expires_ms,
            fork=fork,
        ),
    )


def _create(
    engine: Engine,
    batch: Batch,
    outcome: Outcome,
    command: PutStream,
    config: TopicConfig,
    *,
    source: Log | None,
) -> StreamPut:
    log = topics.create(
        engine,
        batch,
        outcome,
        command.topic,
        config,
        epoch_above=0 if source is None else source.epoch,
    )
    batch.note_created(log)
    try:
        for write in (command.fork and command.fork.part, command.write):
            if write and write.count:
                now_ms = engine.clock.now_ms()
                append.stage(engine, batch, log, write, write.ts_ms or now_ms)
                outcome.appended = log
        if command.closed:
            engine.stream_states.stage(batch, outcome, log, close=True)
    except TopicsError:
        # What is refused leaves nothing.
        topics.uncreate(engine, batch, log)
        outcome.need = Need()
        raise
    if source is not None:
        engine.lives.add(source.id, log.id)
    stream = stream_of(log)
    return StreamPut(True, stream.content_type, log.epoch, log.head_seq, log.closed)


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteStream
) -> StreamDeleted | None:
    now_ms = engine.clock.now_ms()
    log = get_live(engine, command.topic, now_ms)
    if log.config.stream is msgspec.UNSET:
        raise errors.topic_exists_incompatible(log.name, f'"{log.name}" is a topic')
    if engine.parking.park(outcome, command, engine.routes.by_source.get(log.id, [])):
        return None
    return StreamDeleted(end(engine, batch, outcome, log))


def end(engine: Engine, batch: Batch, outcome: Outcome, log: Log) -> bool:
    """Remove a stream, or keep it for its forks; returns whether it is kept."""
    if engine.lives.has_forks(log.id):
        if not log.gone:
            log.gone = True
            engine.registry.pin(log)
            engine.commits.stage_change(
                batch, outcome, KeepForForks(log.id), lambda: engine.registry.settle(log)
            )
            batch.touched.add(log)
        return True
    topics.drop(engine, batch, outcome, log)
    fork = stream_of(log).fork
    if fork is not None:
        engine.lives.remove(fork.source_id, log.id)
        source = engine.registry.find(fork.source)
        if source is not None and source.id == fork.source_id and source.gone:
            end(engine, batch, outcome, source)
    return False


def poll(engine: Engine, batch: Batch) -> None:
    """Reclaim some of the streams whose time is over; a chore in bounded steps."""
    lives, now_us = engine.lives, engine.clock.monotonic_us()
    if now_us - lives.reclaimed_us < RECLAIM_US:
        return
    lives.reclaimed_us = now_us
    found = engine.catalog.list_mortal(lives.reclaimed_id, RECLAIM_STREAMS)
    lives.reclaimed_id = found[-1] if len(found) == RECLAIM_STREAMS else 0
    now_ms = engine.clock.now_ms()
    for log_id in found:
        log = engine.registry.find_by_id(log_id)
        # A router's source is left to whoever deletes it by name: that may have to wait.
        if log is None or engine.routes.by_source.get(log_id):
            continue
        if _has_expired(engine, log, now_ms):
            end(engine, batch, Outcome(None), log)

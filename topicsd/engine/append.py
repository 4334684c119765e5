"""Append: admit, dedupe, assign seqs and a timestamp, stage (API 2, DESIGN 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.engine import leasing, topics
from topicsd.engine.held import Need
from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Chunk, Outcome, Write
from topicsd.model import errors
from topicsd.model.commands import Append, Appended
from topicsd.model.errors import TopicsError
from topicsd.model.lease import Delayed
from topicsd.model.stream import StreamConfig
from topicsd.model.topic import TopicConfig
from topicsd.storage.fs import is_full

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

# What a prefix can take beside the rest: its labels and two 64-bit numbers.
PREFIX_BYTES_MAX = 64


def apply_append(engine: Engine, batch: Batch, outcome: Outcome, command: Append) -> Appended:
    """Stage the records of one write; nothing is staged when it is refused."""
    now_ms = engine.clock.now_ms()
    log = engine.registry.find(command.topic)
    if log is not None:
        # Recovery drops frames of a log that the catalog does not have (yet).
        engine.commits.await_catalog(outcome, command.topic)
    if log is not None and command.idempotency_key is not None:
        seqs = engine.keys.find(log, command.idempotency_key, now_ms)
        if seqs is not None:
            return _deduped(engine, batch, outcome, log, seqs)
    created = log is None
    if log is None:
        config = topics.config_for_append(command)
        admit(engine, config, command, None)
        _check_delays(command, config)
        log = topics.create(engine, batch, outcome, command.topic, config)
        batch.note_created(log)
    else:
        if log not in batch.chunks:
            # Staged records are in no segment yet, where expiry would look for them.
            engine.retention.notice(log, now_ms)
        admit(engine, log.config, command, log)
        _check_delays(command, log.config)
        if log.changes:
            # A topic the catalog does not know yet: its records would not survive a crash.
            engine.commits.await_catalog(outcome, log.name)
    try:
        reply = stage(engine, batch, log, command, now_ms)
    except TopicsError:
        if created:
            # A write that is refused leaves nothing, also no topic.
            topics.uncreate(engine, batch, log)
            outcome.need = Need()
        raise
    if command.delays:
        first_seq = reply.first_seq
        delays = [(first_seq + place, delay_ms) for place, delay_ms in command.delays]
        _delay(engine, batch, outcome, log, delays)
    reply.created = created
    outcome.appended = log
    return reply


def _check_delays(command: Append, config: TopicConfig) -> None:
    if command.delays and config.type != "queue":
        field = f"records[{command.delays[0][0]}].delay_ms"
        raise errors.invalid_request(f"{field}: only jobs of a queue can be delayed", field=field)


def _delay(
    engine: Engine, batch: Batch, outcome: Outcome, log: Log, delays: list[tuple[int, int]]
) -> None:
    """Put new jobs off, in the frame that holds them."""
    table = engine.queues.peek(log).table
    now_ms = engine.clock.now_ms()
    for seq, delay_ms in delays:
        event = Delayed([seq], now_ms + delay_ms)
        leasing.record(batch, outcome, log, table, event)


def _deduped(
    engine: Engine, batch: Batch, outcome: Outcome, log: Log, seqs: tuple[int, int]
) -> Appended:
    """The first write's answer; it may still be on its way to the disk."""
    if log in batch.chunks:
        # The first write may be in this very batch: wait, or fail, together with it.
        outcome.appended = log
    else:
        engine.commits.await_written(outcome, log)
    if log.changes:
        engine.commits.await_catalog(outcome, log.name)
    return Appended(seqs[0], seqs[1], log.head_seq, False, True, 0)


def admit(engine: Engine, config: TopicConfig, command: Write, log: Log | None) -> None:
    """Refuse what does not fit, before any seq is assigned (DESIGN 5.3)."""
    if isinstance(command, Append) and log is not None and config.stream is not msgspec.UNSET:
        _require_open(log, config.stream)
    quota = engine.settings.max_total_bytes
    if quota and engine.total_bytes + command.payload_bytes > quota:
        raise errors.throttled("max_total_bytes", quota)
    if config.discard != "reject":
        return
    caps = {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes}
    if _exceeds(config, command.count, command.payload_bytes):
        raise errors.record_too_large("the write is larger than the topic's whole capacity", **caps)
    if log is not None and _exceeds(
        config, log.live + command.count, log.payload_bytes + command.payload_bytes
    ):
        raise errors.topic_full(
            log.name, **caps, head_seq=log.head_seq, earliest_seq=log.earliest_seq
        )


def _require_open(log: Log, stream: StreamConfig) -> None:
    """What comes through the door of topics goes into streams of JSON that are open."""
    if log.gone:
        raise errors.stream_gone(log.name)
    if log.closed:
        raise errors.stream_closed(log.epoch, log.head_seq)
    if not stream.is_json:
        raise errors.content_type_mismatch(stream.content_type)


def _exceeds(config: TopicConfig, records: int, payload_bytes: int) -> bool:
    return bool(
        (config.cap_records and records > config.cap_records)
        or (config.cap_bytes and payload_bytes > config.cap_bytes)
    )


def stage(engine: Engine, batch: Batch, log: Log, command: Write, now_ms: int) -> Appended:
    """Give records their seqs and time, and a place that is theirs."""
    chunk = batch.chunks.get(log) or Chunk(log)
    volume = engine.volume_of(log)
    dat_bytes = len(command.forms) + command.count * PREFIX_BYTES_MAX
    try:
        spot = volume.reserve(
            chunk.spot, chunk.records + command.count, chunk.dat_bytes + dat_bytes
        )
    except OSError as error:
        if is_full(error):
            volume.cancel(chunk.spot)
            raise errors.storage_full("the disk is full") from None
        raise
    batch.stage(log, chunk)
    if spot != chunk.spot:
        chunk.move(spot)
    first_seq = log.next_seq
    last_seq = first_seq + command.count - 1
    # Within a log time never runs backwards, so that expiry is a binary search (DESIGN 5.2).
    ts = max(now_ms, log.last_write_ts)
    chunk.add(command, first_seq, ts)
    if isinstance(command, Append) and command.idempotency_key is not None:
        chunk.keys.append((command.idempotency_key, first_seq, last_seq, ts))
        engine.keys.add(log, command.idempotency_key, (first_seq, last_seq, ts))
    log.last_write_ts = ts
    log.head_seq = last_seq
    log.next_seq = last_seq + 1
    log.live += command.count
    log.payload_bytes += command.payload_bytes
    engine.total_bytes += command.payload_bytes
    return Appended(first_seq, last_seq, last_seq, False, False, 0)

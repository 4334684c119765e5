"""Topics come, change and go (API 1): the control plane of the engine.

Every change is handed to the clerk and its reply waits for the catalog's commit. What
workers must notice (a new configuration, a deleted topic) is shown on the board only after
that commit, because that is when the catalog they look at says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.engine import connect, relocate, removal
from topicsd.engine.log import Log, state_of_row
from topicsd.engine.space import refuse_when_full
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import (
    Append,
    AwaitSynced,
    DeleteTopic,
    FindTopic,
    PutTopic,
    Synced,
    TopicDeleted,
    TopicFound,
    TopicPut,
)
from topicsd.model.errors import TopicsError
from topicsd.model.stream import StreamConfig
from topicsd.model.topic import DEFAULT, TopicConfig, limits_of
from topicsd.rules.floors import SEQ_BASE
from topicsd.storage.board import NAMES, BoardRow
from topicsd.storage.catalog import AddStream, CreateLog, DropLog, UpdateConfig

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def _config_json(config: TopicConfig) -> str:
    return msgspec.json.encode(config).decode()


def apply_put(engine: Engine, batch: Batch, outcome: Outcome, command: PutTopic) -> TopicPut | None:
    log = engine.registry.find(command.topic)
    if log is None:
        create(engine, batch, outcome, command.topic, command.config)
        return TopicPut(True, command.config)
    _require_topic(log)
    config = command.config
    if not command.type_given:
        config = msgspec.structs.replace(config, type=log.config.type)
    if config.type != log.config.type:
        kept = log.config.type
        raise errors.topic_exists_incompatible(
            log.name, f'topic "{log.name}" is a {kept} and stays one', type=kept
        )
    if config == log.config:
        # Whoever repeats a change is told that it is done: that must not be too early.
        engine.commits.await_catalog(outcome, log.name)
        engine.commits.await_written(outcome, log)
        return TopicPut(False, config)
    if (config.durability == "ephemeral") != log.resident and engine.parking.park(
        outcome, command, engine.routes.of_log(log.id)
    ):
        return None
    _configure(engine, batch, outcome, log, config)
    return TopicPut(False, config)


def config_for_append(command: Append) -> TopicConfig:
    """The configuration of the topic a write creates, if the write may create one (API 2)."""
    config = command.config or DEFAULT
    allowed = config.auto_create if command.create is None else command.create
    if not allowed:
        raise errors.topic_not_found(command.topic)
    return config


def apply_find(engine: Engine, batch: Batch, outcome: Outcome, command: FindTopic) -> TopicFound:
    """Whether a name exists, answered after the catalog knows it too."""
    engine.commits.await_catalog(outcome, command.topic)
    return TopicFound(engine.registry.find(command.topic) is not None)


def apply_await_synced(
    engine: Engine, batch: Batch, outcome: Outcome, command: AwaitSynced
) -> Synced:
    """Where a topic stands, told when no crash can take back any of it."""
    log = engine.registry.find(command.topic)
    if log is None:
        raise errors.topic_not_found(command.topic)
    engine.commits.await_catalog(outcome, log.name)
    engine.commits.await_synced(outcome, log)
    return Synced(log.epoch, log.head_seq)


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteTopic
) -> TopicDeleted | None:
    log = engine.registry.find(command.topic)
    if log is None:
        engine.commits.await_catalog(outcome, command.topic)
        return TopicDeleted(False, [])
    if command.if_empty:
        engine.retention.notice(log, engine.clock.now_ms())
        if log.live:
            raise errors.topic_not_empty(log.name, log.live)
    _require_topic(log)
    if engine.parking.park(outcome, command, engine.routes.by_source.get(log.id, [])):
        return None
    return TopicDeleted(True, drop(engine, batch, outcome, log))


def _require_topic(log: Log) -> None:
    if log.config.stream is not msgspec.UNSET:
        raise errors.topic_exists_incompatible(
            log.name, f'"{log.name}" is a stream: use /v1/stream', type="stream"
        )


def drop(engine: Engine, batch: Batch, outcome: Outcome, log: Log) -> list[str]:
    """Remove a log with all that belongs to it; returns the routers that went along."""
    routers_removed = connect.remove_of(engine, log)
    engine.registry.drop(log)
    engine.queues.drop(batch, log)
    engine.total_bytes -= log.payload_bytes

    def settle() -> None:
        engine.board.write(log.row, BoardRow(generation=log.generation + 1))
        engine.board.set_last_read(log.row, 0)
        engine.moved.add(log.row)
        left = relocate.leave(engine, log.id, log.spot.location, resident=log.resident)
        engine.checkpoints.discard(left)
        engine.registry.settle_dropped(log)

    engine.commits.stage_change(batch, outcome, DropLog(log.id), settle)
    return routers_removed


def create(
    engine: Engine,
    batch: Batch,
    outcome: Outcome,
    name: str,
    config: TopicConfig,
    *,
    epoch_above: int = 0,
) -> Log:
    """Bring a topic or stream into existence; the reply waits for the catalog."""
    stream = None if config.stream is msgspec.UNSET else config.stream
    _check_count(engine, streams=stream is not None)
    with refuse_when_full():
        log = engine.registry.create(name, config, epoch_above=epoch_above)
    log.created_ts = engine.clock.now_ms()
    if stream is not None and stream.fork is not None:
        _begin_after(log, stream.fork.seq)
    # A log of this id whose creation a crash undid may have left files.
    engine.volume_of(log).discard_after(log.spot)
    engine.board.set_last_read(log.row, 0)
    batch.touched.add(log)
    change = CreateLog(
        id=log.id,
        row=log.row,
        name=name,
        kind="topic" if stream is None else "stream",
        epoch=log.epoch,
        config_json=_config_json(config),
        created_ts=log.created_ts,
        state=state_of_row(log.to_row(), 0) if log.head_seq else None,
        stream=None if stream is None else _catalogued(stream),
    )

    def settle() -> None:
        engine.registry.settle(log)
        engine.moved.add(NAMES)

    engine.commits.stage_change(batch, outcome, change, settle)
    return log


def _check_count(engine: Engine, *, streams: bool) -> None:
    if streams:
        name, limit, count = "max_streams", engine.settings.max_streams, engine.registry.streams
    else:
        name, limit, count = "max_topics", engine.settings.max_topics, engine.registry.count
    if limit and count >= limit:
        raise errors.throttled(name, limit)


def _begin_after(log: Log, seq: int) -> None:
    """Number a new log's records on from `seq`: the earlier ones are another log's."""
    log.head_seq, log.next_seq, log.earliest_seq = seq, seq + 1, seq + 1
    log.delete_below = seq + 1
    log.spot = log.spot._replace(base_seq=seq + 1)


def _catalogued(stream: StreamConfig) -> AddStream:
    source_id = None if stream.fork is None else stream.fork.source_id
    return AddStream(source_id, stream.ttl_ms, stream.expires_ms)


def uncreate(engine: Engine, batch: Batch, log: Log) -> None:
    """Take back a topic that the batch created for a write which is refused after all."""
    if batch.uncreate(log):
        engine.registry.cancel(log)


def _configure(
    engine: Engine, batch: Batch, outcome: Outcome, log: Log, config: TopicConfig
) -> None:
    if (config.durability == "ephemeral") != log.resident:
        # Its records are not in the WAL, so its floors need not be: a checkpoint has both.
        engine.retention.notice(log, engine.clock.now_ms())
        with refuse_when_full():
            relocate.change_volume(engine, log, config)
        log.config = config
        engine.retention.enforce(log, engine.clock.now_ms())
    else:
        _apply_limits(engine, outcome, log, config)
    engine.registry.pin(log)

    def settle() -> None:
        for directory in log.leaving or ():
            engine.files.remove_directory(directory)
        log.leaving = None
        engine.registry.settle(log)
        if not log.dropped:
            log.generation += 1
            engine.board.write(log.row, log.to_row())
            engine.moved.add(log.row)

    change = UpdateConfig(log.id, _config_json(config))
    engine.commits.stage_change(batch, outcome, change, settle)
    batch.touched.add(log)


def _apply_limits(engine: Engine, outcome: Outcome, log: Log, config: TopicConfig) -> None:
    """Take a configuration over, with what its limits evict; all or nothing.

    Replay finds what caps and expiry took by the limits it finds in the catalog. Those that
    held until now are gone from there, so what they took goes into the WAL with the rest.
    """
    now_ms = engine.clock.now_ms()
    before, take_back = log.config, engine.retention.remember(log)
    # What expired under the old configuration stays gone under the new one.
    engine.retention.expire(log, now_ms)
    log.config = config
    engine.retention.enforce(log, now_ms)
    if limits_of(before) == limits_of(config) or max(log.cap_floor, log.ttl_floor) == SEQ_BASE:
        return
    try:
        removal.write_entry(engine, outcome, log)
    except TopicsError:
        take_back()
        log.config = before
        raise

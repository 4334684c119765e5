"""Topics come, change and go (API 1): the control plane of the engine.

Every change is handed to the clerk and its reply waits for the catalog's commit. What
workers must notice (a new configuration, a deleted topic) is shown on the board only after
that commit, because that is when the catalog they look at says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.engine import relocate
from topicsd.engine.log import Log
from topicsd.engine.space import refuse_when_full
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import (
    Append,
    DeleteTopic,
    FindTopic,
    PutTopic,
    TopicDeleted,
    TopicFound,
    TopicPut,
)
from topicsd.model.topic import DEFAULT, TopicConfig
from topicsd.storage.board import BoardRow
from topicsd.storage.catalog import CreateLog, DropLog, UpdateConfig

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def _config_json(config: TopicConfig) -> str:
    return msgspec.json.encode(config).decode()


def apply_put(engine: Engine, batch: Batch, outcome: Outcome, command: PutTopic) -> TopicPut:
    log = engine.registry.find(command.topic)
    if log is None:
        create(engine, batch, outcome, command.topic, command.config)
        return TopicPut(True, command.config)
    config = command.config
    if not command.type_given:
        config = msgspec.structs.replace(config, type=log.config.type)
    if config.type != log.config.type:
        kept = log.config.type
        raise errors.topic_exists_incompatible(
            log.name, f'topic "{log.name}" is a {kept} and stays one', type=kept
        )
    if config == log.config:
        engine.commits.await_catalog(outcome, log.name)
        return TopicPut(False, config)
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


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteTopic
) -> TopicDeleted:
    log = engine.registry.find(command.topic)
    if log is None:
        engine.commits.await_catalog(outcome, command.topic)
        return TopicDeleted(False, [])
    if command.if_empty:
        if log not in batch.chunks:
            engine.retention.expire(log, engine.clock.now_ms())
        if log.live:
            raise errors.topic_not_empty(log.name, log.live)
    engine.registry.drop(log)
    engine.total_bytes -= log.payload_bytes

    def settle() -> None:
        engine.board.write(log.row, BoardRow(generation=log.generation + 1))
        engine.board.set_last_read(log.row, 0)
        engine.moved.add(log.row)
        left = relocate.leave(engine, log.id, log.spot.location, resident=log.resident)
        engine.checkpoints.discard(left)
        engine.registry.settle_dropped(log)

    engine.commits.stage_change(batch, outcome, DropLog(log.id), settle)
    return TopicDeleted(True, [])


def create(engine: Engine, batch: Batch, outcome: Outcome, name: str, config: TopicConfig) -> Log:
    """Bring a topic into existence; the reply waits for the catalog."""
    limit = engine.settings.max_topics
    if limit and engine.registry.count >= limit:
        raise errors.throttled("max_topics", limit)
    with refuse_when_full():
        log = engine.registry.create(name, config)
    # A log of this id whose creation a crash undid may have left files.
    engine.volume_of(log).discard_after(log.spot)
    engine.board.set_last_read(log.row, 0)
    batch.touched.add(log)
    change = CreateLog(
        id=log.id,
        row=log.row,
        name=name,
        kind="topic",
        epoch=log.epoch,
        config_json=_config_json(config),
        created_ts=engine.clock.now_ms(),
    )
    engine.commits.stage_change(batch, outcome, change, lambda: engine.registry.settle(log))
    return log


def _configure(
    engine: Engine, batch: Batch, outcome: Outcome, log: Log, config: TopicConfig
) -> None:
    settled = log not in batch.chunks
    if settled:
        # What expired under the old configuration stays gone under the new one.
        engine.retention.expire(log, engine.clock.now_ms())
    if (config.durability == "ephemeral") != log.resident:
        with refuse_when_full():
            relocate.change_volume(engine, batch, log, config)
    log.config = config
    engine.registry.pin(log)
    if settled:
        engine.retention.enforce(log, engine.clock.now_ms())

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

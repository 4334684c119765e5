"""Append to a stream, close it, or both at once (streams spec 1.4 to 1.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topicsd.engine import append, stream_lives
from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import Reply
from topicsd.model.stream import (
    AppendStream,
    DeleteStream,
    Producer,
    PutStream,
    StreamAppended,
    base_type,
)
from topicsd.rules.producers import Known, Verdict, judge

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def apply_append(
    engine: Engine, batch: Batch, outcome: Outcome, command: AppendStream
) -> StreamAppended:
    """The checks in the order of the contract, then one step; a refusal changes nothing."""
    now_ms = engine.clock.now_ms()
    log = stream_lives.get_live(engine, command.topic, now_ms)
    engine.commits.await_catalog(outcome, log.name)
    stream_lives.touch(engine, log, now_ms)
    has_body = bool(command.write.count or command.write.invalid)
    if not has_body:
        if not command.close:
            raise errors.invalid_request("the body is empty")
    elif not command.content_type:
        raise errors.invalid_request("Content-Type is missing", field="Content-Type")
    if command.close and log.config.stream is msgspec.UNSET:
        raise errors.topic_exists_incompatible(log.name, f'topic "{log.name}" cannot be closed')
    if log.closed:
        return _on_closed(engine, batch, outcome, log, command, has_body=has_body)
    stream = stream_lives.stream_of(log)
    if has_body and base_type(command.content_type) != base_type(stream.content_type):
        raise errors.content_type_mismatch(stream.content_type)
    known = None
    if command.producer is not None:
        known = engine.stream_states.find_producer(log.id, command.producer.id)
        if _is_duplicate(known, command.producer):
            assert known is not None
            return _repeat(engine, batch, outcome, log, known)
    _check_order(engine, log, command)
    if command.write.invalid is not None:
        raise errors.invalid_request(command.write.invalid)
    if command.write.count:
        if log not in batch.chunks:
            engine.retention.notice(log, now_ms)
        append.admit(engine, log.config, command.write, log)
        hint = command.write.ts_ms
        append.stage(engine, batch, log, command.write, now_ms if hint is None else hint)
        outcome.appended = log
    if command.close or command.seq is not None or command.producer is not None:
        engine.stream_states.stage(
            batch, outcome, log, close=command.close, seq=command.seq, producer=command.producer
        )
    producer = command.producer
    numbers = None if producer is None else (producer.epoch, producer.seq)
    return StreamAppended(log.epoch, log.head_seq, log.closed, False, numbers)


def _check_order(engine: Engine, log: Log, command: AppendStream) -> None:
    """What the client believes of the stream: its tail, and its last `Stream-Seq`."""
    if command.if_match is not None and command.if_match != (log.epoch, log.head_seq):
        raise errors.precondition_failed(log.epoch, log.head_seq)
    if command.seq is not None:
        last = engine.stream_states.get(log.id).last_seq
        if last is not None and command.seq.encode() <= last.encode():
            raise errors.stream_seq_conflict(command.seq, last)


def _is_duplicate(known: Known | None, producer: Producer) -> bool:
    """Whether an append was accepted before; a refusal when it is out of order."""
    verdict, expected = judge(known, producer)
    if verdict is Verdict.FENCED:
        assert known is not None
        raise errors.producer_fenced(known.epoch)
    if verdict is Verdict.BAD_START:
        raise errors.invalid_request("a new producer epoch begins with Producer-Seq 0")
    if verdict is Verdict.GAP:
        raise errors.producer_gap(expected, producer.seq)
    return verdict is Verdict.DUPLICATE


def _on_closed(
    engine: Engine,
    batch: Batch,
    outcome: Outcome,
    log: Log,
    command: AppendStream,
    *,
    has_body: bool,
) -> StreamAppended:
    """A closed stream repeats its closing answer to who closed it, and refuses the rest."""
    producer = command.producer
    if producer is None:
        if has_body:
            raise errors.stream_closed(log.epoch, log.head_seq)
        return _repeat(engine, batch, outcome, log, None)
    triple = (producer.id, producer.epoch, producer.seq)
    if engine.stream_states.get(log.id).closer != triple:
        raise errors.stream_closed(log.epoch, log.head_seq)
    return _repeat(engine, batch, outcome, log, Known(producer.epoch, producer.seq))


def _repeat(
    engine: Engine, batch: Batch, outcome: Outcome, log: Log, known: Known | None
) -> StreamAppended:
    """The answer to what was done before, which may still be on its way to the disk."""
    if log in batch.chunks or log in batch.states:
        outcome.appended = log
    else:
        engine.commits.await_written(outcome, log)
    return StreamAppended(log.epoch, log.head_seq, log.closed, True, known)


# What the engine's table says of streams.
STREAM_COMMANDS: dict[type, Callable[..., Reply | None]] = {
    PutStream: stream_lives.apply_put,
    AppendStream: apply_append,
    DeleteStream: stream_lives.apply_delete,
}

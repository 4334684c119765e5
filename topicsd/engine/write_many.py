"""Appends to several topics that happen together or not at all.

Each part is staged like an append of its own, into a batch that holds nothing else. When any
part is refused everything staged before it is taken back, topics that it created included:
nothing of the batch has left memory by then. What is left is one commit with one WAL frame,
which is whole after a crash or not there.

A topic that the catalog may not know when the frame is written travels in the frame too:
replay would otherwise find records of an unknown log and skip just those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.engine.append import apply_append
from topicsd.engine.held import Need
from topicsd.engine.staging import Batch, Outcome
from topicsd.model import errors
from topicsd.model.commands import WriteMany, Written
from topicsd.model.errors import TopicsError
from topicsd.storage import frame

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def apply_write_many(engine: Engine, batch: Batch, outcome: Outcome, command: WriteMany) -> Written:
    """Stage every part, or refuse with the first refusal and stage nothing."""
    batch.together = True
    reply = Written([])
    for index, write in enumerate(command.writes):
        try:
            if engine.registry.is_dropping(write.topic):
                # The catalog still has the old topic; replay could not tell the two apart.
                raise errors.throttled("topic_delete", 1, retry_after_ms=100)
            reply.parts.append(apply_append(engine, batch, outcome, write))
        except TopicsError as error:
            take_back(engine, batch)
            error.detail = {**(error.detail or {}), "topic": write.topic, "write": index}
            raise
    return reply


def take_back(engine: Engine, batch: Batch) -> None:
    """Undo everything that was staged, created topics included."""
    engine.commits.undo(batch, list({**batch.chunks, **batch.leases}))
    for outcome in batch.outcomes:
        outcome.need = Need()
        outcome.appended = None


def creations(engine: Engine, batch: Batch) -> list[bytes]:
    """Entries for the topics of a batch whose creation may not have reached the catalog."""
    parts: list[bytes] = []
    for log in batch.chunks:
        if log.changes:
            config_json = msgspec.json.encode(log.config).decode()
            parts += frame.create_parts(
                frame.CreateEntry(
                    log.id, log.row, log.name, log.epoch, config_json, engine.clock.now_ms()
                )
            )
    return parts

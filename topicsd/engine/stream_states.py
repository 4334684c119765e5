"""What appends change in a stream beside its records: closed, `Stream-Seq`, producers.

Each change rides in the WAL frame of the append that made it and is folded into the catalog
at the next checkpoint; until then it is in memory, so that a crash at any moment leaves the
records and this in step. Commands of one batch see each other's changes; a batch that finds
no room takes them back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from topicsd.engine.log import Log
from topicsd.engine.staging import Batch, Outcome
from topicsd.model.stream import Producer
from topicsd.rules.producers import Known
from topicsd.storage import frame
from topicsd.storage.catalog import CatalogWriter, SavedProducer, SavedState, SaveStreams
from topicsd.storage.frame import StreamEntry


class State(NamedTuple):
    """A stream's last `Stream-Seq`, and the producer that closed it."""

    closed: bool = False
    last_seq: str | None = None
    closer: tuple[str, int, int] | None = None


class StreamStates:
    """The states of all streams, of which those not yet in the catalog are in memory."""

    def __init__(self, catalog: CatalogWriter) -> None:
        self._catalog = catalog
        self._states: dict[int, State] = {}
        self._producers: dict[tuple[int, str], Known] = {}

    def get(self, log_id: int) -> State:
        found = self._states.get(log_id)
        if found is not None:
            return found
        row = self._catalog.find_stream_state(log_id)
        if row is None:
            return State()
        closed, last_seq, closer = row
        triple = None if closer is None else msgspec.json.decode(closer, type=tuple[str, int, int])
        return State(bool(closed), last_seq, triple)

    def find_producer(self, log_id: int, producer: str) -> Known | None:
        found = self._producers.get((log_id, producer))
        if found is not None:
            return found
        row = self._catalog.find_producer(log_id, producer)
        return None if row is None else Known._make(row)

    def stage(
        self,
        batch: Batch,
        outcome: Outcome,
        log: Log,
        *,
        close: bool = False,
        seq: str | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Change a stream's state together with what the batch appends to it."""
        triple = None if producer is None else (producer.id, producer.epoch, producer.seq)
        entry = StreamEntry(log.id, close, seq, triple)
        batch.stage_state(log, frame.stream_parts(entry), self.apply(log, entry))
        outcome.appended = log

    def apply(self, log: Log, entry: StreamEntry) -> Callable[[], None]:
        """Take a change over; returns what takes it back."""
        states, producers = self._states, self._producers
        closed_before, state_before = log.closed, states.get(log.id)
        key = None if entry.producer is None else (log.id, entry.producer[0])
        known_before = None if key is None else producers.get(key)
        if entry.closed or entry.last_seq is not None:
            state = self.get(log.id)
            if entry.last_seq is not None:
                state = state._replace(last_seq=entry.last_seq)
            if entry.closed:
                state = state._replace(closed=True, closer=entry.producer)
                log.closed = True
            states[log.id] = state
        if key is not None and entry.producer is not None:
            producers[key] = Known(*entry.producer[1:])

        def take_back() -> None:
            log.closed = closed_before
            _restore(states, log.id, state_before)
            if key is not None:
                _restore(producers, key, known_before)

        return take_back

    def to_save(self) -> SaveStreams:
        """Everything not yet in the catalog."""
        states: list[SavedState] = [
            (log_id, int(state.closed), state.last_seq, _closer_json(state))
            for log_id, state in self._states.items()
        ]
        producers: list[SavedProducer] = [
            (log_id, producer, *known) for (log_id, producer), known in self._producers.items()
        ]
        return SaveStreams(states, producers)

    def saved(self, change: SaveStreams) -> None:
        """Note that this is in the catalog now; what changed since stays."""
        for log_id, closed, last_seq, closer in change.states:
            state = self._states.get(log_id)
            if state is not None and (closed, last_seq, closer) == (
                int(state.closed),
                state.last_seq,
                _closer_json(state),
            ):
                del self._states[log_id]
        for log_id, producer, *known in change.producers:
            if self._producers.get((log_id, producer)) == tuple(known):
                del self._producers[log_id, producer]


def _closer_json(state: State) -> str | None:
    return None if state.closer is None else msgspec.json.encode(state.closer).decode()


def _restore(table: dict[Any, Any], key: Any, before: Any) -> None:
    if before is None:
        table.pop(key, None)
    else:
        table[key] = before

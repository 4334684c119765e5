"""What a batch of commands wants to write, before any of it is written.

Commands of one batch are applied to the logs in memory one after the other, so that each
sees the ones before it. All records that a batch adds to one log become one chunk: one WAL
entry, one write to the segment, one board row. Before a log is first touched its state is
saved, so that a batch whose WAL write is refused can be undone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from topicsd.engine.held import Need
from topicsd.engine.log import Log
from topicsd.model.commands import Append, Failed, Reply
from topicsd.model.lease import Event
from topicsd.model.record import ROW_DTYPE, complete, prefix
from topicsd.model.stream import StreamWrite
from topicsd.rules.leases import LeaseTable
from topicsd.storage.catalog import Change
from topicsd.storage.volume import Spot

Ticket = Any
# Rendered records, whichever door they came through.
Write = Append | StreamWrite
_TS_END = struct.Struct("<qI")
# What staging a record changes in its log.
_STAGED = ("head_seq", "next_seq", "live", "payload_bytes", "last_write_ts")


class Chunk:
    """Records staged for one log, and the reserved spot they will be written to."""

    __slots__ = (
        "after",
        "dat",
        "dat_bytes",
        "first_seq",
        "keys",
        "logged",
        "payload_bytes",
        "records",
        "rows",
        "spot",
    )

    def __init__(self, log: Log) -> None:
        self.spot: Spot = log.spot
        self.first_seq = log.next_seq
        self.records = 0
        self.dat_bytes = 0
        self.payload_bytes = 0
        self.rows: list[bytes] = []
        self.dat: list[bytes] = []
        self.keys: list[tuple[str, int, int, int]] = []
        # Whether the records go into the WAL, and entries that go there behind them.
        self.logged = True
        self.after: list[bytes] = []

    def move(self, spot: Spot) -> None:
        """Follow a reservation that led to another segment: positions there start anew."""
        shift = spot.end - self.spot.end
        self.spot = spot
        if shift and self.rows:
            rows = np.frombuffer(b"".join(self.rows), dtype=ROW_DTYPE).copy()
            rows["end"] = rows["end"].astype(np.int64) + shift
            self.rows = [rows.tobytes()]

    def add(self, command: Write, first_seq: int, ts: int) -> None:
        """Render the records of one append behind what is staged."""
        end = self.spot.end + self.dat_bytes
        dat = complete(command.forms, first_seq, command.count, ts)
        if command.count == 1:
            rows = _TS_END.pack(ts, end + len(dat)) + command.rows[_TS_END.size :]
        else:
            rows = _rows(command, first_seq, ts, end)
        self.dat.append(dat)
        self.rows.append(rows)
        self.records += command.count
        self.dat_bytes += len(dat)
        self.payload_bytes += command.payload_bytes


def _rows(command: Write, first_seq: int, ts: int, end: int) -> bytes:
    """The rows of several records, with time and positions filled in."""
    rows = np.frombuffer(command.rows, dtype=ROW_DTYPE).copy()
    lengths = rows["end"].astype(np.int64) + len(prefix(0, ts)) - 1
    lengths += _seq_digits(first_seq, command.count)
    rows["ts"] = ts
    rows["end"] = end + np.cumsum(lengths)
    return rows.tobytes()


def _seq_digits(first_seq: int, count: int) -> Any:
    """Digits of each seq: almost always the same number for all of them."""
    low, high = len(str(first_seq)), len(str(first_seq + count - 1))
    if low == high:
        return low
    return np.array([len(str(seq)) for seq in range(first_seq, first_seq + count)])


class Outcome:
    """A command's reply, the log it appended to, and what the reply waits for."""

    __slots__ = ("appended", "need", "reply", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.reply: Reply | None = None
        self.appended: Log | None = None
        self.need = Need()


class LeaseStage:
    """What a batch does to one queue: lease events, and the records that go with them."""

    __slots__ = ("events", "outcomes", "payload_bytes", "removed", "table", "waiting")

    def __init__(self, table: LeaseTable | None) -> None:
        # None for a log that merely loses records to a queue.
        self.table = table
        self.events: list[Event] = []
        self.removed: list[int] = []
        self.payload_bytes = 0
        # Commands that fail when this cannot be written.
        self.outcomes: list[Outcome] = []
        # Those that wait for the sync, and whether the durability class demands it.
        self.waiting: list[tuple[Outcome, bool]] = []


class StateStage:
    """What a batch changes in a stream beside its records, and how to take that back."""

    __slots__ = ("parts", "take_back")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.take_back: list[Callable[[], None]] = []


class Batch:
    """One `apply`: chunks by log, catalog changes, and one outcome a command."""

    def __init__(self) -> None:
        self.chunks: dict[Log, Chunk] = {}
        self.changes: list[Change] = []
        # What to do once the changes are committed.
        self.settles: list[Callable[[], None]] = []
        self.outcomes: list[Outcome] = []
        self.touched: set[Log] = set()
        # Whether the chunks are one write, to be committed as a whole or not at all.
        self.together = False
        # Names of the topics that have a chunk.
        self.names: set[str] = set()
        self.leases: dict[Log, LeaseStage] = {}
        self.states: dict[Log, StateStage] = {}
        # Names of the queues among them.
        self.leased: set[str] = set()
        self._saved: dict[Log, tuple[int, ...]] = {}
        self._creations: dict[Log, tuple[Change, Callable[[], None]]] = {}

    def stage(self, log: Log, chunk: Chunk) -> None:
        """Make a chunk part of the batch, and save what its records change in the log."""
        if log not in self.chunks:
            self._saved[log] = tuple(getattr(log, field) for field in _STAGED)
            self.chunks[log] = chunk
            self.names.add(log.name)

    def stage_state(self, log: Log, parts: list[bytes], take_back: Callable[[], None]) -> None:
        """Make a change of a stream's state part of the batch."""
        stage = self.states.setdefault(log, StateStage())
        stage.parts += parts
        stage.take_back.append(take_back)
        self.names.add(log.name)
        self.touched.add(log)

    def undo_state(self, log: Log, error: Failed) -> None:
        """Take back what was to change in a stream; its commands fail with `error`."""
        for take_back in reversed(self.states.pop(log).take_back):
            take_back()
        self._fail(log, error)

    def _fail(self, log: Log, error: Failed) -> None:
        for outcome in self.outcomes:
            if outcome.appended is log:
                outcome.reply, outcome.appended = error, None

    def note_created(self, log: Log) -> None:
        """The change staged last creates a log for a write, and goes when the write fails."""
        self._creations[log] = (self.changes[-1], self.settles[-1])

    def uncreate(self, log: Log) -> bool:
        """Take back the creation of a log; False when it was not created for a write."""
        if log not in self._creations:
            return False
        change, settle = self._creations.pop(log)
        self.changes.remove(change)
        self.settles.remove(settle)
        self.touched.discard(log)
        return True

    def undo(self, log: Log, error: Failed) -> Chunk:
        """Take back all records staged for a log; their commands fail with `error`."""
        for field, value in zip(_STAGED, self._saved.pop(log), strict=True):
            setattr(log, field, value)
        self._fail(log, error)
        self.names.discard(log.name)
        return self.chunks.pop(log)

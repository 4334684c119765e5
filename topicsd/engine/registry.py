"""Names to logs for the writer: a bounded cache over the catalog, and fresh ids and rows.

The catalog is written by another thread, so a name whose change is still on its way there
is answered from `_pending`. Ids are never reused. Board rows are, but only after the
catalog has forgotten their previous log.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from topicsd.engine.log import Log
from topicsd.model.topic import TopicConfig
from topicsd.storage.board import Board
from topicsd.storage.catalog import CatalogWriter, CreateLog, LogRecord

_decode_config = msgspec.json.Decoder(TopicConfig).decode


class Registry:
    """All logs, of which a bounded number is in memory."""

    def __init__(
        self, catalog: CatalogWriter, board: Board, *, session: int, cache_max: int
    ) -> None:
        self._catalog = catalog
        self._board = board
        self._session = session
        self._cache_max = cache_max
        self._by_name: OrderedDict[str, Log] = OrderedDict()
        self._pending: dict[str, Log | None] = {}
        self._dropping: dict[str, int] = {}
        self._epoch_floor = 0
        self._next_id = catalog.next_id()
        self._next_row = catalog.max_row() + 1
        self._free_rows = list(catalog.free_rows())
        self.streams = catalog.count_logs("stream")
        self.count = catalog.count_logs("topic")
        board.topics = self.count

    def reserve_ids(self, above: int) -> None:
        """Never hand out an id up to `above`: the WAL knows it."""
        self._next_id = max(self._next_id, above + 1)

    def find(self, name: str) -> Log | None:
        """The log of that name, with its state, or None."""
        if name in self._pending:
            return self._pending[name]
        log = self._by_name.get(name)
        if log is not None:
            self._by_name.move_to_end(name)
            return log
        record = self._catalog.find_log(name)
        return None if record is None else self._load(record)

    def find_by_id(self, log_id: int) -> Log | None:
        record = self._catalog.find_log_by_id(log_id)
        if record is None:
            return None
        if record.name in self._pending:
            log = self._pending[record.name]
        else:
            log = self._by_name.get(record.name) or self._load(record)
        return log if log is not None and log.id == log_id else None

    def create(self, name: str, config: TopicConfig, *, epoch_above: int = 0) -> Log:
        """A new, empty log; the caller hands the change to the clerk."""
        row = self._take_row()
        epoch = max(self._next_epoch(name), epoch_above + 1)
        log = Log(self._next_id, row, name, config, epoch=epoch)
        log.session = self._session
        log.spot = log.spot._replace(log_id=log.id)
        # A reader that still holds the row's previous log must not mistake this one for it.
        log.generation = self._board.read(row).generation + 1
        self._next_id += 1
        self.pin(log)
        self._count(log, 1)
        return log

    def pin(self, log: Log) -> None:
        """Keep a log in memory while a change of it is on its way to the catalog."""
        log.changes += 1
        self._pending[log.name] = log

    def drop(self, log: Log) -> None:
        log.dropped = True
        self._epoch_floor = max(self._epoch_floor, log.epoch)
        self._pending[log.name] = None
        self._by_name.pop(log.name, None)
        self._dropping[log.name] = self._dropping.get(log.name, 0) + 1
        self._count(log, -1)

    def settle(self, log: Log) -> None:
        """The catalog has a change; after the last one the name is answered from the cache."""
        log.changes -= 1
        if log.changes == 0 and self._pending.get(log.name) is log:
            del self._pending[log.name]
            self._by_name[log.name] = log

    def settle_dropped(self, log: Log) -> None:
        left = self._dropping.pop(log.name) - 1
        if left:
            # The same name was created and dropped again since.
            self._dropping[log.name] = left
        elif self._pending.get(log.name, log) is None:
            del self._pending[log.name]
        self._free_rows.append(log.row)

    def cancel(self, log: Log) -> None:
        """Take back a log that was created and neither shown nor handed to the clerk."""
        if log.name in self._dropping:
            # An earlier log of that name is on its way out of the catalog, not back.
            self._pending[log.name] = None
        else:
            del self._pending[log.name]
        self._free_rows.append(log.row)
        self._count(log, -1)

    def restore(self, change: CreateLog) -> None:
        """Create a log that the WAL knows and the catalog does not; recovery only."""
        self._catalog.commit([change])
        log = Log(change.id, change.row, change.name, _decode_config(change.config_json.encode()))
        log.epoch, log.session = change.epoch, self._session
        log.generation = log.shelf_generation = self._session
        self._board.ensure_rows(change.row + 1)
        self._board.write(change.row, log.to_row())
        self._next_id = self._catalog.next_id()
        self._next_row = self._catalog.max_row() + 1
        self._free_rows = list(self._catalog.free_rows())
        self._count(log, 1)

    def is_dropping(self, name: str) -> bool:
        """Whether the catalog may still know a dropped log of that name."""
        return name in self._dropping

    def list_pending(self) -> list[Log]:
        """Logs that the catalog may not know yet."""
        return [log for log in self._pending.values() if log is not None]

    def is_pending(self, name: str) -> bool:
        return name in self._pending

    def trim(self) -> None:
        """Forget the least recently used logs; called when no batch is being applied."""
        while len(self._by_name) > self._cache_max:
            self._by_name.popitem(last=False)

    def _load(self, record: LogRecord) -> Log:
        log = Log(record.id, record.row, record.name, _decode_config(record.config_json))
        log.epoch = record.epoch
        log.created_ts = record.created_ts
        log.load_row(self._board.read(record.row), self._session)
        self._by_name[record.name] = log
        return log

    def _take_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        self._board.ensure_rows(self._next_row + 1)
        self._next_row += 1
        return self._next_row - 1

    def _next_epoch(self, name: str) -> int:
        # The catalog may not know yet what was dropped last.
        return max(self._catalog.last_epoch(name), self._epoch_floor) + 1

    def _count(self, log: Log, change: int) -> None:
        if log.config.stream is not msgspec.UNSET:
            self.streams += change
            return
        self.count += change
        self._board.topics = self.count

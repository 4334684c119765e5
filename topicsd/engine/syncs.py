"""How far the logs that are ends of routes are synced: only that much may be copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topicsd.engine.log import Log

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


class _Frame(NamedTuple):
    """A log's last frame at some time, and the log's head then."""

    shard: int
    lsn: int
    head_seq: int


class Syncs:
    """The last frame of each log of a route, until it is synced."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: dict[int, _Frame] = {}
        # The frame that is waited for: under constant writes the last one is never synced.
        self._awaited: dict[int, _Frame] = {}
        self._heads: dict[int, int] = {}

    def note_written(self, log: Log, shard: int, lsn: int) -> None:
        if self._engine.routes.touches(log.id):
            self._last[log.id] = _Frame(shard, lsn, log.head_seq)

    def forget(self, log_id: int) -> None:
        for known in (self._last, self._awaited, self._heads):
            known.pop(log_id, None)

    def head(self, log: Log, cursor: int) -> int:
        """The seq up to which a log is synced, as far as known, and at least `cursor`.

        When there is nothing behind the cursor the rest is hurried up; until then the sync
        that comes by itself is soon enough.
        """
        last = self._last.get(log.id)
        if log.resident or last is None:
            return log.head_seq
        if self._is_synced(last):
            self.forget(log.id)
            return log.head_seq
        awaited = self._awaited.get(log.id)
        if awaited is not None and self._is_synced(awaited):
            self._heads[log.id] = awaited.head_seq
            awaited = None
        if awaited is None:
            awaited = self._awaited[log.id] = last
        head = max(cursor, self._heads.get(log.id, 0))
        if head == cursor:
            self._engine.wal.shards[awaited.shard].hurry()
        return head

    def is_clean(self, log: Log) -> bool:
        """Whether all that was written for a log is synced; hurries it up when not."""
        last = self._last.get(log.id)
        if last is None:
            return True
        if not self._is_synced(last):
            self._engine.wal.shards[last.shard].hurry()
            return False
        self.forget(log.id)
        return True

    def _is_synced(self, frame: _Frame) -> bool:
        return self._engine.wal.shards[frame.shard].synced_lsn >= frame.lsn

"""Names to logs, for a process that only reads.

A view is looked up in the catalog once and then kept; it is valid as long as its board row
still shows the same log and the same generation, which every use checks. So a worker sees
a created, changed or deleted topic on its next request, without asking the engine.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from topicsd.model.topic import TopicConfig
from topicsd.reader.diff import Losses
from topicsd.rules.floors import SOURCE_TRIM
from topicsd.storage.board import FLAG_DERIVED, Board, BoardRow
from topicsd.storage.catalog import CatalogMissing, CatalogReader, LogRecord

_decode_config = msgspec.json.Decoder(TopicConfig).decode


class TopicView(msgspec.Struct, frozen=True):
    """A topic as the catalog describes it."""

    name: str
    log_id: int
    row: int
    generation: int
    config: TopicConfig
    epoch: int
    # Whether a router copies into it; that changes the generation.
    derived: bool = False
    created_ts: int = 0

    @property
    def has_records(self) -> bool:
        """Whether what it holds is JSON, which the door of topics speaks."""
        stream = self.config.stream
        return stream is msgspec.UNSET or stream.is_json


class TopicState(msgspec.Struct, frozen=True):
    """What `GET /v0/topics/:topic` reports beside the configuration (API 1.2)."""

    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    last_write_ts: int | None
    last_read_ts: int | None
    effective_priority: int


class TopicSummary(msgspec.Struct, frozen=True):
    """One row of a listing (API 1.3)."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class Topics:
    """A bounded cache of views over the catalog."""

    def __init__(self, catalog: CatalogReader, cache_max: int) -> None:
        self._catalog = catalog
        self._cache_max = cache_max
        self._views: OrderedDict[str, TopicView] = OrderedDict()

    def find(self, name: str, board: Board) -> TopicView | None:
        """The current view of a topic, or None when there is none."""
        view = self._views.get(name)
        if view is not None:
            if is_current(view, board.read(view.row)):
                self._views.move_to_end(name)
                return view
            del self._views[name]
        return self._load(name, board)

    def list_page(
        self,
        board: Board,
        prefix: str,
        after: str,
        limit: int,
        allow: tuple[str, ...],
        *,
        kind: str = "topic",
    ) -> list[tuple[TopicView, BoardRow]]:
        """Logs of a kind by name, with their board rows.

        A topic that vanished since the catalog was read is left out and another one takes
        its place, so that only the end of the list makes a page short.
        """
        page: list[tuple[TopicView, BoardRow]] = []
        while len(page) < limit:
            wanted = limit - len(page)
            found = self._records(prefix, after, wanted, allow, kind)
            for record in found:
                row = board.read(record.row)
                if row.log_id == record.id:
                    page.append((_view(record, row), row))
            if len(found) < wanted:
                break
            after = found[-1].name
        return page

    def _records(
        self, prefix: str, after: str, limit: int, allow: tuple[str, ...], kind: str
    ) -> list[LogRecord]:
        try:
            return self._catalog.list_logs(prefix, after, limit, allow, kind=kind)
        except CatalogMissing:
            return []

    def forget(self) -> None:
        """Drop every view: a new engine session counts generations anew."""
        self._views.clear()

    def count_segments(self) -> int:
        try:
            return self._catalog.count_segments()
        except CatalogMissing:
            return 0

    def last_id(self) -> int:
        try:
            return self._catalog.next_id() - 1
        except CatalogMissing:
            return 0

    def created_after(self, log_id: int) -> list[LogRecord]:
        """Topics with a greater id, which is those created later, in that order."""
        try:
            return self._catalog.logs_after(log_id)
        except CatalogMissing:
            return []

    def losses(self, row: BoardRow) -> Losses:
        """What a log lost in the middle; its row may be ahead of the catalog by one trim."""
        found = self._catalog.gaps(row.log_id)
        gaps = [(gap.from_seq, gap.to_seq) for gap in found]
        trims = {gap.from_seq for gap in found if gap.reason == SOURCE_TRIM}
        if row.trim_seq and row.trim_seq not in trims:
            gaps = sorted([*gaps, (row.trim_seq, row.trim_seq)])
            trims.add(row.trim_seq)
        return Losses(gaps, frozenset(trims))

    def _load(self, name: str, board: Board) -> TopicView | None:
        try:
            # The generation is read first: a change in between makes the view stale at once.
            record = self._catalog.find_log(name)
            if record is None:
                return None
            row = board.read(record.row)
            record = self._catalog.find_log(name)
        except CatalogMissing:
            return None
        if record is None:
            return None
        view = _view(record, row)
        if not is_current(view, board.read(view.row)):
            return None
        self._views[name] = view
        if len(self._views) > self._cache_max:
            self._views.popitem(last=False)
        return view


def is_current(view: TopicView, row: BoardRow) -> bool:
    return row.log_id == view.log_id and row.generation == view.generation


def _view(record: LogRecord, row: BoardRow) -> TopicView:
    return TopicView(
        record.name,
        record.id,
        record.row,
        row.generation,
        _decode_config(record.config_json),
        record.epoch,
        bool(row.flags & FLAG_DERIVED),
        record.created_ts,
    )

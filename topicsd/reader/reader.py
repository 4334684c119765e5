"""One process's view of the data directory: the board, the catalog and the shelf.

Everything is opened on first use, so a worker can start before the engine has made the
files. A new engine session may have replaced the board and rewritten segments, so every
map is dropped when the session changes.
"""

from __future__ import annotations

from collections.abc import Callable

from topicsd.model import errors
from topicsd.model.clock import Clock
from topicsd.model.settings import Settings
from topicsd.reader.diff import DiffPage, DiffQuery, Losses, build_want, read_page
from topicsd.reader.entries import EntryPage, EntryQuery, StreamStatus, read_entries
from topicsd.reader.topics import Topics, TopicState, TopicSummary, TopicView
from topicsd.rules import priority
from topicsd.rules.floors import Floors
from topicsd.storage import paths
from topicsd.storage.board import (
    FLAG_CLOSED,
    FLAG_GAPS,
    FLAG_GONE,
    FLAG_HOLES,
    Board,
    BoardMissing,
    BoardRow,
)
from topicsd.storage.catalog import CatalogReader
from topicsd.storage.fs import Files
from topicsd.storage.pick import Picked, pick
from topicsd.storage.shelf import Shelf
from topicsd.storage.view import Snapshot, Stale

RETRIES_MAX = 100


class Reader:
    """Topics, their states and their records, without the engine."""

    def __init__(self, settings: Settings, files: Files, clock: Clock) -> None:
        self._settings = settings
        self.files = files
        self._clock = clock
        self._board: Board | None = None
        self._session = 0
        self._topics = Topics(CatalogReader(paths.catalog(settings.data_dir)), settings.topic_cache)
        self._shelf = Shelf(files, (), maps_max=settings.open_segments)

    @property
    def board(self) -> Board:
        """The engine's board, or `not_ready` while there is none."""
        if self._board is None:
            try:
                self._board = Board(self.files, paths.board(self._settings.data_dir))
            except BoardMissing:
                raise errors.not_ready(0.0) from None
        if self._board.session != self._session:
            self._session = self._board.session
            roots = paths.roots(self._settings, self._board.instance)
            self._shelf = Shelf(self.files, roots, maps_max=self._settings.open_segments)
            self._topics.forget()
        return self._board

    def find_topic(self, name: str) -> TopicView | None:
        """The log of records of that name as it is now, or None."""
        found = self.find_log(name)
        return found if found is not None and found.has_records else None

    def find_log(self, name: str) -> TopicView | None:
        """The same, also when it holds bytes that are no records."""
        return self._topics.find(name, self.board)

    def state(self, topic: TopicView) -> TopicState | None:
        """A topic's watermarks and exact counts; None when it was deleted meanwhile."""
        for _ in range(RETRIES_MAX):
            row = self._current(topic)
            if row is None:
                return None
            try:
                state = self._state(topic, row)
            except Stale:
                continue
            if self._still_there(topic.row, row):
                return state
        raise errors.not_ready(1.0)

    def touch(self, topic: TopicView) -> None:
        """Note that the topic was consumed now (DESIGN 3)."""
        self.board.set_last_read(topic.row, self._clock.now_ms())

    def effective_priority(self, name: str) -> int:
        """The priority of a topic right now; 0 for one that does not exist yet."""
        topic = self.find_topic(name)
        if topic is None:
            return 0
        last_read = self.board.last_read(topic.row) or None
        return priority.effective(topic.config, last_read, self._clock.now_ms())

    def diff(self, topic: TopicView, query: DiffQuery) -> DiffPage | None:
        """Records after a cursor; None when the topic was deleted meanwhile."""
        wanted = build_want(query, dedupe_node=topic.config.dedupe_node)
        for _ in range(RETRIES_MAX):
            row = self._current(topic)
            if row is None:
                return None
            snapshot = Snapshot(self._shelf, row, self._session)
            try:
                floors = self._floors(snapshot)
                losses = self._topics.losses(row) if row.flags & FLAG_GAPS else Losses()
                want = wanted._replace(holes=bool(row.flags & FLAG_HOLES))
                page = read_page(snapshot, floors, query, losses, want)
            except Stale:
                continue
            if self._still_there(topic.row, row):
                return page
        raise errors.not_ready(1.0)

    def stream_status(self, topic: TopicView) -> StreamStatus | None:
        """Where a stream stands right now; None when it was removed meanwhile."""
        row = self._current(topic)
        if row is None:
            return None
        return StreamStatus(
            head_seq=row.head_seq,
            closed=bool(row.flags & FLAG_CLOSED),
            gone=bool(row.flags & FLAG_GONE),
            accessed_ms=max(topic.created_ts, self.board.last_read(topic.row)),
            payload_bytes=row.payload_bytes,
            records=row.live,
            last_write_ts=row.last_write_ts,
        )

    def entries(self, topic: TopicView, query: EntryQuery) -> EntryPage | None:
        """Payloads after a position, in one log; None when it was removed meanwhile."""
        for _ in range(RETRIES_MAX):
            row = self._current(topic)
            if row is None:
                return None
            snapshot = Snapshot(self._shelf, row, self._session)
            try:
                page = read_entries(snapshot, self._floors(snapshot), query)
            except Stale:
                continue
            if self._still_there(topic.row, row):
                return page
        raise errors.not_ready(1.0)

    def seek(self, topic: TopicView, ts_ms: int) -> int | None:
        """The first seq written at or after a time; None when the log was removed."""
        for _ in range(RETRIES_MAX):
            row = self._current(topic)
            if row is None:
                return None
            try:
                return Snapshot(self._shelf, row, self._session).first_since(ts_ms)
            except Stale:
                continue
        raise errors.not_ready(1.0)

    def list_streams(
        self, prefix: str, after: str, limit: int, allow: tuple[str, ...]
    ) -> list[tuple[TopicView, StreamStatus]]:
        """Streams by name, after `after`; those that ended a moment ago are left out."""
        page = self._topics.list_page(self.board, prefix, after, limit, allow, kind="stream")
        found = [(topic, self.stream_status(topic)) for topic, _ in page]
        return [(topic, status) for topic, status in found if status is not None]

    def pick(self, topic: TopicView, seqs: list[int]) -> list[Picked]:
        """Single records by ascending seqs, whatever their age, without those that are gone."""
        return self._pick(topic, lambda snapshot: seqs)

    def pick_after(self, topic: TopicView, seq: int, limit: int) -> list[Picked]:
        """The next `limit` records after a seq that have not expired."""

        def choose(snapshot: Snapshot) -> list[int]:
            floor = self._floors(snapshot).earliest_seq
            return snapshot.list_live(max(seq + 1, floor), limit)

        return self._pick(topic, choose)

    def _pick(self, topic: TopicView, choose: Callable[[Snapshot], list[int]]) -> list[Picked]:
        for _ in range(RETRIES_MAX):
            row = self._current(topic)
            if row is None:
                return []
            snapshot = Snapshot(self._shelf, row, self._session)
            try:
                found = list(pick(snapshot, choose(snapshot)))
            except Stale:
                continue
            if self._still_there(topic.row, row):
                return found
        raise errors.not_ready(1.0)

    def list_topics(
        self, prefix: str, after: str, limit: int, allow: tuple[str, ...]
    ) -> list[TopicSummary]:
        """Topics by name, after `after`, within `prefix` and the prefixes of `allow`."""
        found = self.list_states(prefix, after, limit, allow)
        return [_summary(topic, state) for topic, state in found]

    def list_states(
        self, prefix: str, after: str, limit: int, allow: tuple[str, ...]
    ) -> list[tuple[TopicView, TopicState]]:
        """Like `list_topics`, with everything known of each."""
        page = self._topics.list_page(self.board, prefix, after, limit, allow)
        states = []
        for topic, row in page:
            state = self._state(topic, row) if not row.ttl_ms else self.state(topic)
            if state is not None:
                states.append((topic, state))
        return states

    def head_seq(self, topic: TopicView) -> int:
        """The newest seq of a topic; 0 when it was deleted."""
        row = self._current(topic)
        return 0 if row is None else row.head_seq

    def last_topic_id(self) -> int:
        """The id of the topic created last."""
        return self._topics.last_id()

    def created_after(self, log_id: int) -> list[tuple[int, str]]:
        """Ids and names of the topics created after the one with this id."""
        return [(record.id, record.name) for record in self._topics.created_after(log_id)]

    def count_segments(self) -> int:
        """Sealed segments of all topics."""
        return self._topics.count_segments()

    def _current(self, topic: TopicView) -> BoardRow | None:
        row = self.board.read(topic.row)
        return row if row.log_id == topic.log_id else None

    def _still_there(self, number: int, row: BoardRow) -> bool:
        """Whether the bytes just copied still belonged to the log when the copy ended."""
        now = self.board.read(number)
        return now.log_id == row.log_id and now.location == row.location

    def _floors(self, snapshot: Snapshot) -> Floors:
        row = snapshot.row
        live_from = snapshot.expired_below(self._clock.now_ms())
        earliest = row.earliest_seq
        if live_from > earliest:
            earliest = snapshot.first_visible(live_from)
        return Floors(row.head_seq, earliest, row.cap_floor, live_from, row.lost_floor)

    def _state(self, topic: TopicView, row: BoardRow) -> TopicState:
        snapshot = Snapshot(self._shelf, row, self._session)
        floors = self._floors(snapshot)
        count, size = row.live, row.payload_bytes
        if floors.earliest_seq > row.earliest_seq:
            expired, expired_bytes = snapshot.live_between(row.earliest_seq, floors.earliest_seq)
            count, size = count - expired, size - expired_bytes
        last_read = self.board.last_read(topic.row) or None
        return TopicState(
            head_seq=row.head_seq,
            earliest_seq=floors.earliest_seq,
            next_seq=row.next_seq,
            count=count,
            bytes=size,
            last_write_ts=row.last_write_ts or None,
            last_read_ts=last_read,
            effective_priority=priority.effective(topic.config, last_read, self._clock.now_ms()),
        )


def _summary(topic: TopicView, state: TopicState) -> TopicSummary:
    return TopicSummary(
        topic=topic.name,
        head_seq=state.head_seq,
        earliest_seq=state.earliest_seq,
        count=state.count,
        bytes=state.bytes,
        durable=topic.config.durable,
        effective_priority=state.effective_priority,
    )

"""An engine and a reader small enough to see through, for tests of the web room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from topicsd.bridge.wakeups import Wakeups
from topicsd.model import commands, errors
from topicsd.model.clock import SystemClock
from topicsd.model.errors import TopicsError
from topicsd.model.jobs import QueueCounts, QueueState
from topicsd.model.keys import KeyRing
from topicsd.model.record import ROW, ROW_BYTES, complete, prefix
from topicsd.model.settings import Settings
from topicsd.model.topic import DEFAULT, TopicConfig
from topicsd.reader import DiffPage, DiffQuery, TopicState, TopicSummary, TopicView
from topicsd.rules.floors import Tombstone
from topicsd.storage.board import CLASSES, Totals
from topicsd.storage.figures import Figures
from topicsd.storage.fs import Files
from topicsd.storage.tally import Tally
from topicsd.web.context import Context
from topicsd.web.dispatch import answer
from topicsd.web.gate import Gate
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.routes import ROUTES


class Topic:
    """One log in memory."""

    def __init__(self, view: TopicView) -> None:
        self.view = view
        self.records: list[bytes] = []
        self.last_read: int | None = None
        self.tombstone: Tombstone | None = None


class Store:
    """What the fake port writes and the fake reader reads."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.ids = 0
        self.state = "ready"
        self.replay_progress = 1.0
        self.figures = Figures()

    def create(self, name: str, config: TopicConfig = DEFAULT) -> Topic:
        self.ids += 1
        topic = Topic(TopicView(name, self.ids, self.ids, 1, config, 1))
        self.topics[name] = topic
        return topic


def list_rests(command: commands.Append) -> list[bytes]:
    """The records of a command without seq and time, cut apart by their rows."""
    stored = complete(command.forms, 0, command.count, 0)
    rests, position = [], 0
    for seq, (_, length, *_) in enumerate(ROW.iter_unpack(command.rows)):
        position += len(prefix(seq, 0))
        rests.append(stored[position : position + length])
        position += length
    assert position == len(stored)
    return rests


class FakePort:
    """Applies commands at once; the reply comes in a later turn of the loop."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.wakeups = Wakeups()
        self.connected = True
        self.worker = 1
        self.commands: list[Any] = []
        # Set to hold replies back until `release`.
        self.hold = False
        self.held: list[Callable[[], None]] = []
        self.failure: TopicsError | None = None

    def submit(self, command: commands.Command) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.commands.append(command)
        try:
            if self.failure is not None:
                raise self.failure
            reply = getattr(self, "_" + type(command).__name__)(command)
        except TopicsError as error:
            future.set_exception(error)
            return future

        def finish() -> None:
            if not future.done():
                future.set_result(reply)

        if self.hold:
            self.held.append(finish)
        else:
            loop.call_soon(finish)
        return future

    def release(self) -> None:
        held, self.held = self.held, []
        for finish in held:
            finish()

    def _PutTopic(self, command: commands.PutTopic) -> commands.TopicPut:  # noqa: N802
        created = command.topic not in self.store.topics
        topic = self.store.topics.get(command.topic) or self.store.create(command.topic)
        view = topic.view
        topic.view = msgspec.structs.replace(view, config=command.config)
        return commands.TopicPut(created, command.config)

    def _QueueState(self, command: QueueState) -> QueueCounts:  # noqa: N802
        return QueueCounts(len(self.store.topics[command.topic].records), 0, 0, 0)

    def _DeleteTopic(self, command: commands.DeleteTopic) -> commands.TopicDeleted:  # noqa: N802
        topic = self.store.topics.get(command.topic)
        if topic is not None and command.if_empty and topic.records:
            raise errors.topic_not_empty(command.topic, len(topic.records))
        self.store.topics.pop(command.topic, None)
        if topic is not None:
            self.wakeups.moved([topic.view.row])
        return commands.TopicDeleted(topic is not None, [])

    def _FindTopic(self, command: commands.FindTopic) -> commands.TopicFound:  # noqa: N802
        return commands.TopicFound(command.topic in self.store.topics)

    def _Append(self, command: commands.Append) -> commands.Appended:  # noqa: N802
        created = command.topic not in self.store.topics
        if created and command.create is False:
            raise errors.topic_not_found(command.topic)
        topic = self.store.topics.get(command.topic)
        if topic is None:
            topic = self.store.create(command.topic, command.config or DEFAULT)
        assert len(command.rows) == ROW_BYTES * command.count
        first = len(topic.records) + 1
        topic.records += list_rests(command)
        last = first + command.count - 1
        self.wakeups.moved([topic.view.row])
        return commands.Appended(first, last, last, created, False, 12, 0)


class FakeReader:
    """Reads the store; remembers what it was asked."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queries: list[DiffQuery] = []
        self.touched: list[str] = []
        # Names the reader has not heard of yet: the first look misses.
        self.late: set[str] = set()
        self.files = Files()

    @property
    def board(self) -> Any:
        board = type("Board", (), {})()
        board.state = self.store.state
        board.replay_progress = self.store.replay_progress
        board.topics = len(self.store.topics)
        board.figures = self.store.figures
        board.totals = lambda: Totals(0, 0, dict.fromkeys(CLASSES, 0), 0)
        board.engine_pid = 0
        return board

    def find_topic(self, name: str) -> TopicView | None:
        if name in self.late:
            self.late.discard(name)
            return None
        topic = self.store.topics.get(name)
        return topic.view if topic else None

    find_log = find_topic

    def touch(self, view: TopicView) -> None:
        self.touched.append(view.name)

    def state(self, view: TopicView) -> TopicState | None:
        topic = self.store.topics.get(view.name)
        if topic is None:
            return None
        head = len(topic.records)
        return TopicState(head, 1, head + 1, head, 9 * head, 5 if head else None, None, 0)

    def diff(self, view: TopicView, query: DiffQuery) -> DiffPage | None:
        self.queries.append(query)
        topic = self.store.topics.get(view.name)
        if topic is None or topic.view.log_id != view.log_id:
            return None
        head = len(topic.records)
        until = head if query.until_seq is None else query.until_seq
        stop = min(head, until, query.from_seq + query.limit)
        seqs = range(query.from_seq + 1, stop + 1)
        wire = b"".join(prefix(seq, 7) + topic.records[seq - 1] for seq in seqs)
        return DiffPage(
            records=wire[:-1],
            count=len(seqs),
            next_from_seq=max(stop, min(query.from_seq, head)),
            head_seq=head,
            earliest_seq=1,
            tombstone=topic.tombstone,
            scanned=len(seqs),
        )

    def list_states(
        self, prefix: str, after: str, limit: int, allow: tuple[str, ...]
    ) -> list[tuple[TopicView, TopicState]]:
        names = [summary.topic for summary in self.list_topics(prefix, after, limit, allow)]
        views = [self.store.topics[name].view for name in names]
        return [(view, state) for view in views if (state := self.state(view))]

    def count_segments(self) -> int:
        return 0

    def list_topics(
        self, prefix: str, after: str, limit: int, allow: tuple[str, ...]
    ) -> list[TopicSummary]:
        names = sorted(
            name
            for name in self.store.topics
            if name.startswith(prefix) and name > after and (not allow or name.startswith(allow))
        )
        return [TopicSummary(name, 0, 1, 0, 0, False, 0) for name in names[:limit]]


class World:
    """A context over fakes, and a way to ask it things without a transport."""

    def __init__(self, *, keys: str = "", **settings: Any) -> None:
        ring = KeyRing.parse(keys) if keys else KeyRing()
        self.settings = Settings(api_keys=ring, **settings)
        self.store = Store()
        self.port = FakePort(self.store)
        self.reader = FakeReader(self.store)
        tally = Tally(Files(), columns=1, keys=len(ring), series=len(ROUTES) + 1)
        self.gate = Gate(tally, ring, self.settings.max_inflight_per_key)
        self.clock = SystemClock()
        self.context = Context(self.settings, self.clock, self.gate, self.port, self.reader)  # type: ignore[arg-type]

    async def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        path, _, query = target.partition("?")
        table = {name.lower(): value for name, value in (headers or {}).items()}
        if body is not None:
            table.setdefault("content-type", "application/json")
            table.setdefault("content-length", str(len(body)))

        async def receive(limit: int) -> bytes:
            return body or b""

        request = Request(method, path, query, table, self.clock.monotonic_us())
        return await answer(request, self.context, receive)

    def ask(self, *arguments: Any, **options: Any) -> Reply:
        return asyncio.run(self.send(*arguments, **options))

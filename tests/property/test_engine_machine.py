"""The engine and the reader behave like a dict of lists, through restarts and crashes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.property import moves
from tests.property.moves import NAMES, Delete, Move, Page, Put, Write
from tests.property.oracle import Oracle, OracleTopic, Refused, payload_bytes
from tests.property.rig import Rig
from topicsd.model.commands import (
    Appended,
    Command,
    DeleteTopic,
    Failed,
    PutTopic,
    Reply,
    TopicDeleted,
    TopicPut,
)
from topicsd.model.topic import DEFAULT
from topicsd.reader import DiffPage, DiffQuery, TopicView

_CHECKS_OFF = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_default = settings(
    max_examples=200,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=_CHECKS_OFF,
)
PROFILES = {
    "default": _default,
    "long": settings(_default, max_examples=2000, stateful_step_count=60, derandomize=False),
}
WHOLE = 1 << 30


class EngineMachine(RuleBasedStateMachine):
    """Every step is done to both; every invariant compares them completely."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.oracle = Oracle()
        self.crashes = 0

    @property
    def now(self) -> int:
        return self.rig.clock.now

    @rule(pipeline=moves.pipelines)
    def apply(self, pipeline: list[list[Move]]) -> None:
        """Every command gets the reply the oracle expects."""
        batches: list[list[Command]] = []
        expected: list[object] = []
        for batch in pipeline:
            commands, gists = self._expect_batch(batch)
            batches.append(commands)
            expected += gists
        assert expected == [_gist(reply) for reply in self.rig.run(batches)]

    def _expect_batch(self, batch: Sequence[Move]) -> tuple[list[Command], list[object]]:
        """Do a batch to the oracle; return its commands and the gist of their replies."""
        commands: list[Command] = []
        gists: list[object] = []
        written: dict[str, OracleTopic] = {}
        for move in batch:
            commands.append(self._command(move))
            gists.append(self._expect(move, commands[-1], written))
        for topic in written.values():
            topic.enforce(self.now)
        return commands, gists

    def _command(self, move: Move) -> Command:
        """The command; a PUT keeps what a topic may not change here (its class and window)."""
        if isinstance(move, Write):
            return moves.append_command(move, self._key(move))
        if isinstance(move, Delete):
            return DeleteTopic(move.name, move.if_empty)
        config, topic = move.config, self.oracle.topics.get(move.name)
        if topic is not None:
            config = msgspec.structs.replace(
                config,
                durability=topic.config.durability,
                idempotency_window_ms=topic.config.idempotency_window_ms,
            )
        return PutTopic(move.name, config, True)

    def _key(self, move: Write) -> str | None:
        """Whether a crash keeps the keys of an ephemeral topic is open, so none is reused."""
        topic = self.oracle.topics.get(move.name)
        config = topic.config if topic is not None else move.config or DEFAULT
        if move.key is None or config.durability != "ephemeral":
            return move.key
        return f"{move.key}/{self.crashes}"

    def _expect(self, move: Move, command: Command, written: dict[str, OracleTopic]) -> object:
        if isinstance(command, PutTopic):
            # What was written before it is complete by then.
            for topic in written.values():
                topic.enforce(self.now)
            return self.oracle.put(move.name, command.config, self.now)
        if isinstance(move, Delete):
            return self._expect_delete(move, written)
        assert isinstance(move, Write)
        return self._expect_write(move, written)

    def _expect_delete(self, move: Delete, written: dict[str, OracleTopic]) -> object:
        topic = self.oracle.topics.get(move.name)
        if topic is None:
            return False
        if move.if_empty:
            topic.expire(self.now)
            if topic.live:
                return "topic_not_empty"
        del self.oracle.topics[move.name]
        written.pop(move.name, None)
        return True

    def _expect_write(self, move: Write, written: dict[str, OracleTopic]) -> object:
        known = self.oracle.topics.get(move.name)
        topic = known or OracleTopic(move.config or DEFAULT)
        try:
            first, last, deduped = topic.append(move.contents, self._key(move), self.now)
        except Refused as refused:
            return str(refused)
        self.oracle.topics[move.name] = topic
        if not deduped:
            written[move.name] = topic
        return (first, last, topic.head, known is None, deduped)

    @rule(move=moves.writes)
    def write(self, move: Write) -> None:
        self.apply([[move]])

    @rule(move=moves.puts)
    def put(self, move: Put) -> None:
        self.apply([[move]])

    @rule(step_ms=st.sampled_from((1, 20, 50, 50, 5000, 130_000, -30)))
    def advance_clock(self, step_ms: int) -> None:
        self.rig.clock.now += step_ms

    @rule(name=moves.names, page=moves.pages)
    def read_page(self, name: str, page: Page) -> None:
        """A page of any shape holds what the oracle would put on it."""
        topic = self.oracle.topics.get(name)
        if topic is None:
            assert self.rig.reader.find_topic(name) is None
            return
        from_seq = max(topic.head - page.behind_head, 0)
        found = self._diff(self._view(name), from_seq, page)
        assert topic.tombstone(from_seq, self.now) == found.tombstone
        _check_page(found, page, topic, from_seq, self.now)

    @rule(stop_at=st.one_of(st.none(), st.integers(1, 40)))
    def begin_checkpoint(self, stop_at: int | None) -> None:
        """A checkpoint runs beside the following steps, possibly stuck in the middle."""
        self.rig.begin_checkpoint(stop_at)

    @rule()
    def finish_checkpoint(self) -> None:
        self.rig.finish_checkpoint()

    @rule()
    def restart(self) -> None:
        """A clean stop leaves a clean directory, and the next start has nothing to do."""
        assert self.rig.stop() == []
        summary = self.rig.start()
        assert summary.clean
        for topic in self.oracle.topics.values():
            topic.restart()

    @rule(call=st.integers(1, 40))
    def crash_in_checkpoint(self, call: int) -> None:
        self.rig.crash_in_checkpoint(call)
        self._recover()

    @rule(calls=st.lists(st.integers(1, 60), max_size=3))
    def crash(self, calls: list[int]) -> None:
        """Crash, and again in each of some recoveries."""
        self.rig.crash()
        for call in calls:
            self.rig.crash_in_recovery(call)
        self._recover()

    @rule(
        pipeline=st.lists(st.lists(moves.writes, min_size=1, max_size=3), min_size=1, max_size=3),
        call=st.one_of(st.integers(1, 25), st.just(1000)),
        lose_catalog=st.booleans(),
    )
    def crash_in_apply(self, pipeline: list[list[Write]], call: int, lose_catalog: bool) -> None:
        """Of batches without an answer each topic has the first ones, whole, or none."""
        states = [self.oracle.topics]
        batches: list[list[Command]] = []
        for batch in pipeline:
            self.oracle.topics = {name: each.copy() for name, each in states[-1].items()}
            batches.append(self._expect_batch(batch)[0])
            states.append(self.oracle.topics)
        self.rig.crash_in_apply(batches, call, lose_catalog=lose_catalog)
        self.rig.start()
        outcomes = {name: self._outcome(name, states) for name in NAMES}
        self.oracle.topics = {name: topic for name, topic in outcomes.items() if topic}
        self._follow_crash()

    def _outcome(self, name: str, states: list[dict[str, OracleTopic]]) -> OracleTopic | None:
        """The one of its possible states that a topic is in."""
        view = self.rig.reader.find_topic(name)
        if view is None:
            assert name not in states[0]
            return None
        head = self.rig.engine.board.read(view.row).head_seq
        return next(state[name] for state in states if name in state and state[name].head == head)

    def _recover(self) -> None:
        """Recovery after a killed process loses nothing that was answered."""
        summary = self.rig.start()
        assert (summary.corrupt_frames, summary.lost_records) == (0, 0)
        self._follow_crash()

    def _follow_crash(self) -> None:
        self.crashes += 1
        for name, topic in self.oracle.topics.items():
            topic.empty_ephemeral()
            topic.follow_crash(self.rig.engine.board.read(self._view(name).row), self.now)

    @invariant()
    def names_are_the_same(self) -> None:
        listed = self.rig.reader.list_topics("", "", 100, ())
        assert [each.topic for each in listed] == sorted(self.oracle.topics)
        assert self.rig.engine.registry.count == len(self.oracle.topics)
        for each in listed:
            topic = self.oracle.topics[each.topic]
            visible = topic.visible(self.now)
            assert (
                topic.head,
                topic.earliest_at(self.now),
                len(visible),
                payload_bytes(visible),
            ) == (each.head_seq, each.earliest_seq, each.count, each.bytes)

    @invariant()
    def states_are_the_same(self) -> None:
        for name in NAMES:
            topic, view = self.oracle.topics.get(name), self.rig.reader.find_topic(name)
            assert (topic is None) == (view is None)
            if topic is None or view is None:
                continue
            state = self.rig.reader.state(view)
            assert state is not None
            assert topic.config == view.config
            visible = topic.visible(self.now)
            assert (
                topic.head,
                topic.head + 1,
                topic.earliest_at(self.now),
                len(visible),
                payload_bytes(visible),
                topic.last_write_ts or None,
            ) == (
                state.head_seq,
                state.next_seq,
                state.earliest_seq,
                state.count,
                state.bytes,
                state.last_write_ts,
            )

    @invariant()
    def records_are_the_same(self) -> None:
        for name, topic in self.oracle.topics.items():
            expected = [record.wire() for record in topic.visible(self.now)]
            assert b",".join(expected) == self._read_all(name)

    @precondition(lambda self: self.oracle.topics)
    @invariant()
    def the_total_is_the_sum(self) -> None:
        total = sum(payload_bytes(topic.live) for topic in self.oracle.topics.values())
        assert total == self.rig.engine.total_bytes

    def _read_all(self, name: str) -> bytes:
        view = self._view(name)
        parts: list[bytes] = []
        from_seq = 0
        while True:
            page = self._diff(view, from_seq, Page(0, 1000, (), True, True, 1 << 20))
            parts.append(bytes(page.records))
            if page.next_from_seq == page.head_seq:
                return b",".join(part for part in parts if part)
            assert page.next_from_seq > from_seq
            from_seq = page.next_from_seq

    def _diff(self, view: TopicView, from_seq: int, page: Page) -> DiffPage:
        query = DiffQuery(
            from_seq=from_seq,
            limit=page.limit,
            nodes=page.nodes,
            include_tags=page.tags,
            include_meta=page.meta,
            max_bytes=page.max_bytes,
        )
        found = self.rig.reader.diff(view, query)
        assert found is not None
        return found

    def _view(self, name: str) -> TopicView:
        view = self.rig.reader.find_topic(name)
        assert view is not None
        return view

    def teardown(self) -> None:
        try:
            assert self.rig.stop() == []
        finally:
            self.rig.remove()


def _check_page(
    found: DiffPage, page: Page, topic: OracleTopic, from_seq: int, now_ms: int
) -> None:
    """The page is a prefix of what is left to read, and its cursor skips nothing."""
    after = from_seq if from_seq <= topic.head else 0
    hidden = set(page.nodes) if topic.config.dedupe_node else set()
    left = [
        record
        for record in topic.visible(now_ms)
        if record.seq > after and record.content.node not in hidden
    ]
    delivered, rest = left[: found.count], left[found.count :]
    wire = [record.wire(tags=page.tags, meta=page.meta) for record in delivered]
    assert b",".join(wire) == found.records
    assert found.count <= page.limit
    assert (topic.head, topic.earliest_at(now_ms)) == (found.head_seq, found.earliest_seq)
    assert found.next_from_seq >= max([after, *(record.seq for record in delivered)])
    if rest:
        assert found.count >= 1
        assert found.next_from_seq < rest[0].seq
    elif found.count < page.limit:
        assert found.next_from_seq == topic.head
    if page.max_bytes == WHOLE:
        assert found.count == min(page.limit, len(left))
    assert len(found.records) <= page.max_bytes or found.count == 1


def _gist(reply: Reply) -> object:
    """What of a reply the oracle can know."""
    if isinstance(reply, Appended):
        return (reply.first_seq, reply.last_seq, reply.head_seq, reply.created, reply.deduped)
    if isinstance(reply, TopicPut):
        return reply.created
    if isinstance(reply, TopicDeleted):
        return reply.deleted
    assert isinstance(reply, Failed)
    return reply.code


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")]

"""Deletes beside appends, caps, expiry, checkpoints and crashes behave like a dict of records."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.property import cuts
from tests.property.cuts import CONFIGS, Cut, Oracle, Turn, Write
from tests.property.rig import Rig
from topicsd.model.commands import (
    Appended,
    Command,
    DeleteRecords,
    PutTopic,
    RecordsDeleted,
    Reply,
    TopicPut,
)
from topicsd.reader import DiffPage, DiffQuery, TopicView
from topicsd.storage.board import BoardRow

_default = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PROFILES = {
    "default": _default,
    "long": settings(_default, max_examples=1500, stateful_step_count=50, derandomize=False),
}


class DeleteMachine(RuleBasedStateMachine):
    """Every step is done to engine and oracle; invariants compare all that a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.topics = {name: Oracle(config) for name, config in CONFIGS.items()}
        self.rig.run([[PutTopic(name, config, True) for name, config in CONFIGS.items()]])

    @property
    def now(self) -> int:
        return self.rig.clock.now

    @rule(pipeline=cuts.pipelines)
    def apply(self, pipeline: list[list[Write | Cut]]) -> None:
        """Replies tell exactly what went and what is left."""
        batches, expected, _ = self._expect(pipeline)
        assert expected == [_gist(reply) for reply in self.rig.run(batches)]

    @rule(move=cuts.writes)
    def write(self, move: Write) -> None:
        self.apply([[move]])

    @rule(move=cuts.cuts)
    def delete(self, move: Cut) -> None:
        self.apply([[move]])

    @rule(move=cuts.cuts)
    def delete_twice(self, move: Cut) -> None:
        """The second time there is nothing left to delete."""
        name, topic = move.name, self.topics[move.name]
        command = DeleteRecords(name, cuts.before_seq(move, topic), move.match)
        first = topic.delete(command.before_seq, command.match, self.now)
        replies = [_gist(reply) for reply in self.rig.run([[command, command]])]
        assert [first, (0, *first[1:])] == replies

    @rule(turn=cuts.turns, crash=st.booleans())
    def change_limits(self, turn: Turn, crash: bool) -> None:
        """What a limit took stays gone when it is loosened, and through a crash right after."""
        topic = self.topics[turn.name]
        config = msgspec.structs.replace(topic.config, **turn.limits)
        topic.configure(config, self.now)
        assert self.rig.run([[PutTopic(turn.name, config, True)]]) == [TopicPut(False, config)]
        if crash:
            self.crash()

    def _expect(
        self, pipeline: list[list[Write | Cut]]
    ) -> tuple[list[list[Command]], list[object], list[dict[str, Oracle]]]:
        """Commands, the gist of their replies, and all topics after every commit."""
        batches: list[list[Command]] = []
        expected: list[object] = []
        states = [self._clones()]
        for batch in pipeline:
            batches.append([])
            written: set[str] = set()
            for move in batch:
                topic = self.topics[move.name]
                if isinstance(move, Write):
                    batches[-1].append(cuts.append_command(move))
                    expected.append(topic.append(move, self.now))
                    written.add(move.name)
                    continue
                # A delete is a commit of its own: what came before it is complete.
                self._commit(written, states)
                command = DeleteRecords(move.name, cuts.before_seq(move, topic), move.match)
                batches[-1].append(command)
                expected.append(topic.delete(command.before_seq, command.match, self.now))
                states.append(self._clones())
            self._commit(written, states)
        return batches, expected, states

    def _commit(self, written: set[str], states: list[dict[str, Oracle]]) -> None:
        for name in written:
            self.topics[name].enforce(self.now)
        written.clear()
        states.append(self._clones())

    def _clones(self) -> dict[str, Oracle]:
        return {name: topic.clone() for name, topic in self.topics.items()}

    @rule(step_ms=st.sampled_from((1, 20, 40, 60)))
    def advance_clock(self, step_ms: int) -> None:
        self.rig.clock.now += step_ms

    @rule(stop_at=st.one_of(st.none(), st.integers(1, 40)))
    def begin_checkpoint(self, stop_at: int | None) -> None:
        """A checkpoint runs beside the following steps, possibly stuck in the middle."""
        self.rig.begin_checkpoint(stop_at)

    @rule()
    def finish_checkpoint(self) -> None:
        self.rig.finish_checkpoint()

    @rule()
    def restart(self) -> None:
        """A clean stop leaves a directory that `topicsd check` finds clean."""
        assert self.rig.stop() == []
        assert self.rig.start().clean
        for name, topic in self.topics.items():
            topic.follow_restart(self._row(name))

    @rule()
    def crash(self) -> None:
        self.rig.crash()
        self._recover()

    @rule(call=st.integers(1, 40))
    def crash_in_checkpoint(self, call: int) -> None:
        self.rig.crash_in_checkpoint(call)
        self._recover()

    @rule(calls=st.lists(st.integers(1, 60), min_size=1, max_size=2))
    def crash_in_recovery(self, calls: list[int]) -> None:
        self.rig.crash()
        for call in calls:
            self.rig.crash_in_recovery(call)
        self._recover()

    @rule(pipeline=cuts.pipelines, call=st.one_of(st.integers(1, 30), st.just(1000)))
    def crash_in_apply(self, pipeline: list[list[Write | Cut]], call: int) -> None:
        """Of commands without an answer each topic has the first commits, whole, or none."""
        batches, _, states = self._expect(pipeline)
        self.rig.crash_in_apply(batches, call, lose_catalog=False)
        self.rig.start()
        for name in CONFIGS:
            row = self._row(name)
            possible = [state[name] for state in states]
            if CONFIGS[name].durability == "ephemeral":
                self.topics[name] = possible[-1]
            else:
                seen = self._seqs(name)
                self.topics[name] = next(
                    topic
                    for topic in possible
                    if (topic.head, list(topic.at(self.now).kept)) == (row.head_seq, seen)
                )
            self.topics[name].follow_restart(row)

    def _recover(self) -> None:
        summary = self.rig.start()
        assert (summary.corrupt_frames, summary.lost_records) == (0, 0)
        for name, topic in self.topics.items():
            topic.follow_restart(self._row(name))

    @invariant()
    def states_are_the_same(self) -> None:
        for name, topic in self.topics.items():
            state = self.rig.reader.state(self._view(name))
            assert state is not None
            now = topic.at(self.now)
            assert (name, now.head, now.earliest, len(now.kept), now.size) == (
                name,
                state.head_seq,
                state.earliest_seq,
                state.count,
                state.bytes,
            )

    @invariant()
    def records_are_the_same(self) -> None:
        for name, topic in self.topics.items():
            now = topic.at(self.now)
            found = [(each["$seq"], each.get("$tag")) for each in self._records(name)]
            assert [(seq, record.tag) for seq, record in now.kept.items()] == found

    @invariant()
    def only_involuntary_loss_is_told(self) -> None:
        for name, topic in self.topics.items():
            now = topic.at(self.now)
            floors = {now.cap_floor, now.ttl_floor, now.earliest, now.head, now.head + 2, 1}
            for cursor in {max(floor + step, 0) for floor in floors for step in (-2, -1, 0)}:
                told = self._diff(name, cursor).tombstone
                gap = None if told is None else (told.gap_from, told.gap_to)
                assert (name, cursor, now.tombstone(cursor)) == (name, cursor, gap)

    @invariant()
    def the_total_is_what_the_board_shows(self) -> None:
        assert self.rig.engine.board.total_payload_bytes() == self.rig.engine.total_bytes

    def _seqs(self, name: str) -> list[int]:
        return [each["$seq"] for each in self._records(name)]

    def _records(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        from_seq = 0
        while True:
            page = self._diff(name, from_seq)
            found += msgspec.json.decode(b"[" + bytes(page.records) + b"]")
            if page.next_from_seq == page.head_seq:
                return found
            assert page.next_from_seq > from_seq
            from_seq = page.next_from_seq

    def _diff(self, name: str, from_seq: int) -> DiffPage:
        query = DiffQuery(from_seq, 60, (), True, True, 1 << 20)
        page = self.rig.reader.diff(self._view(name), query)
        assert page is not None
        return page

    def _row(self, name: str) -> BoardRow:
        return self.rig.engine.board.read(self._view(name).row)

    def _view(self, name: str) -> TopicView:
        view = self.rig.reader.find_topic(name)
        assert view is not None
        return view

    def teardown(self) -> None:
        try:
            assert self.rig.stop() == []
        finally:
            self.rig.remove()


def _gist(reply: Reply) -> object:
    """What of a reply the oracle knows."""
    if isinstance(reply, Appended):
        return reply.first_seq, reply.last_seq
    assert isinstance(reply, RecordsDeleted), reply
    return reply.deleted, reply.earliest_seq, reply.head_seq, reply.count, reply.bytes


TestDeletes = DeleteMachine.TestCase
TestDeletes.settings = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")]

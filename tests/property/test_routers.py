"""Routers against what was seen of them: crashes move no copy, and lose and repeat none."""

from __future__ import annotations

import json
import os
import threading

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.faults.driver import append
from tests.property.rig import Rig
from topicsd.model.commands import (
    Appended,
    Command,
    DeleteRecords,
    PutRouter,
    PutTopic,
    Reply,
    RouterPut,
)
from topicsd.model.match import Match
from topicsd.model.router import RouterConfig
from topicsd.model.topic import TopicConfig
from topicsd.reader import DiffQuery

TAGS = st.sampled_from(["x", "y", None])
SOURCE, MIDDLE, LAST = "source", "middle", "last"
CALLS = st.integers(0, 12)
DRAIN_TURNS_MAX = 2000

_default = settings(
    max_examples=40,
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


class RouterMachine(RuleBasedStateMachine):
    """source -> middle -> last; the middle is written to directly, too.

    Every record has a payload of its own. What a reader has seen at a seq of a destination
    must be there for ever, unless it was deleted there; and of each source record a
    destination gets at most one copy, in order, and one unless the source lost it before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.number = 0
        # By topic: what was ever seen at a seq, and the seqs deleted or evicted since.
        self.seen: dict[str, dict[int, int]] = {SOURCE: {}, MIDDLE: {}, LAST: {}}
        self.gone: dict[str, set[int]] = {SOURCE: set(), MIDDLE: set(), LAST: set()}
        # Payloads written to the source, with their tags, and those its reader lost.
        self.written: dict[int, str | None] = {}
        self.own: set[int] = set()
        self.unsure: set[int] = set()
        self.filter: str | None = None
        self.apply(PutRouter("one", RouterConfig(source=SOURCE, dest=MIDDLE), True))
        config = RouterConfig(source=MIDDLE, dest=LAST, guarantee="exactly_once")
        self.apply(PutRouter("two", config, True))

    def apply(self, command: Command) -> Reply:
        reply = self.rig.run([[command]])[0]
        assert not hasattr(reply, "code"), reply
        return reply

    def write(self, topic: str, tags: list[str | None]) -> None:
        for tag in tags:
            self.number += 1
            reply = self.apply(append(topic, b"%d" % self.number, tag=tag))
            assert isinstance(reply, Appended)
            if topic == SOURCE:
                self.written[self.number] = tag
                if self.filter not in (None, tag):
                    self.unsure.add(self.number)
            else:
                self.own.add(self.number)

    @rule(tags=st.lists(TAGS, min_size=1, max_size=60))
    def write_source(self, tags: list[str | None]) -> None:
        self.write(SOURCE, tags)

    @rule(tags=st.lists(TAGS, min_size=1, max_size=3))
    def write_middle(self, tags: list[str | None]) -> None:
        self.write(MIDDLE, tags)

    @rule(steps=st.integers(1, 3))
    def forward(self, steps: int) -> None:
        for _ in range(steps):
            self.rig.engine.forward()
            self.rig.engine.release()

    @rule()
    def drain(self) -> None:
        """Let every copy be made; then none is missing."""
        engine = self.rig.engine
        for _ in range(DRAIN_TURNS_MAX):
            engine.forward()
            engine.release()
            logs = {route: engine.registry.find(route.source) for route in engine.routes}
            if all(log is not None and route.cursor >= log.head_seq for route, log in logs.items()):
                break
            self.rig.rung.wait(0.01)
            self.rig.rung.clear()
        else:
            raise AssertionError("copies are missing")
        self.look()
        copied = set(self.seen[MIDDLE].values())
        missing = set(self.written) - copied - self.unsure
        assert not missing, missing
        wanted = {value for seq, value in self.seen[MIDDLE].items() if seq not in self.gone[MIDDLE]}
        assert not wanted - set(self.seen[LAST].values())

    @rule(tag=st.sampled_from(["x", "y"]), topic=st.sampled_from([SOURCE, MIDDLE, LAST]))
    def delete_by_tag(self, tag: str, topic: str) -> None:
        self.look()
        self.forget_uncopied(topic)
        self.apply(DeleteRecords(topic, None, Match(tag, False)))
        self.note_gone(topic)

    @rule(part=st.floats(0, 1), topic=st.sampled_from([SOURCE, MIDDLE, LAST]))
    def delete_below(self, part: float, topic: str) -> None:
        self.look()
        self.forget_uncopied(topic)
        below = int(max(self.seen[topic], default=0) * part) + 1
        self.apply(DeleteRecords(topic, below, None))
        self.note_gone(topic)

    @rule(cap=st.sampled_from([0, 5, 40]))
    def cap_source(self, cap: int) -> None:
        """What does not fit is evicted, copied or not."""
        self.look()
        self.unsure |= set(self.written) - set(self.seen[MIDDLE].values())
        self.apply(PutTopic(SOURCE, TopicConfig(cap_records=cap), False))
        self.note_gone(SOURCE)
        if cap:
            # From here on writes evict by themselves: lift it before anything else happens.
            self.write(SOURCE, ["x"] * 3)
            self.unsure |= set(self.written)
            self.apply(PutTopic(SOURCE, TopicConfig(), False))
            self.note_gone(SOURCE)

    @rule(wanted=st.sampled_from([None, "x"]))
    def change_filter(self, wanted: str | None) -> None:
        """Copies that a filter leaves out are not missing."""
        self.look()
        match = None if wanted is None else Match(wanted, False)
        # It waits for a checkpoint, during which nothing is copied.
        self.rig.finish_checkpoint()
        reply = self.apply(
            PutRouter("one", RouterConfig(source=SOURCE, dest=MIDDLE, filter=match), True)
        )
        assert isinstance(reply, RouterPut)
        self.filter = wanted
        self.look()
        self.unsure |= set(self.written) - set(self.seen[MIDDLE].values())

    @precondition(lambda self: self.filter is not None)
    @rule()
    def lift_filter(self) -> None:
        self.drain_unchecked()
        self.change_filter(None)

    @rule()
    def checkpoint(self) -> None:
        self.rig.begin_checkpoint(None)
        self.rig.finish_checkpoint()

    @rule(stop_at=CALLS)
    def begin_checkpoint(self, stop_at: int) -> None:
        self.rig.begin_checkpoint(stop_at)

    @rule()
    def crash(self) -> None:
        self.look()
        self.rig.crash()
        self.rig.start()
        self.look()

    @rule(call=CALLS)
    def crash_in_checkpoint(self, call: int) -> None:
        self.look()
        self.rig.crash_in_checkpoint(call)
        self.rig.start()
        self.look()

    @rule(call=CALLS)
    def crash_while_forwarding(self, call: int) -> None:
        """Die between the bytes of copies and the board row, or right after."""
        self.look()
        self.rig.files.die_at(threading.current_thread().name, call)
        try:
            self.rig.engine.forward()
            self.rig.engine.forward()
        except OSError:
            assert self.rig.files.dead
        self.rig.crash()
        self.rig.start()
        self.look()

    @rule(call=CALLS)
    def crash_in_recovery(self, call: int) -> None:
        self.look()
        self.rig.crash()
        self.rig.crash_in_recovery(call)
        self.rig.start()
        self.look()

    @rule()
    def restart(self) -> None:
        self.look()
        assert self.rig.stop() == []
        self.rig.start()
        self.look()

    def drain_unchecked(self) -> None:
        for _ in range(20):
            self.rig.engine.forward()
            self.rig.engine.release()

    def forget_uncopied(self, topic: str) -> None:
        """A delete may take records that are not copied yet: those need not be."""
        if topic == SOURCE:
            self.unsure |= set(self.written) - set(self.seen[MIDDLE].values())

    def note_gone(self, topic: str) -> None:
        found = self.read(topic)
        self.gone[topic] |= set(self.seen[topic]) - set(found)

    def read(self, topic: str) -> dict[int, int]:
        reader = self.rig.reader
        view = reader.find_topic(topic)
        if view is None:
            return {}
        found: dict[int, int] = {}
        from_seq = 0
        while True:
            page = reader.diff(view, DiffQuery(from_seq, 1000, (), True, True, 1 << 20))
            assert page is not None
            records = json.loads(b"[" + bytes(page.records) + b"]")
            found |= {record["$seq"]: record["data"] for record in records}
            if page.next_from_seq == from_seq and not records:
                return found
            from_seq = page.next_from_seq

    def look(self) -> None:
        """What was seen is still there, and what is new is no copy of what was seen."""
        for topic, seen in self.seen.items():
            found = self.read(topic)
            for seq, value in seen.items():
                if seq not in self.gone[topic]:
                    assert found.get(seq) == value, (topic, seq, value, found.get(seq))
            for seq, value in found.items():
                assert seen.setdefault(seq, value) == value
            values = [seen[seq] for seq in sorted(seen)]
            assert len(values) == len(set(values)), (topic, values)
        copies = [value for _, value in sorted(self.seen[MIDDLE].items()) if value not in self.own]
        assert copies == sorted(copies)

    @invariant()
    def totals_are_exact(self) -> None:
        """Each copy is counted once."""
        routers = self.rig.engine.routes.by_name
        head = self.rig.engine.registry.find(LAST)
        assert head is not None
        assert routers["two"].forwarded <= head.head_seq

    def teardown(self) -> None:
        problems = self.rig.stop()
        self.rig.remove()
        assert problems == []


TestRouters = RouterMachine.TestCase
TestRouters.settings = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")]

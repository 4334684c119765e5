"""A queue behaves like a dict of jobs, through expiry, deletes, restarts and crashes.

No job is lost, none is leased twice at once, and every counter is exact. A crash here is the
end of the process, not of the machine: whatever was answered is in the WAL.
"""

from __future__ import annotations

from itertools import chain

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.faults.driver import append
from tests.property.queue_oracle import MAX_DELIVERIES, OracleQueue
from tests.property.rig import Rig
from tests.property.test_engine_machine import PROFILES
from topicsd.model.commands import Command, DeleteRecords, PutTopic, Reply
from topicsd.model.jobs import (
    AckJobs,
    ClaimJobs,
    ExtendJobs,
    JobsAcked,
    JobsClaimed,
    JobsExtended,
    JobsListed,
    JobsNacked,
    ListJobs,
    NackJobs,
    QueueCounts,
    QueueState,
)
from topicsd.model.match import Match
from topicsd.model.topic import TopicConfig

QUEUE, DEAD = "q", "q.dead"
NODES = st.sampled_from(["a", "b"])
SEQS = st.lists(st.integers(1, 40), min_size=1, max_size=6, unique=True)
LEASES = st.sampled_from([100, 500, 10_000])


class QueueMachine(RuleBasedStateMachine):
    """Every step is done to both; the counters are compared after each."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.oracle = OracleQueue()
        config = TopicConfig(type="queue", max_deliveries=MAX_DELIVERIES, dead_letter=DEAD)
        self.run(PutTopic(QUEUE, config, True))

    @property
    def now(self) -> int:
        return self.rig.clock.now

    def run(self, *commands: Command) -> list[Reply]:
        return self.rig.run([commands])

    @rule(delays=st.lists(st.sampled_from([0, 0, 0, 300, 5000]), min_size=1, max_size=8))
    def produce(self, delays: list[int]) -> None:
        for place, delay in enumerate(delays):
            tag = f"t{(self.oracle.head + place + 1) % 3}"
            waits = [(0, delay)] if delay else []
            self.run(append(QUEUE, b"1", tag=tag, delays=waits))
        self.oracle.produce(delays, self.now)

    @rule(node=NODES, limit=st.integers(1, 6), lease_ms=LEASES)
    def claim(self, node: str, limit: int, lease_ms: int) -> None:
        reply = self.run(ClaimJobs(QUEUE, node, limit, lease_ms))[0]
        assert isinstance(reply, JobsClaimed)
        expected = self.oracle.claim(node, limit, lease_ms, self.now)
        assert list(zip(reply.seqs, reply.deliveries, strict=True)) == expected
        assert reply.ready == self.oracle.counts(self.now)[0]

    @rule(node=NODES, seqs=SEQS, limit=st.integers(1, 4))
    def ack_and_claim_in_one_batch(self, node: str, seqs: list[int], limit: int) -> None:
        acked, claimed = self.run(
            AckJobs(QUEUE, node, seqs, []), ClaimJobs(QUEUE, node, limit, 100)
        )
        held = self.oracle.held(node, seqs, self.now)
        self.oracle.ack(held)
        assert isinstance(acked, JobsAcked) and isinstance(claimed, JobsClaimed)
        assert (acked.acked, acked.skipped) == (
            len(held),
            [seq for seq in seqs if seq not in held],
        )
        assert acked.ready == self.oracle.counts(self.now)[0]
        expected = self.oracle.claim(node, limit, 100, self.now)
        assert list(zip(claimed.seqs, claimed.deliveries, strict=True)) == expected

    @rule(node=NODES, seqs=SEQS, delay_ms=st.sampled_from([0, 200]))
    def nack(self, node: str, seqs: list[int], delay_ms: int) -> None:
        reply = self.run(NackJobs(QUEUE, node, seqs, [], delay_ms))[0]
        held = self.oracle.held(node, seqs, self.now)
        self.oracle.set_free_at(held, self.now + delay_ms, release=True)
        assert isinstance(reply, JobsNacked)
        assert reply.nacked == len(held)

    @rule(node=NODES, seqs=SEQS, lease_ms=LEASES)
    def extend(self, node: str, seqs: list[int], lease_ms: int) -> None:
        reply = self.run(ExtendJobs(QUEUE, node, seqs, [], lease_ms))[0]
        held = self.oracle.held(node, seqs, self.now)
        self.oracle.set_free_at(held, self.now + lease_ms + 1, release=False)
        assert isinstance(reply, JobsExtended)
        assert reply.extended == sorted(held)

    @rule(
        before_seq=st.none() | st.integers(1, 30),
        tag=st.none() | st.sampled_from(["t0", "t1", "t2"]),
    )
    def delete(self, before_seq: int | None, tag: str | None) -> None:
        if before_seq is None and tag is None:
            return
        match = None if tag is None else Match(tag, False)
        self.run(DeleteRecords(QUEUE, before_seq, match))
        self.oracle.delete(before_seq, tag)

    @rule(elapsed_ms=st.sampled_from([1, 100, 101, 600, 20_000]))
    def wait(self, elapsed_ms: int) -> None:
        self.rig.clock.now += elapsed_ms
        self.rig.engine.tick()

    @rule()
    def checkpoint(self) -> None:
        self.rig.begin_checkpoint(None)
        self.rig.finish_checkpoint()

    @rule()
    def restart(self) -> None:
        assert self.rig.stop() == []
        self.rig.start()

    @rule()
    def crash(self) -> None:
        self.rig.crash()
        self.rig.start()

    @rule(call=st.integers(0, 30))
    def crash_in_a_checkpoint(self, call: int) -> None:
        self.rig.crash_in_checkpoint(call)
        self.rig.start()

    @invariant()
    def counters_agree(self) -> None:
        counts = self.run(QueueState(QUEUE))[0]
        assert isinstance(counts, QueueCounts)
        found = (counts.ready, counts.in_flight, counts.delayed, counts.dead_lettered)
        assert found == self.oracle.counts(self.now)
        listed = []
        for state in ("ready", "in_flight", "delayed"):
            reply = self.run(ListJobs(QUEUE, state, 0, 1000))[0]
            assert isinstance(reply, JobsListed)
            listed.append([job.seq for job in reply.jobs])
        assert [len(seqs) for seqs in listed] == list(found[:3])
        assert sorted(chain(*listed)) == sorted(self.oracle.jobs)

    def teardown(self) -> None:
        topic = self.rig.reader.find_topic(DEAD)
        state = None if topic is None else self.rig.reader.state(topic)
        assert (0 if state is None else state.count) == len(self.oracle.dead)
        assert self.rig.stop() == []
        self.rig.remove()


QueueMachine.TestCase.settings = settings(
    PROFILES["default"], max_examples=60, stateful_step_count=30
)
TestQueueMachine = QueueMachine.TestCase

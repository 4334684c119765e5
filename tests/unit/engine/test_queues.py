"""Queues in the engine: one frame a batch, refusals undone, healing, and cohorts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.driver import Driver, append
from tests.faults.faulty import FaultyFiles
from topicsd.model.commands import (
    Command,
    DeleteRecords,
    DeleteTopic,
    Failed,
    Join,
    Leave,
    PutTopic,
    Reply,
)
from topicsd.model.jobs import (
    AckJobs,
    ClaimJobs,
    CloseWork,
    JobsAcked,
    JobsClaimed,
    NackJobs,
    NextWork,
    OpenWork,
    QueueCounts,
    QueueState,
    WorkClosed,
    WorkEnded,
    WorkOpened,
)
from topicsd.model.topic import TopicConfig

WORKER = 77


def make_queue(driver: Driver, jobs: int, **config: Any) -> None:
    driver.put("q", type="queue", **config)
    if jobs:
        driver.append("q", *[b"%d" % number for number in range(jobs)])


def counts(driver: Driver) -> tuple[int, int, int, int]:
    found = driver.run(QueueState("q"))[0]
    assert isinstance(found, QueueCounts)
    return found.ready, found.in_flight, found.delayed, found.dead_lettered


def claim(driver: Driver, limit: int = 1, node: str = "w") -> JobsClaimed:
    reply = driver.run(ClaimJobs("q", node, limit, 0))[0]
    assert isinstance(reply, JobsClaimed)
    return reply


def late(driver: Driver, *commands: Command) -> list[tuple[int, Reply]]:
    """Apply commands of which some are answered later; what is answered now."""
    return driver.engine.apply(list(enumerate(commands)))


def _live(driver: Driver) -> int:
    log = driver.engine.registry.find("q")
    assert log is not None
    return log.live


def frames(driver: Driver) -> int:
    return driver.engine.wal.counters.frames


def test_a_batch_of_lease_commands_is_one_frame(driver: Driver) -> None:
    """Claims and acks of many workers share a frame, and each sees those before it."""
    make_queue(driver, 40)
    first = [claim(driver, 5, f"w{number}") for number in range(4)]
    before = frames(driver)
    acks = [AckJobs("q", f"w{number}", each.seqs, []) for number, each in enumerate(first)]
    claims = [ClaimJobs("q", "v", 4, 0) for _ in range(4)]
    replies = driver.run(*acks, *claims)
    assert frames(driver) == before + 1
    assert [reply.ready for reply in replies[:4] if isinstance(reply, JobsAcked)] == [20] * 4
    assert [reply.seqs for reply in replies[4:] if isinstance(reply, JobsClaimed)] == [
        list(range(first_seq, first_seq + 4)) for first_seq in (21, 25, 29, 33)
    ]


def test_a_move_to_the_dead_letter_topic_is_one_frame(driver: Driver) -> None:
    """Copies, deletes and events of all moved jobs, and the topic they create."""
    make_queue(driver, 3, max_deliveries=1, dead_letter="dead")
    seqs = claim(driver, 3).seqs
    driver.run(NackJobs("q", "w", seqs, [], 0))
    before = frames(driver)
    assert claim(driver, 3).seqs == []
    assert frames(driver) == before + 1
    assert counts(driver) == (0, 0, 0, 3)
    log = driver.engine.registry.find("dead")
    assert log is not None and log.live == 3


@pytest.mark.parametrize("durability", ["disk", "fsync", "ephemeral"])
def test_what_the_disk_refuses_did_not_happen(
    driver: Driver, files: FaultyFiles, durability: str
) -> None:
    """Without room for the frame a command fails and table, counts and log are as before."""
    make_queue(driver, 100, durability=durability)
    held = claim(driver, 50).seqs
    files.refuse("allocate")
    refused = 0
    for seq in held:
        for command in (ClaimJobs("q", "w" * 4000, 1, 0), AckJobs("q", "w", [seq], [])):
            before = counts(driver)
            reply = driver.run(command)[0]
            if isinstance(reply, Failed):
                refused += 1
                assert (reply.code, counts(driver)) == ("storage_full", before)
    assert bool(refused) == (durability != "ephemeral")
    files.allow()
    assert counts(driver)[0] + counts(driver)[1] == _live(driver)
    driver.append("q", b"more")
    assert claim(driver, 100).seqs[-1] == 101


def test_a_lost_table_heals(driver: Driver) -> None:
    """DESIGN 10.6: live jobs below the cursor that nobody knows of are free at once."""
    make_queue(driver, 5)
    claim(driver, 3)
    queue = driver.engine.queues.find(1)
    assert queue is not None
    queue.table.forget([1, 3])
    queue.sound = False
    assert counts(driver) == (4, 1, 0, 0)
    assert claim(driver, 9).seqs == [1, 3, 4, 5]


def test_a_window_serves_all_who_came(driver: Driver) -> None:
    """Claims wait for the end of the window and share in proportion to what they want."""
    make_queue(driver, 9, claim_jitter_ms=50)
    claims = [ClaimJobs("q", "a", 10, 0), ClaimJobs("q", "b", 20, 0)]
    assert late(driver, *claims) == []
    assert driver.engine.wants_tick_us() is not None
    assert driver.engine.tick() == []
    driver.clock.advance(50)
    replies = dict(driver.engine.tick())
    assert [len(reply.seqs) for reply in replies.values() if isinstance(reply, JobsClaimed)] == [
        3,
        6,
    ]
    assert driver.engine.wants_tick_us() is None


def test_a_deleted_queue_lets_nobody_wait(driver: Driver) -> None:
    """Claims in a window and streams are answered when their queue goes."""
    make_queue(driver, 0, claim_jitter_ms=5000)
    driver.run(Join(WORKER), OpenWork("q", WORKER, 1, "w", 3, 0))
    assert late(driver, ClaimJobs("q", "w", 1, 0)) == []
    assert late(driver, NextWork(WORKER, 1)) == []
    replies = dict(driver.engine.apply([(5, DeleteTopic("q", False))]))
    while 5 not in replies:
        replies.update(driver.engine.release())
    failed = replies[0]
    assert isinstance(failed, Failed | WorkEnded)
    driver.put("q", type="queue")
    assert driver.run(NextWork(WORKER, 1)) == [WorkEnded(False)]


def test_a_stream_is_given_what_it_has_room_for(driver: Driver) -> None:
    """Jobs come when they are there, no more than max, and again after an ack."""
    make_queue(driver, 0)
    assert driver.run(Join(WORKER), OpenWork("q", WORKER, 1, "w", 2, 0))[1] == WorkOpened()
    assert late(driver, NextWork(WORKER, 1)) == []
    pushed = dict(late(driver, PutTopic("x", TopicConfig(), True), append("q", b"1", b"2", b"3")))
    assert isinstance(pushed[0], JobsClaimed)
    assert pushed[0].seqs == [1, 2]
    assert late(driver, NextWork(WORKER, 1)) == []
    replies = driver.engine.apply([(7, AckJobs("q", "w", [1], []))])
    assert [reply.seqs for _, reply in replies if isinstance(reply, JobsClaimed)] == [[3]]
    assert driver.run(CloseWork(WORKER, 1)) == [WorkClosed(2)]
    assert counts(driver) == (2, 0, 0, 0)


def test_a_lost_worker_gives_everything_back(driver: Driver) -> None:
    """Leases of its streams are free, those of claims are not."""
    make_queue(driver, 3)
    claim(driver)
    driver.run(Join(WORKER), OpenWork("q", WORKER, 1, "w", 5, 0))
    assert len(driver.engine.apply([(0, NextWork(WORKER, 1))])) == 1
    assert counts(driver) == (0, 3, 0, 0)
    late(driver, Leave(WORKER))
    assert counts(driver) == (2, 1, 0, 0)
    assert isinstance(driver.run(OpenWork("q", WORKER, 2, "w", 5, 0))[0], Failed)


def test_a_claim_whose_worker_is_lost_gets_nothing(driver: Driver) -> None:
    """What it would have got goes to those who are still there, or stays ready."""
    make_queue(driver, 4, claim_jitter_ms=50)
    driver.run(Join(WORKER), Join(WORKER + 1))
    claims = [ClaimJobs("q", "dead", 4, 0, WORKER), ClaimJobs("q", "alive", 3, 0, WORKER + 1)]
    assert late(driver, *claims) == []
    driver.engine.apply([(9, Leave(WORKER))])
    driver.clock.advance(50)
    ((ticket, reply),) = driver.engine.tick()
    assert ticket == 1 and isinstance(reply, JobsClaimed)
    assert reply.seqs == [1, 2, 3]
    assert counts(driver) == (1, 3, 0, 0)


def test_a_window_of_lost_workers_only_leases_nothing(driver: Driver) -> None:
    """It ends like any other, for nobody."""
    make_queue(driver, 4, claim_jitter_ms=50)
    driver.run(Join(WORKER))
    late(driver, ClaimJobs("q", "dead", 4, 0, WORKER))
    driver.engine.apply([(9, Leave(WORKER))])
    driver.clock.advance(50)
    assert driver.engine.tick() == []
    assert counts(driver) == (4, 0, 0, 0)
    assert driver.engine.wants_tick_us() is None


def test_the_total_of_leases_is_kept(driver: Driver) -> None:
    """What metrics say follows claims, acks, deletes, expiry and the end of a queue."""
    make_queue(driver, 5, lease_ms=1000)
    queues = driver.engine.queues
    claim(driver, 4)
    assert queues.in_flight == 4
    driver.run(AckJobs("q", "w", [2], []))
    driver.run(DeleteRecords("q", 2, None))
    assert queues.in_flight == 2
    driver.clock.advance(1001)
    driver.engine.tick()
    assert queues.in_flight == 0
    claim(driver, 1)
    driver.run(DeleteTopic("q", False))
    assert queues.in_flight == 0

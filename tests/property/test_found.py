"""Sequences that once went wrong, kept as they are whatever the machine draws."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.property.moves import Move, Put, Write, append_command, contents
from tests.property.oracle import OracleTopic
from tests.property.test_engine_machine import EngineMachine
from topicsd.model.topic import DEFAULT, TopicConfig

MEMORY = TopicConfig(durability="memory")


@pytest.fixture
def machine() -> Iterator[EngineMachine]:
    """A machine driven by hand; it ends with a check of the directory."""
    machine = EngineMachine()
    yield machine
    machine.teardown()


def _write(records: int, config: TopicConfig = DEFAULT) -> Write:
    return Write("a", contents(records, 60, 1), None, config)


def _compare(machine: EngineMachine) -> None:
    machine.names_are_the_same()
    machine.states_are_the_same()
    machine.records_are_the_same()


def test_a_new_log_does_not_inherit_files_of_one_that_a_crash_undid(
    machine: EngineMachine,
) -> None:
    """The id of a log that never reached the catalog comes back, its segments do not."""
    undone: list[list[Write]] = [[_write(300)], [_write(7)], [_write(44)], [_write(40)]]
    machine.crash_in_apply(undone, 1000, lose_catalog=True)
    machine.restart()
    kept: list[list[Move]] = [[_write(290)], [_write(30)], [_write(45)], [_write(45)]]
    machine.apply(kept)
    _compare(machine)


def test_a_write_is_not_answered_before_its_topic_is_in_the_catalog(
    machine: EngineMachine,
) -> None:
    """Recovery drops records of a log that the catalog does not have, so nobody may be told."""
    rig = machine.rig
    with rig.engine.clerk._wake:
        # The catalog's thread cannot get at its work here.
        for ticket in range(2):
            assert rig.engine.apply([(ticket, append_command(_write(1, MEMORY), None))]) == []
            assert rig.engine.release() == []
    topic = machine.oracle.topics["a"] = OracleTopic(MEMORY)
    for _ in range(2):
        topic.append(contents(1, 60, 1), None, machine.now)
    assert len(rig.take_replies(2)) == 2
    _compare(machine)


def test_expired_records_stay_gone_when_the_ttl_is_taken_away(machine: EngineMachine) -> None:
    """`earliest_seq` never goes back within an incarnation (DESIGN 5.1)."""
    machine.apply([[_write(3, TopicConfig(ttl_ms=50))]])
    machine.advance_clock(60)
    machine.apply([[Put("a", DEFAULT)]])
    _compare(machine)


def test_writes_of_one_batch_follow_when_their_segment_is_full(machine: EngineMachine) -> None:
    """A later write of a batch may move the earlier ones to the next segment."""
    machine.apply([[_write(300)], [_write(40)]])
    machine.apply([[_write(5), _write(8), _write(30)]])
    _compare(machine)


def test_segments_below_the_floor_survive_a_crash_in_the_checkpoint(
    machine: EngineMachine,
) -> None:
    """Until a checkpoint is durable, recovery still needs what it is about to drop."""
    capped = TopicConfig(cap_records=60)
    machine.apply([[_write(300, capped)]])
    for call in range(1, 40):
        # The one that every recovery asks for would leave the next one nothing to drop.
        machine.begin_checkpoint(None)
        machine.finish_checkpoint()
        machine.apply([[_write(45)], [_write(45)]])
        machine.crash_in_checkpoint(call)
        _compare(machine)

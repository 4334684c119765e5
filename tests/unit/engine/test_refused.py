"""A write that is refused leaves nothing behind, in particular no topic that it created."""

from __future__ import annotations

import pytest

from tests.faults.driver import Driver, append
from tests.faults.dump import dump
from tests.faults.faulty import FaultyFiles
from topicsd.model.commands import (
    Appended,
    Command,
    DeleteTopic,
    Failed,
    FindTopic,
    PutTopic,
    TopicDeleted,
    TopicFound,
    TopicPut,
)
from topicsd.model.topic import TopicConfig

# Where a first write finds no space: its block, its segment files, its WAL file.
SHORTAGES = [("allocate", 1), ("allocate", 500), ("create", 1), ("sync_directory", 1)]


@pytest.fixture(params=["disk", "fsync"])
def config(request: pytest.FixtureRequest) -> TopicConfig:
    return TopicConfig(durability=request.param)


@pytest.mark.parametrize(("call", "count"), SHORTAGES)
def test_a_first_write_without_space_creates_no_topic(
    driver: Driver, files: FaultyFiles, config: TopicConfig, call: str, count: int
) -> None:
    """Neither now nor after a restart; the row and the name are free again."""
    rows = driver.engine.registry._next_row
    files.refuse(call)
    command = append("topic", *[b"1"] * count, config=config, idempotency_key="k")
    for _ in range(3):
        codes = [reply.code for reply in driver.run(command, command) if isinstance(reply, Failed)]
        assert codes == ["storage_full"] * 2
        assert driver.run(FindTopic("topic")) == [TopicFound(False)]
    files.allow()
    engine = driver.engine
    assert (engine.registry.count, engine.board.topics, engine.total_bytes) == (0, 0, 0)
    assert dump(driver.settings) == {} and engine.catalog.count_logs() == 0
    reply = driver.append("topic", *[b"1"] * count, idempotency_key="k")
    assert (reply.first_seq, reply.created, reply.deduped) == (1, True, False)
    assert driver.engine.registry._next_row <= rows + 1


@pytest.mark.parametrize(("call", "count"), SHORTAGES)
def test_others_in_the_batch_see_no_topic_that_comes_to_nothing(
    driver: Driver, files: FaultyFiles, call: str, count: int
) -> None:
    """What looks at it, configures it or deletes it right behind the write."""
    write = append("topic", *[b"1"] * count)
    files.refuse(call)
    assert _codes(driver, write, FindTopic("topic")) == ["storage_full", TopicFound(False)]
    assert _codes(driver, write, DeleteTopic("topic", False)) == [
        "storage_full",
        TopicDeleted(False, []),
    ]
    put = PutTopic("topic", TopicConfig(), True)
    assert _codes(driver, write, put) == ["storage_full", TopicPut(True, TopicConfig())]
    files.allow()
    assert not driver.append("topic", b"1").created


@pytest.mark.parametrize(("call", "count"), SHORTAGES)
def test_a_topic_that_was_there_before_the_refused_write_stays(
    driver: Driver, files: FaultyFiles, call: str, count: int
) -> None:
    """Created by a PUT of the same batch, or deleted in it and not yet forgotten."""
    files.refuse(call)
    put = PutTopic("topic", TopicConfig(), True)
    write = append("topic", *[b"1"] * count)
    assert _codes(driver, put, write) == [TopicPut(True, TopicConfig()), "storage_full"]
    assert driver.run(FindTopic("topic")) == [TopicFound(True)]
    assert _codes(driver, DeleteTopic("topic", False), write, FindTopic("topic")) == [
        TopicDeleted(True, []),
        "storage_full",
        TopicFound(False),
    ]
    files.allow()
    assert driver.append("topic", b"1").created
    assert driver.engine.registry.count == 1


def test_a_second_write_without_space_does_not_take_the_first_one_back(
    driver: Driver, files: FaultyFiles
) -> None:
    """The first one finds a block that is there already; the second needs files."""
    # One in each shard, so that both have a WAL file.
    driver.append("even", b"1")
    driver.append("odd", b"1")
    files.refuse("allocate")
    first, second = driver.run(append("topic", b"1"), append("topic", *[b"1"] * 500))
    files.allow()
    assert isinstance(first, Appended) and first.created
    assert isinstance(second, Failed) and second.code == "storage_full"
    assert dump(driver.settings)["topic"].records == {1: b"1"}


def _codes(driver: Driver, *commands: Command) -> list[object]:
    """Replies, refusals by their code."""
    return [reply.code if isinstance(reply, Failed) else reply for reply in driver.run(*commands)]

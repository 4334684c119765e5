"""Topics come, change and go."""

from __future__ import annotations

import threading

import pytest

from tests.faults.driver import Driver, append, small_settings
from tests.faults.dump import dump
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
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig


def _put(topic: str, *, type_given: bool = True, **config: object) -> PutTopic:
    return PutTopic(topic, TopicConfig(**config), type_given)  # type: ignore[arg-type]


def test_putting_creates_once_and_replaces_afterwards(driver: Driver) -> None:
    """A replacement takes every field from the request."""
    assert driver.put("topic", cap_records=5) == TopicPut(True, TopicConfig(cap_records=5))
    assert driver.put("topic", cap_records=5) == TopicPut(False, TopicConfig(cap_records=5))
    assert driver.put("topic", ttl_ms=7) == TopicPut(False, TopicConfig(ttl_ms=7))


def test_the_type_of_a_topic_stays(driver: Driver) -> None:
    """Another type is refused, a type left out is kept."""
    driver.put("topic", type="queue")
    refused = driver.refuse(_put("topic", type="log"))
    assert refused.code == "topic_exists_incompatible"
    (kept,) = driver.run(_put("topic", type_given=False, cap_records=1))
    assert kept == TopicPut(False, TopicConfig(type="queue", cap_records=1))


def test_commands_of_one_batch_see_each_other(driver: Driver) -> None:
    """Create, append, delete, create and append again, before any of it is committed."""
    replies = driver.run(
        _put("topic"),
        append("topic", b"1", b"2"),
        DeleteTopic("topic", False),
        FindTopic("topic"),
        append("topic", b"3"),
        FindTopic("topic"),
    )
    assert replies[0] == TopicPut(True, TopicConfig())
    assert replies[2:4] == [TopicDeleted(True, []), TopicFound(False)]
    assert isinstance(replies[4], Appended) and replies[4].first_seq == 1 and replies[4].created
    assert replies[5] == TopicFound(True)
    assert dump(driver.settings)["topic"].records == {1: b"3"}


def test_a_deleted_topic_starts_anew(driver: Driver) -> None:
    """Same name and row, other id, larger epoch and generation, no keys, seqs from 1."""
    driver.append("topic", b"1", b"2", idempotency_key="k")
    old = driver.engine.registry.find("topic")
    assert old is not None
    assert driver.run(DeleteTopic("topic", False)) == [TopicDeleted(True, [])]
    reply = driver.append("topic", b"3", idempotency_key="k")
    new = driver.engine.registry.find("topic")
    assert new is not None
    assert (reply.first_seq, reply.created, reply.deduped) == (1, True, False)
    assert new.row == old.row and new.id > old.id
    assert new.epoch > old.epoch and new.generation > old.generation


def test_epochs_rise_even_before_the_catalog_knows(driver: Driver) -> None:
    """Three lives of one name in one batch have three epochs."""
    epochs = []
    create = driver.engine.registry.create

    def note(name: str, config: TopicConfig, *, epoch_above: int) -> object:
        log = create(name, config, epoch_above=epoch_above)
        epochs.append(log.epoch)
        return log

    driver.engine.registry.create = note  # type: ignore[method-assign, assignment]
    lives: list[Command] = [_put("topic"), DeleteTopic("topic", False)] * 3
    driver.run(*lives)
    assert len(epochs) == 3 and epochs == sorted(set(epochs))


def test_a_name_dropped_twice_in_flight_stays_dropped(driver: Driver) -> None:
    """The first drop's commit does not bring the second log back."""
    engine = driver.engine
    engine.apply([("a", _put("topic")), ("b", DeleteTopic("topic", False))])
    engine.clerk.wait(engine.clerk._submitted)
    engine.apply([("c", _put("topic"))])
    engine.clerk.wait(engine.clerk._submitted)
    engine.apply([("d", DeleteTopic("topic", False))])
    held = engine.held.release([0, 0], engine.clerk._submitted - 1, 0)
    assert [ticket for ticket, _ in held] == ["a", "b", "c"]
    assert engine.registry.find("topic") is None
    engine.clerk.wait(engine.clerk._submitted)
    assert [ticket for ticket, _ in engine.release()] == ["d"]
    assert driver.run(FindTopic("topic")) == [TopicFound(False)]


def test_deleting_what_is_not_there_deletes_nothing(driver: Driver) -> None:
    """It is not an error."""
    assert driver.run(DeleteTopic("topic", False)) == [TopicDeleted(False, [])]


def test_only_an_empty_topic_is_deleted_if_empty(driver: Driver) -> None:
    """Staged records count, expired ones do not."""
    driver.put("topic", ttl_ms=1000)
    refused = driver.run(append("topic", b"1"), DeleteTopic("topic", True))[1]
    assert isinstance(refused, Failed) and refused.code == "topic_not_empty"
    assert driver.refuse(DeleteTopic("topic", True)).detail == {"topic": "topic", "count": 1}
    driver.clock.advance(1001)
    assert driver.run(DeleteTopic("topic", True)) == [TopicDeleted(True, [])]


def test_a_topic_deleted_with_rolled_segments_does_not_stop_a_checkpoint(driver: Driver) -> None:
    """Its segments were to be sealed; now they are to be removed."""
    driver.append("topic", *[b"1"] * 300)
    driver.append("topic", *[b"1"] * 300)
    log = driver.engine.registry.find("topic")
    assert log is not None
    driver.run(DeleteTopic("topic", False))
    driver.checkpoint()
    assert not (driver.engine.volumes[False].root / str(log.id)).exists()


def test_a_topic_deleted_during_a_checkpoint_does_not_stop_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog forgets the log before the checkpoint saves its segments."""
    driver.append("topic", *[b"1"] * 300)
    driver.append("topic", *[b"1"] * 300)
    engine, deleted = driver.engine, threading.Event()
    sync = engine.volumes[False].sync

    def wait_and_sync(segments: set[tuple[int, int]]) -> None:
        assert deleted.wait(10)
        sync(segments)

    monkeypatch.setattr(engine.volumes[False], "sync", wait_and_sync)
    engine.checkpoints.ask()
    engine.tick()
    driver.run(DeleteTopic("topic", False))
    deleted.set()
    driver.checkpoint()
    assert engine.clerk.failure is None


def test_a_write_creates_its_topic_unless_told_not_to(driver: Driver) -> None:
    """With the configuration it brings."""
    assert driver.refuse(append("topic", b"1", create=False)).code == "topic_not_found"
    config = TopicConfig(auto_create=False)
    assert driver.refuse(append("topic", b"1", config=config)).code == "topic_not_found"
    config = TopicConfig(cap_records=2)
    assert driver.append("topic", b"1", b"2", b"3", config=config).created
    assert not driver.append("topic", b"4", create=False).created
    assert list(dump(driver.settings)["topic"].records) == [3, 4]


def test_topics_are_counted_and_limited(settings: Settings) -> None:
    """At the limit a new one is refused; deleting makes room."""
    driver = Driver(small_settings(settings.data_dir.parent, max_topics=3))
    replies = driver.run(*[_put(f"topic{number}") for number in range(4)])
    assert isinstance(replies[3], Failed) and replies[3].code == "throttled"
    assert driver.refuse(append("another", b"1")).detail == {"limit": "max_topics", "max": 3}
    assert driver.engine.board.topics == 3
    driver.run(DeleteTopic("topic1", False))
    assert driver.append("another", b"1").created
    driver.close()


def test_a_repeated_put_waits_for_the_first(driver: Driver) -> None:
    """Nobody is told of a configuration that the catalog does not have."""
    engine = driver.engine
    driver.put("topic")
    assert engine.apply([(0, _put("topic", ttl_ms=5))]) == []
    assert engine.apply([(1, _put("topic", ttl_ms=5))]) == []
    assert driver.run(_put("topic", ttl_ms=5)) == [TopicPut(False, TopicConfig(ttl_ms=5))]


def test_more_topics_than_the_cache_holds(settings: Settings) -> None:
    """Each is loaded again with its seqs, its configuration and its keys."""
    driver = Driver(small_settings(settings.data_dir.parent, topic_cache=2))
    for turn in range(1, 4):
        for number in range(10):
            reply = driver.append(f"topic{number}", b"%d" % turn, idempotency_key=f"k{turn}")
            assert reply.first_seq == turn
    assert len(driver.engine.registry._by_name) == 2
    assert driver.append("topic0", b"9", idempotency_key="k1").deduped
    driver.close()


def test_a_configuration_in_flight_outlives_the_cache(settings: Settings) -> None:
    """Until the catalog has it, the old one must not be loaded from there."""
    driver = Driver(small_settings(settings.data_dir.parent, topic_cache=1))
    for name in ("topic", "a", "b"):
        driver.put(name)
    driver.append("topic", b"1")
    engine = driver.engine
    engine.apply([(0, _put("topic", cap_records=1))])
    engine.apply([(1, append("a", b"1")), (2, append("b", b"1"))])
    engine.apply([(3, append("topic", b"2", b"3"))])
    driver.run(FindTopic("topic"))
    assert dump(driver.settings)["topic"].records == {3: b"3"}
    driver.close()


def test_rows_of_the_board_are_reused(driver: Driver) -> None:
    """A thousand short lives need one row."""
    for number in range(50):
        driver.put(f"topic{number}")
        driver.run(DeleteTopic(f"topic{number}", False))
    assert driver.engine.registry._next_row <= 2


@pytest.mark.parametrize("ending", ["close", "abandon"])
def test_topics_survive_any_end(settings: Settings, ending: str) -> None:
    """Names, configurations, deletions: what was acknowledged."""
    driver = Driver(settings)
    driver.put("kept", cap_records=9)
    driver.put("changed")
    driver.put("changed", ttl_ms=1)
    driver.put("deleted")
    driver.run(DeleteTopic("deleted", False))
    getattr(driver, ending)()
    driver = Driver(settings)
    assert driver.put("kept", cap_records=9) == TopicPut(False, TopicConfig(cap_records=9))
    assert driver.put("changed", ttl_ms=1) == TopicPut(False, TopicConfig(ttl_ms=1))
    assert driver.run(FindTopic("deleted")) == [TopicFound(False)]
    driver.close()

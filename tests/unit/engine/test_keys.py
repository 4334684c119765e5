"""Idempotency keys: the same answer within the window, also after a restart."""

from __future__ import annotations

import pytest

from tests.faults.driver import Driver, append
from tests.faults.dump import dump
from topicsd.engine import checkpoint
from topicsd.model.commands import Appended, DeleteTopic
from topicsd.model.settings import Settings

WINDOW_MS = 120_000


def test_a_repeated_key_returns_the_first_seqs(driver: Driver) -> None:
    """Even with another payload; nothing is stored."""
    first = driver.append("topic", b"1", b"2", idempotency_key="k")
    again = driver.append("topic", b"3", idempotency_key="k")
    assert not first.deduped and again.deduped
    assert (again.first_seq, again.last_seq) == (1, 2)
    assert dump(driver.settings)["topic"].head_seq == 2


def test_a_key_belongs_to_its_topic(driver: Driver) -> None:
    """The same key elsewhere is another key."""
    driver.append("a", b"1", idempotency_key="k")
    assert not driver.append("b", b"1", idempotency_key="k").deduped


@pytest.mark.parametrize(("elapsed", "deduped"), [(WINDOW_MS, True), (WINDOW_MS + 1, False)])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_key_is_known_for_its_window(
    driver: Driver, elapsed: int, deduped: bool, checkpoint: bool
) -> None:
    """Whether it is in memory or in the catalog by then."""
    driver.append("topic", b"1", idempotency_key="k")
    if checkpoint:
        driver.checkpoint()
    driver.clock.advance(elapsed)
    assert driver.append("topic", b"2", idempotency_key="k").deduped is deduped


def test_a_window_of_zero_never_dedupes(driver: Driver) -> None:
    """The topic does not want it."""
    driver.put("topic", idempotency_window_ms=0)
    driver.append("topic", b"1", idempotency_key="k")
    assert not driver.append("topic", b"2", idempotency_key="k").deduped


def test_a_key_used_again_after_its_window_starts_a_new_one(driver: Driver) -> None:
    """The later write's seqs are the answer from then on."""
    driver.append("topic", b"1", idempotency_key="k")
    driver.checkpoint()
    driver.clock.advance(WINDOW_MS + 1)
    driver.append("topic", b"2", idempotency_key="k")
    driver.checkpoint()
    driver.clock.advance(WINDOW_MS)
    assert driver.append("topic", b"3", idempotency_key="k").first_seq == 2


@pytest.mark.parametrize("ending", ["close", "abandon"])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_keys_survive_any_end(settings: Settings, ending: str, checkpoint: bool) -> None:
    """A retry after a crash is the reason for keys."""
    driver = Driver(settings)
    driver.append("topic", b"1", b"2", idempotency_key="k")
    if checkpoint:
        driver.checkpoint()
    getattr(driver, ending)()
    driver = Driver(settings)
    again = driver.append("topic", b"1", idempotency_key="k")
    assert (again.deduped, again.first_seq, again.last_seq) == (True, 1, 2)
    driver.close()


def test_a_recreated_topic_knows_no_keys(driver: Driver) -> None:
    """Neither from memory nor from the catalog."""
    driver.append("topic", b"1", idempotency_key="k")
    driver.checkpoint()
    driver.run(DeleteTopic("topic", False))
    assert not driver.append("topic", b"2", idempotency_key="k").deduped


def test_a_retry_in_the_same_batch_waits_like_the_first_write(driver: Driver) -> None:
    """Neither is acknowledged before the frame is synced."""
    driver.put("topic", durability="fsync")
    keyed = append("topic", b"1", idempotency_key="k")
    assert driver.engine.apply([(0, keyed), (1, keyed)]) == []
    first, again = driver.run(keyed, keyed)
    assert isinstance(first, Appended) and isinstance(again, Appended)
    assert first.deduped and again.deduped


def test_a_retry_does_not_wait_for_other_shards(driver: Driver) -> None:
    """A frame of another shard is not what it acknowledges."""
    driver.put("even", durability="fsync")
    driver.put("odd", durability="fsync")
    driver.append("even", b"1", idempotency_key="k")
    driver.append("odd", b"1")
    assert driver.append("even", b"1", idempotency_key="k").deduped


def test_keys_out_of_their_window_are_forgotten(driver: Driver) -> None:
    """The catalog does not keep them for ever."""
    driver.append("topic", b"1", idempotency_key="old")
    driver.checkpoint()
    driver.clock.advance(WINDOW_MS + 1)
    driver.append("topic", b"2", idempotency_key="new")
    driver.checkpoint()
    log = driver.engine.registry.find("topic")
    assert log is not None
    assert driver.engine.catalog.find_key(log.id, "old") is None
    assert driver.engine.catalog.find_key(log.id, "new") is not None


@pytest.mark.parametrize("restart", [True, False])
def test_keys_of_a_quiet_topic_are_forgotten_too(settings: Settings, restart: bool) -> None:
    """Nobody has to write to it, or even to load it."""
    driver = Driver(settings)
    driver.append("quiet", b"1", idempotency_key="old")
    driver.put("patient", idempotency_window_ms=2**64 - 1)
    driver.append("patient", b"1", idempotency_key="old")
    quiet, patient = (driver.engine.registry.find(name) for name in ("quiet", "patient"))
    assert quiet is not None and patient is not None
    driver.checkpoint()
    if restart:
        driver.close()
        driver = Driver(settings)
    driver.clock.advance(WINDOW_MS + 1)
    driver.append("busy", b"1", idempotency_key="new")
    driver.checkpoint()
    assert driver.engine.catalog.find_key(quiet.id, "old") is None
    assert driver.engine.catalog.find_key(patient.id, "old") is not None
    assert driver.append("patient", b"2", idempotency_key="old").deduped
    driver.close()


def test_a_checkpoint_forgets_a_bounded_number_of_keys(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than it saves, so that the rest goes with the next ones."""
    monkeypatch.setattr(checkpoint, "FORGET_KEYS_MIN", 4)
    driver.run(*[append("topic", b"1", idempotency_key=f"k{number}") for number in range(10)])
    driver.checkpoint()
    driver.clock.advance(WINDOW_MS + 1)
    left = []
    for number in range(3):
        driver.append("other", b"1", idempotency_key=f"k{number}" if number == 0 else None)
        driver.checkpoint()
        left.append(_count_keys(driver, "topic", 10))
    assert left == [4, 0, 0]


def _count_keys(driver: Driver, topic: str, count: int) -> int:
    log = driver.engine.registry.find(topic)
    assert log is not None
    found = [driver.engine.catalog.find_key(log.id, f"k{number}") for number in range(count)]
    return sum(record is not None for record in found)

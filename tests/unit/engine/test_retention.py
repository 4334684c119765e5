"""Caps and expiry: floors move at once, files go with a checkpoint."""

from __future__ import annotations

import pytest

from tests.faults.driver import Driver, append
from tests.faults.dump import Seen, dump
from topicsd.model.commands import PutTopic
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig
from topicsd.storage import place


def _seen(driver: Driver) -> Seen:
    return dump(driver.settings, driver.clock)["topic"]


def _bases(driver: Driver) -> list[int]:
    log = driver.engine.registry.find("topic")
    assert log is not None
    directory = place.log_directory(driver.engine.volume_of(log).root, log.id)
    return sorted(int(path.stem) for path in directory.glob("*.idx"))


@pytest.mark.parametrize("size", [1, 3, 10])
def test_a_cap_on_records_keeps_the_newest(driver: Driver, size: int) -> None:
    """Exactly as many, whatever the size of the writes."""
    driver.put("topic", cap_records=5)
    for start in range(0, 30, size):
        driver.append("topic", *[b'"%d"' % number for number in range(start, start + size)])
    seen = _seen(driver)
    assert list(seen.records) == list(range(seen.head_seq - 4, seen.head_seq + 1))
    assert (seen.count, seen.lost) == (5, [(1, seen.head_seq - 5, "cap")])


def test_a_cap_on_bytes_keeps_what_fits(driver: Driver) -> None:
    """Data and meta count; the wire form around them does not."""
    driver.put("topic", cap_bytes=20)
    for number in range(10):
        driver.append("topic", b'"%d"' % number, meta=b"{}")
    assert (list(_seen(driver).records), _seen(driver).size) == ([7, 8, 9, 10], 20)
    driver.append("topic", b'"%s"' % (b"x" * 50))
    assert (_seen(driver).count, _seen(driver).earliest_seq) == (0, 12)


def test_the_stricter_cap_wins(driver: Driver) -> None:
    """Whichever is hit first."""
    driver.put("topic", cap_records=3, cap_bytes=8)
    driver.append("topic", *[b"1"] * 10)
    assert _seen(driver).count == 3
    driver.append("topic", b'"1234"')
    assert (_seen(driver).count, _seen(driver).size) == (3, 8)


def test_a_lower_cap_evicts_at_once(driver: Driver) -> None:
    """A new configuration is applied to what is there."""
    driver.append("topic", *[b"1"] * 400)
    driver.put("topic", cap_records=10)
    assert list(_seen(driver).records) == list(range(391, 401))


def test_a_cap_set_in_the_batch_of_a_write_covers_it(driver: Driver) -> None:
    """The order within the batch does not matter for what is left."""
    put = PutTopic("topic", TopicConfig(cap_records=2), True)
    driver.put("topic")
    driver.run(append("topic", b"1", b"2", b"3"), put, append("topic", b"4"))
    assert _seen(driver).records == {3: b"3", 4: b"4"}


def test_segments_below_the_floor_go_with_a_checkpoint(driver: Driver) -> None:
    """Not before: a crash would bring the old floor back."""
    driver.put("topic", cap_records=50)
    for _ in range(20):
        driver.append("topic", *[b"1"] * 100)
    assert len(_bases(driver)) > 5
    driver.checkpoint()
    assert len(_bases(driver)) == 1
    assert _seen(driver).count == 50
    log = driver.engine.registry.find("topic")
    assert log is not None
    assert [each.base_seq for each in driver.engine.catalog.list_segments(log.id)] == []


def test_a_segment_is_given_up_once(driver: Driver) -> None:
    """However many appends find it below the floor."""
    driver.put("topic", cap_records=50)
    for _ in range(400):
        driver.append("topic", *[b"1"] * 10)
    parked = driver.engine.retention.droppable
    assert len(parked) == len(set(parked)) == len(_bases(driver)) - 1


def test_an_append_moves_the_floor_of_expired_records(driver: Driver) -> None:
    """Counts, bytes and the quota follow."""
    driver.put("topic", ttl_ms=1000)
    driver.append("topic", *[b'"12345678"'] * 5)
    driver.clock.advance(1001)
    driver.append("topic", b"1")
    log = driver.engine.registry.find("topic")
    assert log is not None
    assert (log.live, log.payload_bytes, log.ttl_floor, log.earliest_seq) == (1, 1, 6, 6)
    assert driver.engine.total_bytes == 1
    assert _seen(driver).lost == [(1, 5, "ttl")]


def test_cap_and_expiry_together_are_mixed(driver: Driver) -> None:
    """A cursor below both floors is told so."""
    driver.put("topic", cap_records=10, ttl_ms=1000)
    driver.append("topic", *[b"1"] * 20)
    driver.clock.advance(1001)
    driver.append("topic", b"1")
    assert _seen(driver).lost == [(1, 20, "mixed")]


@pytest.mark.parametrize("ending", ["close", "abandon"])
@pytest.mark.parametrize("config", [{"cap_records": 7}, {"cap_bytes": 33}, {"ttl_ms": 1000}])
def test_floors_are_the_same_after_any_end(
    settings: Settings, ending: str, config: dict[str, int]
) -> None:
    """Recovery applies the limits that the appends applied."""
    driver = Driver(settings)
    driver.put("topic", **config)
    for number in range(40):
        driver.append("topic", *[b'"%d"' % number] * (number % 5 + 1))
        driver.clock.advance(70)
        if number == 25:
            driver.checkpoint()
    seen = _seen(driver)
    assert 0 < seen.count < 50
    getattr(driver, ending)()
    driver = Driver(settings, clock=driver.clock)
    assert _seen(driver) == seen
    driver.close()

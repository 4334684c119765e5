"""Segments that end by age."""

from __future__ import annotations

from tests.faults.driver import Driver, small_settings
from tests.faults.dump import dump
from topicsd.model.commands import DeleteTopic, FindTopic, TopicFound
from topicsd.model.settings import Settings

AGE_MS = 1000


def _driver(settings: Settings) -> Driver:
    return Driver(small_settings(settings.data_dir.parent, segment_max_age_ms=AGE_MS))


def test_an_old_segment_is_ended_and_sealed(settings: Settings) -> None:
    """A slow topic is read and written on as if nothing had happened."""
    driver = _driver(settings)
    driver.append("topic", *[b"1"] * 300)
    seen = dump(driver.settings)
    driver.clock.advance(AGE_MS)
    driver.engine.tick()
    assert dump(driver.settings) == seen
    driver.checkpoint()
    log = driver.engine.registry.find("topic")
    assert log is not None and log.spot.rows == 0
    assert [each.rows for each in driver.engine.catalog.list_segments(log.id)] == [300]
    assert dump(driver.settings) == seen
    assert driver.append("topic", b"2").first_seq == 301
    assert len(dump(driver.settings)["topic"].records) == 301
    driver.close()


def test_a_segment_ended_by_age_survives_a_crash(settings: Settings) -> None:
    """Whether or not a checkpoint saw it."""
    driver = _driver(settings)
    driver.append("topic", *[b"1"] * 300)
    driver.clock.advance(AGE_MS)
    driver.engine.tick()
    driver.checkpoint()
    seen = dump(driver.settings)
    driver.abandon()
    driver = Driver(driver.settings)
    assert dump(driver.settings) == seen
    driver.close()
    assert dump(driver.settings) == seen


def test_a_deleted_topic_is_not_brought_back_by_its_age(settings: Settings) -> None:
    """Its drop is on its way to the catalog when its segment gets old."""
    driver = _driver(settings)
    driver.append("topic", *[b"1"] * 300)
    driver.clock.advance(AGE_MS)
    driver.engine.apply([(0, DeleteTopic("topic", False))])
    driver.engine.tick()
    assert driver.run(FindTopic("topic")) == [TopicFound(False)]
    assert driver.append("topic", b"1").created
    driver.close()

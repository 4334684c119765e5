"""A process's view of the data directory, without asking the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.driver import Driver, StillClock, fast_directory, small_settings
from tests.faults.dump import open_reader, query, read_page
from topicsd.model.commands import DeleteTopic
from topicsd.model.errors import TopicsError
from topicsd.model.settings import Settings
from topicsd.reader import Reader


@pytest.fixture
def settings() -> Iterator[Settings]:
    with fast_directory() as home:
        yield small_settings(home)


@pytest.fixture
def driver(settings: Settings) -> Iterator[Driver]:
    made = Driver(settings)
    yield made
    made.close()


@pytest.fixture
def reader(driver: Driver) -> Iterator[Reader]:
    with open_reader(driver.settings, driver.clock) as made:
        yield made


def test_a_reader_may_be_there_before_the_engine(settings: Settings) -> None:
    """Until then everything is `not_ready`; afterwards it works."""
    with open_reader(settings) as reader:
        with pytest.raises(TopicsError, match="not_ready"):
            reader.find_topic("topic")
        driver = Driver(settings)
        assert reader.find_topic("topic") is None
        driver.append("topic", b"1")
        assert read_page(reader, "topic").count == 1
        assert reader.board.state == "ready"
        driver.close()


def test_a_new_topic_is_seen_at_once(driver: Driver, reader: Reader) -> None:
    """As soon as its creation was acknowledged."""
    assert reader.find_topic("topic") is None
    driver.put("topic", cap_records=5)
    view = reader.find_topic("topic")
    assert view is not None and view.config.cap_records == 5


def test_a_changed_configuration_is_seen_at_once(driver: Driver, reader: Reader) -> None:
    """The generation on the board makes the old view stale."""
    driver.put("topic")
    reader.find_topic("topic")
    driver.put("topic", cap_records=5)
    view = reader.find_topic("topic")
    assert view is not None and view.config.cap_records == 5


def test_a_deleted_topic_is_gone_at_once(driver: Driver, reader: Reader) -> None:
    """By name, and for whoever still holds its view."""
    driver.append("topic", b"1")
    view = reader.find_topic("topic")
    assert view is not None
    driver.run(DeleteTopic("topic", False))
    assert reader.find_topic("topic") is None
    assert reader.state(view) is None and reader.diff(view, query()) is None


def test_a_recreated_topic_is_another_one(driver: Driver, reader: Reader) -> None:
    """It takes over the row, but not the records or the view."""
    driver.append("topic", b"1")
    old = reader.find_topic("topic")
    driver.run(DeleteTopic("topic", False))
    driver.append("topic", b"2", b"3")
    new = reader.find_topic("topic")
    assert old is not None and new is not None
    assert new.row == old.row and new.log_id != old.log_id
    assert reader.state(old) is None
    assert read_page(reader, "topic").count == 2


def test_a_configuration_changed_before_a_crash_is_seen_after_it(settings: Settings) -> None:
    """Generations start above all earlier ones, so no old view passes for current."""
    driver = Driver(settings)
    driver.put("topic")
    driver.abandon()
    driver = Driver(settings)
    with open_reader(settings) as reader:
        assert reader.find_topic("topic") is not None
        driver.put("topic", cap_records=5)
        driver.abandon()
        driver = Driver(settings)
        view = reader.find_topic("topic")
        assert view is not None and view.config.cap_records == 5
    driver.close()


def test_a_state_counts_exactly(driver: Driver, reader: Reader) -> None:
    """Numbers, bytes and times of one instant."""
    driver.put("topic")
    view = reader.find_topic("topic")
    assert view is not None
    empty = reader.state(view)
    assert empty is not None
    assert (empty.head_seq, empty.earliest_seq, empty.next_seq, empty.count) == (0, 1, 1, 0)
    assert (empty.last_write_ts, empty.last_read_ts) == (None, None)
    driver.append("topic", b'"abc"', meta=b'{"k":1}')
    reader.touch(view)
    state = reader.state(view)
    assert state is not None
    assert (state.head_seq, state.next_seq, state.count, state.bytes) == (1, 2, 1, 12)
    assert (state.last_write_ts, state.last_read_ts) == (driver.clock.now, driver.clock.now)
    assert state.effective_priority == 500


def test_a_list_is_in_byte_order_and_bounded(driver: Driver, reader: Reader) -> None:
    """Prefix, cursor, limit, and the prefixes that a key may see."""
    for name in ("b", "a.2", "B", "a.1", "c", "a"):
        driver.append(name, b"1")

    def names(*arguments: object) -> list[str]:
        return [each.topic for each in reader.list_topics(*arguments)]  # type: ignore[arg-type]

    assert names("", "", 10, ()) == ["B", "a", "a.1", "a.2", "b", "c"]
    assert names("a", "", 10, ()) == ["a", "a.1", "a.2"]
    assert names("", "a.1", 2, ()) == ["a.2", "b"]
    assert names("", "", 10, ("a.", "c")) == ["a.1", "a.2", "c"]
    driver.run(DeleteTopic("a.1", False))
    assert names("a.", "", 10, ()) == ["a.2"]


def test_a_list_counts_without_what_expired(driver: Driver, reader: Reader) -> None:
    """Summaries are as exact as states."""
    driver.put("topic", ttl_ms=1000)
    driver.append("topic", b"1")
    driver.clock.advance(500)
    driver.append("topic", b"22")
    driver.clock.advance(600)
    (summary,) = reader.list_topics("", "", 10, ())
    assert (summary.count, summary.bytes, summary.earliest_seq, summary.durable) == (1, 2, 2, False)


def test_a_log_that_moves_while_it_is_read_is_read_again(
    driver: Driver, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block may be another log's by the time its copy is made."""
    driver.append("topic", *[b"1"] * 10)
    view = reader.find_topic("topic")
    assert view is not None
    real = reader._still_there
    moved = iter([False])

    def still_there(number: int, row: object) -> bool:
        if next(moved, True):
            return real(number, row)  # type: ignore[arg-type]
        driver.append("topic", *[b"1"] * 30)
        return real(number, row)  # type: ignore[arg-type]

    monkeypatch.setattr(reader, "_still_there", still_there)
    page = reader.diff(view, query())
    assert page is not None and page.count == 40


def test_an_ephemeral_topic_is_read_like_any_other(settings: Settings) -> None:
    """While the engine runs; after a clean stop its numbers are left."""
    driver = Driver(settings)
    driver.put("topic", durability="ephemeral")
    driver.append("topic", *[b"1"] * 400)
    with open_reader(settings) as reader:
        assert read_page(reader, "topic").count == 400
        driver.close()
        driver = Driver(settings)
        page = read_page(reader, "topic", 100)
        assert (page.count, page.head_seq, page.earliest_seq) == (0, 400, 401)
        assert page.tombstone is not None and page.tombstone[:3] == (101, 400, "lost")
        driver.close()


def test_a_clock_behind_the_engines_hides_nothing(settings: Settings) -> None:
    """A worker's clock may be a little late."""
    driver = Driver(settings)
    driver.put("topic", ttl_ms=1000)
    driver.append("topic", b"1")
    with open_reader(settings, StillClock(driver.clock.now - 5)) as reader:
        assert read_page(reader, "topic").count == 1
    driver.close()

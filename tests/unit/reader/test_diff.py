"""Diff pages over a real engine's segments: nothing skipped, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.driver import Driver, fast_directory, small_settings
from tests.faults.dump import open_reader, payloads, read_all, read_page
from topicsd.reader import Reader


@pytest.fixture
def driver() -> Iterator[Driver]:
    with fast_directory() as home:
        made = Driver(small_settings(home, segment_max_events=300))
        yield made
        made.close()


@pytest.fixture
def reader(driver: Driver) -> Iterator[Reader]:
    with open_reader(driver.settings, driver.clock) as made:
        yield made


def _fill(driver: Driver, count: int = 1000, **options: str) -> dict[int, bytes]:
    for start in range(1, count + 1, 50):
        driver.append("topic", *[b'"%d"' % seq for seq in range(start, start + 50)], **options)
    return {seq: b'"%d"' % seq for seq in range(1, count + 1)}


@pytest.mark.parametrize("limit", [1, 7, 100, 300, 999, 1000])
def test_pages_of_any_size_cover_everything_once(
    driver: Driver, reader: Reader, limit: int
) -> None:
    """Over sealed, unsealed and active segments."""
    expected = _fill(driver)
    driver.checkpoint()
    _fill(driver, 50)
    records, lost = read_all(reader, "topic", limit=limit)
    assert {seq: records[seq] for seq in expected} == expected and len(records) == 1050
    assert lost == []


@pytest.mark.parametrize("budget", [1, 100, 5000, 20_000])
def test_pages_of_any_budget_cover_everything_once(
    driver: Driver, reader: Reader, budget: int
) -> None:
    """A page ends before the record that does not fit, in whichever segment."""
    expected = _fill(driver, 1000 if budget > 1 else 150)
    assert read_all(reader, "topic", max_bytes=budget) == (expected, [])


def test_a_large_record_at_a_segments_end_is_not_jumped_over(
    driver: Driver, reader: Reader
) -> None:
    """Smaller records of the next segment would fit, but must wait."""
    driver.append("topic", *[b"1"] * 299, b'"%s"' % (b"x" * 5000))
    driver.append("topic", *[b"2"] * 10)
    page = read_page(reader, "topic", 290, max_bytes=2000)
    assert (list(payloads(page)), page.next_from_seq) == (list(range(291, 300)), 299)
    page = read_page(reader, "topic", 299, max_bytes=2000)
    assert (list(payloads(page)), page.next_from_seq) == ([300], 300)


def test_a_page_says_where_the_topic_stands(driver: Driver, reader: Reader) -> None:
    """Cursor, head, floor, and how many rows were looked at."""
    _fill(driver, 100)
    page = read_page(reader, "topic", 20, limit=30)
    assert (page.count, page.next_from_seq, page.head_seq, page.earliest_seq) == (30, 50, 100, 1)
    assert (page.tombstone, page.scanned) == (None, 30)
    page = read_page(reader, "topic", 100)
    assert (page.count, page.next_from_seq, bytes(page.records)) == (0, 100, b"")


def test_a_filtered_page_advances_past_what_it_hides(driver: Driver, reader: Reader) -> None:
    """A reader's own records are passed in silence, to the head."""
    _fill(driver, 400, node="mine")
    page = read_page(reader, "topic", nodes=("mine",))
    assert (page.count, page.next_from_seq, page.tombstone) == (0, 400, None)
    driver.append("topic", b"1", node="yours")
    page = read_page(reader, "topic", nodes=("mine",))
    assert (list(payloads(page)), page.next_from_seq) == ([401], 401)


def test_a_topic_may_switch_the_node_filter_off(driver: Driver, reader: Reader) -> None:
    """With `dedupe_node` false a reader gets its own records back."""
    driver.put("topic", dedupe_node=False)
    driver.append("topic", b"1", node="mine")
    assert read_page(reader, "topic", nodes=("mine",)).count == 1


def test_a_cursor_beyond_the_head_is_from_another_life(driver: Driver, reader: Reader) -> None:
    """The page starts over and says so (API 3.3)."""
    _fill(driver, 50)
    page = read_page(reader, "topic", 51)
    assert page.tombstone is not None and page.tombstone.reason == "recreated"
    assert page.count == 50


def test_a_recreated_empty_topic_sends_a_cursor_back_to_zero(
    driver: Driver, reader: Reader
) -> None:
    """An empty range, and a cursor that fits again."""
    driver.put("topic")
    page = read_page(reader, "topic", 9)
    assert page.tombstone is not None
    assert page.tombstone[:4] == (1, 0, "recreated", 0)
    assert page.next_from_seq == 0


def test_a_capped_topic_reports_what_a_cursor_missed(driver: Driver, reader: Reader) -> None:
    """Also where whole segments are gone from the disk."""
    driver.put("topic", cap_records=100)
    expected = _fill(driver)
    for _ in range(2):
        records, lost = read_all(reader, "topic")
        assert records == {seq: expected[seq] for seq in range(901, 1001)}
        assert lost == [(1, 900, "cap")]
        driver.checkpoint()
    directory = Path(driver.settings.data_dir / "segments" / "1")
    assert len(list(directory.glob("*.dat"))) == 1


def test_expiry_shows_without_the_engine(driver: Driver, reader: Reader) -> None:
    """The clock alone moves the floor, for pages and for counts."""
    driver.put("topic", ttl_ms=1000)
    _fill(driver, 500)
    driver.clock.advance(600)
    driver.append("topic", b'"late"')
    driver.clock.advance(600)
    assert read_all(reader, "topic") == ({501: b'"late"'}, [(1, 500, "ttl")])
    view = reader.find_topic("topic")
    assert view is not None
    state = reader.state(view)
    assert state is not None
    assert (state.count, state.bytes, state.earliest_seq) == (1, 6, 501)
    driver.clock.advance(600)
    assert read_all(reader, "topic") == ({}, [(1, 501, "ttl")])

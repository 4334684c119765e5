"""Append: admitted, deduped, numbered, stored as it was sent."""

from __future__ import annotations

import pytest

from tests.faults.driver import Driver, append, small_settings
from tests.faults.dump import dump, open_reader, read_page
from topicsd.model.commands import Appended, DeleteTopic, Failed
from topicsd.model.settings import Settings


def test_seqs_are_contiguous_over_batches(driver: Driver) -> None:
    """Within a write, within a batch of writes, and between batches."""
    replies = driver.run(append("a", b"1", b"2"), append("b", b"1"), append("a", b"3"))
    spans = [(r.first_seq, r.last_seq) for r in replies if isinstance(r, Appended)]
    assert spans == [(1, 2), (1, 1), (3, 3)]
    assert driver.append("a", *[b"4"] * 20).first_seq == 4
    assert list(dump(driver.settings)["a"].records) == list(range(1, 24))


def test_payloads_are_kept_byte_for_byte(driver: Driver) -> None:
    """Odd spacing, huge numbers, percent signs, and braces in strings."""
    payloads = (b'{ "a" :1 }', b"123456789012345678901234567890.10", b'"%d %% %b"', b'"},{"')
    driver.append("topic", *payloads)
    driver.append("topic", payloads[2], tag="%s", node="%d", meta=b'{"%":"%"}')
    records = dump(driver.settings)["topic"].records
    assert list(records.values()) == [*payloads, payloads[2]]


def test_a_stored_record_has_its_members_in_order(driver: Driver) -> None:
    """Seq, ts, tag, node, data, meta: the wire form."""
    driver.append("topic", b"1", tag="t", node="n", meta=b"{}")
    with open_reader(driver.settings) as reader:
        page = read_page(reader, "topic")
        assert bytes(page.records) == (
            b'{"$seq":1,"$ts":%d,"$tag":"t","$node":"n","data":1,"meta":{}}' % driver.clock.now
        )


def test_time_never_runs_backwards_in_a_topic(driver: Driver) -> None:
    """A clock that is set back repeats the last timestamp."""
    driver.append("topic", b"1")
    first = driver.clock.now
    driver.clock.now -= 5000
    driver.append("topic", b"2")
    with open_reader(driver.settings) as reader:
        assert bytes(read_page(reader, "topic").records).count(b'"$ts":%d,' % first) == 2


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory", "ephemeral"])
def test_only_an_fsync_reply_reports_a_sync(driver: Driver, durability: str) -> None:
    """The others never do, even when they waited for a ceiling."""
    driver.put("topic", durability=durability)
    for _ in range(3):
        reply = driver.append("topic", b"1")
        assert (reply.fsync_us > 0) == (durability == "fsync")
        assert reply.wal_append_us > 0


def test_an_fsync_reply_waits_for_the_sync(driver: Driver) -> None:
    """A disk-class reply does not, once its ceiling is synced."""
    driver.put("safe", durability="fsync")
    driver.append("quick", b"1")
    assert driver.engine.apply([(0, append("safe", b"1"))]) == []
    ready = driver.engine.apply([(1, append("quick", b"2"))])
    assert [ticket for ticket, _ in ready] == [1]
    driver.append("safe", b"2")


def test_a_full_topic_rejects_whole_writes(driver: Driver) -> None:
    """Nothing is stored of a write that does not fit; one that never can is told so."""
    driver.put("topic", cap_records=3, cap_bytes=100, discard="reject")
    driver.append("topic", b"1", b"2")
    full = driver.refuse(append("topic", b"3", b"4"))
    assert full.code == "topic_full" and full.detail is not None
    assert (full.detail["head_seq"], full.detail["earliest_seq"]) == (2, 1)
    assert driver.refuse(append("topic", *[b"1"] * 4)).code == "record_too_large"
    large = append("topic", b'"%s"' % (b"x" * 100))
    assert driver.refuse(large).code == "record_too_large"
    assert driver.append("topic", b"3").first_seq == 3
    assert driver.refuse(append("topic", b"4")).code == "topic_full"


def test_expired_records_make_room_in_a_full_topic(driver: Driver) -> None:
    """Expiry is applied before the write is admitted."""
    driver.put("topic", cap_records=1, ttl_ms=1000, discard="reject")
    driver.append("topic", b"1")
    driver.clock.advance(1001)
    assert driver.append("topic", b"2").first_seq == 2


def test_writes_of_one_batch_fill_a_topic_together(driver: Driver) -> None:
    """The third one does not fit."""
    driver.put("topic", cap_records=2, discard="reject")
    replies = driver.run(*[append("topic", b"1")] * 3)
    assert [type(reply) for reply in replies] == [Appended, Appended, Failed]


def test_expiry_does_not_take_what_the_same_batch_wrote(driver: Driver) -> None:
    """Staged records are in no segment yet."""
    driver.put("topic", ttl_ms=1000)
    driver.append("topic", b"1")
    driver.clock.advance(2000)
    driver.run(append("topic", b"2"), append("topic", b"3"))
    with open_reader(driver.settings, driver.clock) as reader:
        assert read_page(reader, "topic").count == 2


def test_all_topics_together_are_limited(settings: Settings) -> None:
    """Payload bytes over all topics; eviction, expiry and deletion give them back."""
    driver = Driver(small_settings(settings.data_dir.parent, max_total_bytes=100))
    driver.put("capped", cap_records=1)
    driver.append("capped", b'"%s"' % (b"x" * 38))
    driver.append("plain", b'"%s"' % (b"x" * 38))
    assert driver.engine.total_bytes == 80
    assert driver.refuse(append("plain", b'"%s"' % (b"x" * 38))).code == "throttled"
    driver.append("capped", b'"%s"' % (b"x" * 8))
    assert driver.engine.total_bytes == 50
    driver.run(append("plain", b"1"), DeleteTopic("plain", False))
    assert driver.engine.total_bytes == 10
    driver.abandon()
    driver = Driver(driver.settings)
    assert driver.engine.total_bytes == 10
    driver.close()


def test_a_write_and_a_delete_in_one_batch_leave_no_bytes_behind(driver: Driver) -> None:
    """A capped topic that is deleted in the same batch is not evicted from as well."""
    driver.put("topic", cap_records=1)
    driver.append("other", b"1")
    driver.run(append("topic", b"1", b"2", b"3"), DeleteTopic("topic", False))
    assert driver.engine.total_bytes == 1


def test_one_batch_moves_a_log_through_all_places(driver: Driver) -> None:
    """Reservations of one batch follow each other; positions start anew each time."""
    payloads = [b'"%d"' % number for number in range(1, 701)]
    writes = [append("topic", *payloads[start : start + 35]) for start in range(0, 700, 35)]
    driver.run(*writes)
    driver.run(*writes)
    records = dump(driver.settings)["topic"].records
    assert list(records.values()) == payloads * 2


@pytest.mark.parametrize("start", [7, 97, 995])
def test_seqs_of_different_lengths_fit_in_one_write(driver: Driver, start: int) -> None:
    """The index knows how long each prefix is."""
    driver.append("topic", *[b"1"] * start)
    driver.append("topic", *[b"2"] * 20)
    assert list(dump(driver.settings)["topic"].records.values()) == [b"1"] * start + [b"2"] * 20

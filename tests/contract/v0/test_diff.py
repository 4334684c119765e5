"""POST /v0/topics/:topic/diff (API 3): cursors, limits, budgets, filters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused, seqs
from tests.harness.api import Api

FIELDS = {
    "topic",
    "records",
    "next_from_seq",
    "head_seq",
    "earliest_seq",
    "caught_up",
    "tombstone",
    "lag",
    "performance",
}

MIB = 1024 * 1024


def test_a_page_has_every_documented_field(api: Api, topic: str) -> None:
    """API 3: records, cursor, watermarks, caught_up, tombstone, lag, records_scanned."""
    good(api.append(topic, "a", "b"), 201)
    page = good(api.diff(topic))
    assert set(page) == FIELDS
    assert page["topic"] == topic
    assert payloads(page) == ["a", "b"]
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (2, 2, 1)
    assert (page["caught_up"], page["tombstone"], page["lag"]) == (True, None, 0)
    assert page["performance"]["records_scanned"] == 2


def test_the_cursor_is_exclusive(api: Api, topic: str) -> None:
    """API 3: records with $seq greater than from_seq."""
    good(api.append(topic, *range(1, 6)), 201)
    for from_seq in range(6):
        assert seqs(good(api.diff(topic, from_seq))) == list(range(from_seq + 1, 6))


def test_an_empty_body_object_reads_from_the_start(api: Api, topic: str) -> None:
    """API 3: every field is optional."""
    good(api.append(topic, 1, 2), 201)
    page = good(api.request("POST", f"/v0/topics/{topic}/diff", json={}))
    assert payloads(page) == [1, 2]


def test_the_tail_is_empty_and_caught_up(api: Api, topic: str) -> None:
    """API 3: to tail, pass the current head_seq."""
    good(api.append(topic, 1, 2), 201)
    page = good(api.diff(topic, 2))
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, True, 0)
    assert page["tombstone"] is None


def test_an_empty_topic_is_caught_up_at_zero(api: Api, topic: str) -> None:
    """API 3: from_seq 0 on a topic that was never written."""
    good(api.put(topic), 201)
    page = good(api.diff(topic))
    assert (page["records"], page["tombstone"]) == ([], None)
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (0, 0, 1)
    assert page["caught_up"] is True


def test_pages_continue_where_the_last_one_ended(api: Api, topic: str) -> None:
    """API 3: next_from_seq is passed back; lag counts what is still behind."""
    good(api.append(topic, *range(10)), 201)
    page = good(api.diff(topic, limit=4))
    assert seqs(page) == [1, 2, 3, 4]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (4, False, 6)
    page = good(api.diff(topic, page["next_from_seq"], limit=4))
    assert seqs(page) == [5, 6, 7, 8]
    page = good(api.diff(topic, page["next_from_seq"], limit=4))
    assert seqs(page) == [9, 10]
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (10, True, 0)


def test_a_page_that_ends_exactly_at_the_head_is_caught_up(api: Api, topic: str) -> None:
    """API 3: caught_up is next_from_seq == head_seq, whatever the limit."""
    good(api.append(topic, 1, 2, 3), 201)
    page = good(api.diff(topic, limit=3))
    assert (page["next_from_seq"], page["caught_up"]) == (3, True)


def test_the_default_limit_is_256_and_the_largest_1000(api: Api, topic: str) -> None:
    """API 3: 0 means the default, more than TOPICS_MAX_LIMIT is clamped, not refused."""
    good(api.append(topic, *range(1100)), 201)
    assert len(good(api.diff(topic))["records"]) == 256
    assert len(good(api.diff(topic, limit=0))["records"]) == 256
    assert len(good(api.diff(topic, limit=1))["records"]) == 1
    assert len(good(api.diff(topic, limit=1000))["records"]) == 1000
    assert len(good(api.diff(topic, limit=1001))["records"]) == 1000
    assert len(good(api.diff(topic, limit=2**32 - 1))["records"]) == 1000


def read_all(api: Api, topic: str, **fields: Any) -> list[dict[str, Any]]:
    pages = [good(api.diff(topic, **fields))]
    while not pages[-1]["caught_up"]:
        pages.append(good(api.diff(topic, pages[-1]["next_from_seq"], **fields)))
        assert pages[-1]["records"], "a page made no progress"
    return pages


def test_many_pages_return_every_record_once(api: Api, topic: str) -> None:
    """API 3: paging over a longer topic neither repeats nor skips."""
    for start in range(0, 3000, 1000):
        api.append(topic, *range(start, start + 1000))
    pages = read_all(api, topic, limit=777)
    assert [data for page in pages for data in payloads(page)] == list(range(3000))


def test_a_page_is_bounded_by_bytes(api: Api, topic: str) -> None:
    """API 11: a diff response is bounded by a byte budget of 1 MiB as well as by limit."""
    for number in range(6):
        api.append(topic, str(number) * 400_000)
    pages = read_all(api, topic, limit=1000)
    assert [seq for page in pages for seq in seqs(page)] == [1, 2, 3, 4, 5, 6]
    assert len(pages) >= 3
    for page in pages:
        assert sum(len(data) for data in payloads(page)) <= MIB


def test_a_page_has_at_least_one_record(api: Api, topic: str) -> None:
    """API 11: at least one record is always delivered, however large."""
    for _ in range(3):
        api.append(topic, "x" * (MIB - 2))
    pages = read_all(api, topic)
    assert [seqs(page) for page in pages] == [[1], [2], [3]]
    assert [page["lag"] for page in pages] == [2, 1, 0]


def test_tags_are_included_on_request(api: Api, topic: str) -> None:
    """API 3: $tag only if include_tags, which is off by default."""
    good(api.write(topic, [{"data": 1, "tag": "t"}, {"data": 2}]), 201)
    assert "$tag" not in good(api.diff(topic))["records"][0]
    assert "$tag" not in good(api.diff(topic, include_tags=False))["records"][0]
    records = good(api.diff(topic, include_tags=True))["records"]
    assert (records[0]["$tag"], "$tag" in records[1]) == ("t", False)


def test_meta_is_included_unless_refused(api: Api, topic: str) -> None:
    """API 3: meta only if include_meta, which is on by default."""
    record = {"data": {"meta": "payload"}, "tag": "t", "node": "n", "meta": {"m": "1"}}
    good(api.write(topic, [record, {"data": 2}]), 201)
    assert good(api.diff(topic))["records"][0]["meta"] == {"m": "1"}
    for tags, expected in [(False, {"$seq", "$ts", "$node", "data"})]:
        first = good(api.diff(topic, include_meta=False, include_tags=tags))["records"][0]
        assert set(first) == expected
        assert first["data"] == {"meta": "payload"}
    both = good(api.diff(topic, include_meta=False, include_tags=True))["records"]
    assert set(both[0]) == {"$seq", "$ts", "$node", "$tag", "data"}
    assert set(both[1]) == {"$seq", "$ts", "data"}


@pytest.mark.parametrize(
    "fields",
    [
        {"from_seq": -1},
        {"from_seq": "1"},
        {"from_seq": 1.5},
        {"from_seq": True},
        {"from_seq": 2**64},
        {"from_seq": []},
        {"limit": -1},
        {"limit": "10"},
        {"limit": 2.5},
        {"limit": True},
        {"wait_ms": -1},
        {"wait_ms": "10"},
        {"wait_ms": 0.5},
        {"include_tags": 1},
        {"include_tags": "true"},
        {"include_meta": 0},
        {"node": 5},
        {"node": {"a": 1}},
        {"node": ["a", 5]},
        {"node": [["a"]]},
    ],
)
def test_mistyped_fields_are_refused(api: Api, topic: str, fields: dict[str, Any]) -> None:
    """API 3: type errors are 400; values over a maximum are clamped instead."""
    good(api.put(topic), 201)
    answer = api.request("POST", f"/v0/topics/{topic}/diff", json=fields)
    refused(answer, 400, "invalid_request")


@pytest.mark.parametrize("body", [b"[]", b"null", b"5", b"{", b'{"from_seq":}', b"{}{}"])
def test_a_body_that_is_not_one_object_is_refused(api: Api, topic: str, body: bytes) -> None:
    """API 0.6: malformed requests are 400."""
    good(api.put(topic), 201)
    headers = {"Content-Type": "application/json"}
    answer = api.request("POST", f"/v0/topics/{topic}/diff", content=body, headers=headers)
    refused(answer, 400, "invalid_request")


def test_unknown_fields_are_ignored(api: Api, topic: str) -> None:
    """Decision 2.9: unknown request fields are ignored."""
    good(api.append(topic, 1), 201)
    assert payloads(good(api.diff(topic, color="red"))) == [1]


def test_a_diff_never_creates(api: Api, topic: str) -> None:
    """API 3: an absent topic is 404, with and without waiting."""
    error = refused(api.diff(topic), 404, "topic_not_found")
    assert error["detail"]["topic"] == topic
    refused(api.diff(topic, wait_ms=5000), 404, "topic_not_found")
    refused(api.state(topic), 404, "topic_not_found")


def test_reading_twice_gives_the_same_bytes(api: Api, topic: str) -> None:
    """API 3: a diff is read-only and safe to retry."""
    good(api.write(topic, [{"data": {"n": 1}, "tag": "t", "meta": {"m": "1"}}]), 201)
    first, second = (good(api.diff(topic, include_tags=True)) for _ in range(2))
    first.pop("performance"), second.pop("performance")
    assert first == second

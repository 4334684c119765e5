"""GET /v0/topics (API 1.3) and opaque cursors (API 0.7)."""

from __future__ import annotations

import base64
import json

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api

SUMMARY = {
    "topic",
    "head_seq",
    "earliest_seq",
    "count",
    "bytes",
    "durable",
    "effective_priority",
}


def names(body: dict) -> list[str]:
    return [entry["topic"] for entry in body["topics"]]


def create(api: Api, topic: str, *suffixes: str) -> list[str]:
    created = [f"{topic}:{suffix}" for suffix in suffixes]
    for name in created:
        good(api.put(name), 201)
    return created


def test_a_listing_summarizes_each_topic(api: Api, topic: str) -> None:
    """API 1.3: each entry has head, earliest, count, bytes, durable and priority."""
    good(api.put(topic, {"durable": True, "priority": 9}), 201)
    good(api.append(topic, "ab", "cd"))
    body = good(api.list(prefix=topic))
    assert set(body) == {"topics", "performance"}
    entry = body["topics"][0]
    assert set(entry) == SUMMARY
    assert entry == {
        "topic": topic,
        "head_seq": 2,
        "earliest_seq": 1,
        "count": 2,
        "bytes": 8,
        "durable": True,
        "effective_priority": 9,
    }


def test_a_prefix_selects(api: Api, topic: str) -> None:
    """API 1.3: prefix compares bytes of the name."""
    create(api, topic, "a1", "a2", "b1", "A1")
    assert names(good(api.list(prefix=f"{topic}:a"))) == [f"{topic}:a1", f"{topic}:a2"]
    assert names(good(api.list(prefix=f"{topic}:z"))) == []


def test_a_listing_is_in_byte_order(api: Api, topic: str) -> None:
    """API 1.3: one order for all pages, that of the bytes of the names."""
    created = create(api, topic, "b", "a", "B", "-", "a.", "0", "aa", "_")
    assert names(good(api.list(prefix=f"{topic}:"))) == sorted(created)


def test_pages_follow_each_other_without_gap_or_repeat(api: Api, topic: str) -> None:
    """API 0.7: next_cursor is passed back as cursor; its absence means the last page."""
    created = sorted(create(api, topic, *(f"{number:02d}" for number in range(7))))
    seen: list[str] = []
    query = {"prefix": f"{topic}:", "page_size": 3}
    body = good(api.list(**query))
    sizes = [len(body["topics"])]
    seen += names(body)
    while "next_cursor" in body:
        body = good(api.list(**query, cursor=body["next_cursor"]))
        sizes.append(len(body["topics"]))
        seen += names(body)
    assert seen == created
    assert sizes == [3, 3, 1]


def test_the_last_full_page_has_no_cursor(api: Api, topic: str) -> None:
    """API 1.3: next_cursor is present only when more pages exist."""
    create(api, topic, "a", "b")
    assert "next_cursor" not in good(api.list(prefix=f"{topic}:", page_size=2))
    assert "next_cursor" in good(api.list(prefix=f"{topic}:", page_size=1))


def test_the_cursor_is_base64_of_the_last_name(api: Api, topic: str) -> None:
    """Decision 2.6: base64 of {"after": name}, as in the example of API 1.3."""
    create(api, topic, "a", "b")
    cursor = good(api.list(prefix=f"{topic}:", page_size=1))["next_cursor"]
    assert json.loads(base64.b64decode(cursor)) == {"after": f"{topic}:a"}


def test_a_cursor_survives_the_deletion_of_its_topic(api: Api, topic: str) -> None:
    """API 0.7: a cursor names a position, not a topic."""
    create(api, topic, "a", "b", "c")
    cursor = good(api.list(prefix=f"{topic}:", page_size=1))["next_cursor"]
    good(api.delete(f"{topic}:a"))
    assert names(good(api.list(prefix=f"{topic}:", cursor=cursor))) == [
        f"{topic}:b",
        f"{topic}:c",
    ]


@pytest.mark.parametrize(
    "cursor",
    [
        "!!!!",
        "abc",
        base64.b64encode(b"not json").decode(),
        base64.b64encode(b'{"before":"x"}').decode(),
        base64.b64encode(b'{"after":5}').decode(),
        base64.b64encode(b'["after"]').decode(),
        base64.b64encode(b"\xff\xfe").decode(),
        base64.b64encode(b"null").decode(),
    ],
)
def test_a_corrupt_cursor_is_refused(api: Api, cursor: str) -> None:
    """API 1.3: a malformed or corrupt cursor is 400."""
    refused(api.list(cursor=cursor), 400, "invalid_request")


@pytest.mark.parametrize("page_size", ["x", "-1", "1.5"])
def test_a_mistyped_page_size_is_refused(api: Api, page_size: str) -> None:
    """API 0.6: a bad type is 400."""
    refused(api.list(page_size=page_size), 400, "invalid_request")


def test_the_page_size_is_clamped(api: Api, topic: str) -> None:
    """API 0.7: page_size is 100 by default and at most 1000; more is clamped, not refused."""
    create(api, topic, *(f"{number:03d}" for number in range(101)))
    prefix = f"{topic}:"
    first = good(api.list(prefix=prefix))
    assert (len(first["topics"]), "next_cursor" in first) == (100, True)
    every = good(api.list(prefix=prefix, page_size=1_000_000))
    assert (len(every["topics"]), "next_cursor" in every) == (101, False)


def test_listing_does_not_touch_recency_unless_asked(api: Api, topic: str) -> None:
    """API 1.3: touch defaults to false; touch=true bumps the topics listed."""
    good(api.put(topic), 201)
    good(api.list(prefix=topic))
    assert good(api.state(topic))["last_read_ts"] is None
    good(api.list(prefix=topic, touch="true"))
    assert good(api.state(topic))["last_read_ts"] is not None


def test_a_deleted_topic_is_not_listed(api: Api, topic: str) -> None:
    """API 1.4: gone from the next listing on."""
    create(api, topic, "a", "b")
    good(api.delete(f"{topic}:a"))
    assert names(good(api.list(prefix=f"{topic}:"))) == [f"{topic}:b"]

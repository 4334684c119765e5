"""The read filter `match` on diff: the language of deletes (API 5), our extension of API 3."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused, seqs
from tests.harness.api import Api
from tests.harness.server import Server

LOG = ["user:1", "user:2", None, "order:1", "user:10", "", "user:1", "ünïcode:é", 'q"uote\\:x']


def write_tags(api: Api, topic: str, *tags: str | None) -> None:
    records = [
        {"data": number} | ({} if tag is None else {"tag": tag})
        for number, tag in enumerate(tags, start=1)
    ]
    assert api.write(topic, records).status_code in (200, 201)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("user:1", [1, 7]),
        (["tag", "Eq", "user:1"], [1, 7]),
        (["tag", "Glob", "user:1*"], [1, 5, 7]),
        (["tag", "Glob", "user:*"], [1, 2, 5, 7]),
        (["tag", "Glob", "*"], [1, 2, 4, 5, 6, 7, 8, 9]),
        ("", [6]),
        ("ünïcode:é", [8]),
        (["tag", "Glob", "ünï*"], [8]),
        (["tag", "Glob", 'q"uo*'], [9]),
        ('q"uote\\:x', [9]),
        (["tag", "Eq", "user:*"], []),
        ("USER:1", []),
        ("user", []),
    ],
)
def test_only_records_whose_tag_matches_are_delivered(
    api: Api, topic: str, match: Any, expected: list[int]
) -> None:
    """Eq is exact, Glob a literal prefix; a record without a tag never matches."""
    write_tags(api, topic, *LOG)
    page = good(api.diff(topic, match=match))
    assert payloads(page) == expected
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (9, True, 0)
    assert page["tombstone"] is None
    assert page["performance"]["records_scanned"] == 9


@pytest.mark.parametrize(
    "match",
    [
        None,
        7,
        {},
        [],
        ["tag", "Eq"],
        ["tag", "Eq", "a", "b"],
        ["tag", "Eq", 1],
        ["node", "Eq", "a"],
        ["tag", "eq", "a"],
        ["tag", "Glob", "a"],
        ["tag", "Glob", "a*b*"],
        ["tag", "Glob", "*a"],
        ["tag", "Glob", ""],
    ],
)
def test_what_is_no_predicate_is_refused(api: Api, topic: str, match: Any) -> None:
    """The same tuples are refused as by a delete, whether or not the topic exists."""
    error = refused(api.diff(topic, match=match), 400, "invalid_request")
    assert error["detail"]["field"] == "match"


def test_matching_composes_with_limit_node_and_deletes(api: Api, topic: str) -> None:
    """Each filter takes its part; the limit counts what is left."""
    records = [
        {"data": number, "tag": f"k:{number % 2}", "node": f"n{number % 3}"}
        for number in range(1, 19)
    ]
    good(api.write(topic, records), 201)
    assert good(api.request("POST", f"/v0/topics/{topic}/delete", json={"before_seq": 4}))
    page = good(api.diff(topic, match="k:1", node="n1", limit=2))
    assert payloads(page) == [5, 9]
    assert page["next_from_seq"] == 9
    rest = good(api.diff(topic, 9, match="k:1", node="n1"))
    assert payloads(rest) == [11, 15, 17]
    assert (rest["next_from_seq"], rest["caught_up"]) == (18, True)


def test_tags_are_matched_whether_or_not_they_are_asked_for(api: Api, topic: str) -> None:
    """`include_tags` decides what a record shows, not what is found."""
    write_tags(api, topic, "a", "b", "a")
    hidden = good(api.diff(topic, match="a"))["records"]
    shown = good(api.diff(topic, match="a", include_tags=True))["records"]
    assert [record.get("$tag") for record in hidden] == [None, None]
    assert [record["$tag"] for record in shown] == ["a", "a"]


def test_skipped_bytes_cost_no_byte_budget(api: Api, topic: str) -> None:
    """The budget bounds the answer: megabytes between two matches do not split a page."""
    large = "x" * 400_000
    for number in range(4):
        records = [{"data": large, "tag": "large"}, {"data": number, "tag": "small"}]
        assert api.write(topic, records).status_code in (200, 201)
    page = good(api.diff(topic, match="small"))
    assert payloads(page) == [0, 1, 2, 3]
    assert page["caught_up"]


def test_a_page_within_the_budget_has_at_least_one_match(api: Api, topic: str) -> None:
    """Matches over the budget come one page at a time, none skipped."""
    large = "x" * 700_000
    for number in range(3):
        records = [{"data": "no"}, {"data": f"{number}{large}", "tag": "m"}]
        assert api.write(topic, records).status_code in (200, 201)
    cursor, found = 0, []
    for _ in range(3):
        page = good(api.diff(topic, cursor, match="m"))
        cursor = page["next_from_seq"]
        found += seqs(page)
    assert found == [2, 4, 6]


def test_a_needle_in_a_long_log_is_found_in_bounded_pages(api: Api, topic: str) -> None:
    """A page looks at a bounded number of records; the cursor always advances."""
    hay = [{"data": 0, "tag": "hay"}] * 10_000
    for _ in range(8):
        assert api.write(topic, hay).status_code in (200, 201)
    good(api.write(topic, [{"data": "needle", "tag": "needle"}]))
    found: list[Any] = []
    cursor, caught_up, pages = 0, False, 0
    while not caught_up:
        page = good(api.diff(topic, cursor, match="needle"))
        assert page["next_from_seq"] > cursor
        assert page["performance"]["records_scanned"] < 80_000
        cursor, caught_up, pages = page["next_from_seq"], page["caught_up"], pages + 1
        found += payloads(page)
    assert found == ["needle"]
    assert pages == 2
    waited = good(api.diff(topic, match="needle", wait_ms=5000))
    assert payloads(waited) == ["needle"]


def test_a_long_poll_sleeps_through_records_that_do_not_match(
    api: Api, server: Server, topic: str
) -> None:
    """Only a matching record ends the wait."""
    write_tags(api, topic, "a")
    answers: list[dict[str, Any]] = []
    other = Api(server)
    waiting = threading.Thread(
        target=lambda: answers.append(good(other.diff(topic, match="b", wait_ms=9000)))
    )
    waiting.start()
    for _ in range(20):
        good(api.write(topic, [{"data": "no", "tag": "a"}]))
    assert waiting.is_alive()
    written = good(api.write(topic, [{"data": "yes", "tag": "b"}]))
    waiting.join(5)
    other.close()
    assert payloads(answers[0]) == ["yes"]
    assert answers[0]["next_from_seq"] == written["last_seq"]


def test_a_tombstone_is_reported_through_a_filter(api: Api, topic: str) -> None:
    """Loss is reported whether or not the lost records would have matched."""
    good(api.put(topic, {"cap_records": 3}), 201)
    write_tags(api, topic, *["a", "b"] * 5)
    page = good(api.diff(topic, match="a"))
    assert page["tombstone"]["reason"] == "cap"
    assert payloads(page) == [9]

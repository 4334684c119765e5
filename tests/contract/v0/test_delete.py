"""Deleting records (API 5, DESIGN 7): what goes, what stays, and what everybody sees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.harness.answers import good, payloads, refused, seqs
from tests.harness.api import JSON, Api
from tests.harness.raw import RawConnection


def ask(api: Api, topic: str, **body: Any) -> httpx.Response:
    return api.request("POST", f"/v0/topics/{topic}/delete", json=body)


def deleted(api: Api, topic: str, **body: Any) -> int:
    return int(good(ask(api, topic, **body))["deleted"])


def fill(api: Api, topic: str, *tags: str | None, **config: Any) -> None:
    """One record a tag (none for None), whose payload is its seq."""
    good(api.put(topic, config), 201)
    records = [
        {"data": seq} if tag is None else {"data": seq, "tag": tag}
        for seq, tag in enumerate(tags, 1)
    ]
    good(api.write(topic, records))


def left(api: Api, topic: str) -> list[int]:
    return seqs(good(api.diff(topic)))


def test_a_delete_answers_with_the_topic_after_it(api: Api, topic: str) -> None:
    """API 5: deleted, earliest_seq, head_seq, count and bytes, exactly these."""
    good(api.put(topic), 201)
    good(api.append(topic, "a", "bcd", {"k": 1}, "efgh"))
    body = good(ask(api, topic, before_seq=3))
    del body["performance"]
    assert body == {
        "topic": topic,
        "deleted": 2,
        "earliest_seq": 3,
        "head_seq": 4,
        "count": 2,
        "bytes": len('{"k":1}') + len('"efgh"'),
    }


def test_state_list_and_diff_agree_with_the_answer(api: Api, topic: str) -> None:
    """API 5: effective immediately, for every reader at once."""
    fill(api, topic, "x", "y", "x", "y", "x")
    answer = good(ask(api, topic, match="x"))
    for _ in range(8):
        state = good(api.state(topic))
        listed = good(api.list(prefix=topic))["topics"][0]
        for name in ("earliest_seq", "head_seq", "count", "bytes"):
            assert answer[name] == state[name] == listed[name]
        page = good(api.diff(topic))
        assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([2, 4], 5, True)
        assert (page["earliest_seq"], page["lag"]) == (2, 0)


def test_bytes_are_data_plus_meta_of_what_is_left(api: Api, topic: str) -> None:
    """API 5: count and bytes already exclude the deleted records."""
    good(api.put(topic), 201)
    sizes = {}
    for number in range(1, 13):
        record: dict[str, Any] = {"data": "x" * number, "tag": f"t{number % 3}", "node": "n"}
        size = number + 2
        if number % 2:
            record["meta"] = {"m": "y" * number}
            size += len('{"m":""}') + number
        good(api.write(topic, [record]))
        sizes[number] = size
    body = good(ask(api, topic, match="t1"))
    kept = [size for number, size in sizes.items() if number % 3 != 1]
    assert (body["count"], body["bytes"]) == (len(kept), sum(kept))
    body = good(ask(api, topic, before_seq=7))
    kept = [size for number, size in sizes.items() if number % 3 != 1 and number >= 7]
    assert (body["count"], body["bytes"]) == (len(kept), sum(kept))


@pytest.mark.parametrize(
    "before_seq, gone, earliest",
    [(0, 0, 1), (1, 0, 1), (2, 1, 2), (5, 4, 5), (6, 5, 6), (7, 5, 6), (2**64 - 1, 5, 6)],
)
def test_before_seq_is_exclusive(
    api: Api, topic: str, before_seq: int, gone: int, earliest: int
) -> None:
    """API 5: every record with $seq < before_seq, also far beyond the head."""
    fill(api, topic, None, "t", None, "t", None)
    body = good(ask(api, topic, before_seq=before_seq))
    assert (body["deleted"], body["earliest_seq"], body["head_seq"]) == (gone, earliest, 5)
    assert left(api, topic) == list(range(earliest, 6))


@pytest.mark.parametrize(
    "match, kept",
    [
        (["tag", "Eq", "a:1"], [2, 3, 4, 5]),
        ("a:1", [2, 3, 4, 5]),
        (["tag", "Eq", "a:"], [1, 2, 3, 4, 5]),
        (["tag", "Eq", "a:*"], [1, 2, 3, 4, 5]),
        ("a:*", [1, 2, 3, 4, 5]),
        (["tag", "Glob", "a:*"], [3, 4, 5]),
        (["tag", "Glob", "a:1*"], [3, 4, 5]),
        (["tag", "Glob", "a:11*"], [1, 3, 4, 5]),
        (["tag", "Glob", "c*"], [1, 2, 3, 4, 5]),
        (["tag", "Glob", "*"], [5]),
    ],
)
def test_match_selects_by_tag(api: Api, topic: str, match: Any, kept: list[int]) -> None:
    """API 5: Eq is exact, Glob a literal prefix, a bare string is Eq; no tag never matches."""
    fill(api, topic, "a:1", "a:11", "b", "A:1", None)
    body = good(ask(api, topic, match=match))
    assert (body["deleted"], body["count"]) == (5 - len(kept), len(kept))
    assert left(api, topic) == kept


def test_before_seq_and_match_are_both_required(api: Api, topic: str) -> None:
    """API 5: supply both to AND them: prior versions go, the new one stays."""
    fill(api, topic, "msg-123", "msg-9", "msg-123", None, "msg-123")
    assert deleted(api, topic, match=["tag", "Eq", "msg-123"], before_seq=5) == 2
    assert left(api, topic) == [2, 4, 5]
    assert deleted(api, topic, match=["tag", "Glob", "msg*"], before_seq=2) == 0
    assert deleted(api, topic, match=["tag", "Glob", "msg*"], before_seq=100) == 2
    assert left(api, topic) == [4]


def test_a_delete_is_not_a_standing_filter(api: Api, topic: str) -> None:
    """API 5: point in time; later records with the tag are never affected."""
    fill(api, topic, "chat-42:a", "chat-42:b")
    assert deleted(api, topic, match=["tag", "Glob", "chat-42:*"]) == 2
    assert deleted(api, topic, before_seq=100) == 0
    good(api.write(topic, [{"data": "later", "tag": "chat-42:a"}]))
    page = good(api.diff(topic))
    assert (payloads(page), seqs(page), page["tombstone"]) == (["later"], [3], None)


def test_a_repeated_delete_removes_nothing_more(api: Api, topic: str) -> None:
    """API 5: deleted counts what this call removed."""
    fill(api, topic, "a", "b", "a", "b")
    for body in ({"match": "a"}, {"before_seq": 3}, {"match": ["tag", "Glob", "*"]}):
        first = good(ask(api, topic, **body))
        again = good(ask(api, topic, **body))
        assert (first["deleted"] > 0, again["deleted"]) == (True, 0)
        for name in ("earliest_seq", "head_seq", "count", "bytes"):
            assert first[name] == again[name]


def test_an_emptied_topic_goes_on_counting(api: Api, topic: str) -> None:
    """DESIGN 5.1: earliest_seq is head_seq + 1 without a live record; seqs are not reused."""
    fill(api, topic, "a", "a", "a")
    body = good(ask(api, topic, match="a"))
    assert (body["earliest_seq"], body["head_seq"], body["count"], body["bytes"]) == (4, 3, 0, 0)
    page = good(api.diff(topic))
    assert (page["records"], page["next_from_seq"], page["tombstone"]) == ([], 3, None)
    assert good(api.append(topic, "next"))["seqs"] == [4]
    assert good(api.state(topic))["count"] == 1


def test_a_topic_emptied_by_deletes_is_empty(api: Api, topic: str) -> None:
    """API 1.4: if_empty looks at live records."""
    fill(api, topic, "a", "b")
    refused(api.delete(topic, if_empty="true"), 409, "topic_not_empty")
    assert deleted(api, topic, match=["tag", "Glob", "*"]) == 2
    assert good(api.delete(topic, if_empty="true"))["deleted"] is True


def test_deleting_from_an_empty_topic_is_fine(api: Api, topic: str) -> None:
    """API 5: nothing matches, nothing happens."""
    good(api.put(topic), 201)
    for body in ({"before_seq": 10}, {"match": "x"}, {"before_seq": 10, "match": "x"}):
        answer = good(ask(api, topic, **body))
        assert (answer["deleted"], answer["earliest_seq"], answer["head_seq"]) == (0, 1, 0)


@pytest.mark.parametrize("from_seq", range(6))
def test_no_cursor_is_told_of_a_delete(api: Api, topic: str, from_seq: int) -> None:
    """API 5: silent; the cursor advances past the deleted seqs."""
    fill(api, topic, "x", "x", "y", "x", "y")
    deleted(api, topic, match="x")
    page = good(api.diff(topic, from_seq))
    assert page["tombstone"] is None
    assert seqs(page) == [seq for seq in (3, 5) if seq > from_seq]
    assert (page["next_from_seq"], page["caught_up"]) == (5, True)
    deleted(api, topic, before_seq=6)
    page = good(api.diff(topic, from_seq))
    assert (page["records"], page["tombstone"], page["next_from_seq"]) == ([], None, 5)


def test_pages_walk_through_deleted_stretches(api: Api, topic: str) -> None:
    """API 3.2: limits count records; skipped seqs still advance next_from_seq."""
    fill(api, topic, *(["odd", "even"] * 200))
    assert deleted(api, topic, match="odd") == 200
    found: list[int] = []
    cursor = 0
    while cursor < 400:
        page = good(api.diff(topic, cursor, limit=7))
        assert 0 < len(page["records"]) <= 7
        found += seqs(page)
        cursor = page["next_from_seq"]
    assert found == list(range(2, 401, 2))


TAGS = ["ü", "üb", "日本", "日本語", "😀", "😀😀", 'q"', 'q"x', "b\\", "b\\n", "\n", "\t\x01"]
TAGS += ["\x7f", "%d", "a/b"]


@pytest.mark.parametrize("tag", TAGS)
def test_tags_are_matched_byte_for_byte(api: Api, topic: str, tag: str) -> None:
    """API 5: also tags whose JSON text is longer than they are."""
    fill(api, topic, *TAGS)
    kept = [seq for seq, other in enumerate(TAGS, 1) if not other.startswith(tag)]
    exact = [seq for seq, other in enumerate(TAGS, 1) if other != tag]
    assert deleted(api, topic, match=["tag", "Eq", tag]) == 1
    assert left(api, topic) == exact
    deleted(api, topic, match=["tag", "Glob", f"{tag}*"])
    assert left(api, topic) == kept


def test_an_escaped_match_is_the_same_match(api: Api, topic: str) -> None:
    """RFC 8259: how a string is escaped in the request says nothing about it."""
    fill(api, topic, "é:1", "é:2")
    body = b'{"match":["\\u0074ag","\\u0047lob","\\u00e9:*"]}'
    path = f"/v0/topics/{topic}/delete"
    assert good(api.request("POST", path, content=body, headers=JSON))["deleted"] == 2


def test_a_star_inside_a_tag_is_a_character(api: Api, topic: str) -> None:
    """API 5: only a Glob's last character is special, and only there."""
    fill(api, topic, "a*", "a*b", "ab")
    assert deleted(api, topic, match=["tag", "Eq", "a*"]) == 1
    assert left(api, topic) == [2, 3]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"matches": "x"},
        {"before_seq": -1},
        {"before_seq": 2**64},
        {"before_seq": 1.5},
        {"before_seq": "5"},
        {"before_seq": True},
        {"before_seq": [1]},
        {"match": 5},
        {"match": None},
        {"match": True},
        {"match": {}},
        {"match": {"tag": "x"}},
        {"match": []},
        {"match": ["tag"]},
        {"match": ["tag", "Eq"]},
        {"match": ["tag", "Eq", "x", "y"]},
        {"match": ["tag", "Eq", 5]},
        {"match": ["tag", "Eq", None]},
        {"match": ["tag", "Eq", ["x"]]},
        {"match": ["node", "Eq", "x"]},
        {"match": ["Tag", "Eq", "x"]},
        {"match": ["tag", "eq", "x"]},
        {"match": ["tag", "Regex", "x*"]},
        {"match": ["tag", "", "x"]},
        {"match": ["tag", "Glob", "x"]},
        {"match": ["tag", "Glob", ""]},
        {"match": ["tag", "Glob", "*x"]},
        {"match": ["tag", "Glob", "x*y"]},
        {"match": ["tag", "Glob", "x*y*"]},
        {"match": ["tag", "Glob", "x**"]},
        {"match": ["tag", "Glob", "x"], "before_seq": 5},
        {"match": "x", "before_seq": -5},
    ],
)
def test_a_malformed_delete_is_refused_whole(api: Api, topic: str, body: Any) -> None:
    """API 5: 400 invalid_request, and nothing is deleted."""
    fill(api, topic, "x", "xy", None)
    refused(ask(api, topic, **body), 400, "invalid_request")
    assert left(api, topic) == [1, 2, 3]


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b'"x"', b"null", b"{", b'{"match":"\xff"}'])
def test_a_body_that_is_no_object_is_refused(api: Api, topic: str, body: bytes) -> None:
    """API 0.5: 400, never a 5xx."""
    fill(api, topic, "x")
    answer = api.request("POST", f"/v0/topics/{topic}/delete", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("invalid_request", "invalid_json")
    assert left(api, topic) == [1]


def test_unknown_fields_are_ignored(api: Api, topic: str) -> None:
    """Decision 2.9."""
    fill(api, topic, "x", "y")
    assert deleted(api, topic, match="x", dry_run=True, limit=0) == 1


@pytest.mark.parametrize("body", [{"before_seq": 1}, {"match": "x"}])
def test_a_missing_topic_is_404(api: Api, topic: str, body: dict[str, Any]) -> None:
    """API 5: 404 topic_not_found; a delete creates nothing."""
    refused(ask(api, topic, **body), 404, "topic_not_found")
    refused(api.state(topic), 404, "topic_not_found")
    fill(api, topic, "x")
    good(api.delete(topic))
    refused(ask(api, topic, **body), 404, "topic_not_found")


def test_the_wrong_method_names_the_right_one(api: Api, topic: str) -> None:
    """API 0.4: 405 with Allow."""
    answer = api.request("GET", f"/v0/topics/{topic}/delete")
    refused(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


def test_a_delete_needs_the_delete_scope(as_key: Callable[[str], Api], topic: str) -> None:
    """API 0.2: delete, nothing else, and only inside the key's prefixes."""
    fill(as_key("full"), topic, "a", "b", "c")
    for name in ("read", "write", "rw", "admin", "tenant"):
        refused(ask(as_key(name), topic, match="a"), 403, "forbidden")
    refused(ask(as_key(""), topic, match="a"), 401, "unauthorized")
    assert left(as_key("full"), topic) == [1, 2, 3]
    assert deleted(as_key("delete"), topic, match="a") == 1
    fill(as_key("full"), f"tenant42:{topic}", "a")
    assert deleted(as_key("tenant"), f"tenant42:{topic}", match="a") == 1
    refused(ask(as_key("tenant-reader"), f"tenant42:{topic}", match="a"), 403, "forbidden")


def test_own_nodes_and_deletes_are_both_skipped(api: Api, topic: str) -> None:
    """DESIGN 7.3: filters compose, and all of them are silent."""
    good(api.put(topic), 201)
    records = [{"data": n, "tag": f"t{n % 2}", "node": f"n{n % 3}"} for n in range(1, 10)]
    good(api.write(topic, records))
    deleted(api, topic, match="t0")
    page = good(api.diff(topic, 0, node="n1", include_tags=True))
    assert (seqs(page), page["tombstone"], page["next_from_seq"]) == ([3, 5, 9], None, 9)
    assert {record["$tag"] for record in page["records"]} == {"t1"}


def test_a_deduped_retry_answers_after_its_records_were_deleted(api: Api, topic: str) -> None:
    """Decision 2.12: the old seqs, and nothing comes back."""
    write = {"records": [{"data": 1, "tag": "x"}], "idempotency_key": "k"}
    path = f"/v0/topics/{topic}"
    good(api.request("POST", path, json=write), 201)
    deleted(api, topic, match="x")
    again = good(api.request("POST", path, json=write))
    assert (again["deduped"], again["seqs"]) == (True, [1])
    assert left(api, topic) == []


def test_a_delete_does_not_answer_a_long_poll(api: Api, topic: str) -> None:
    """API 3.1: a wait ends with a record or its time, not with a delete."""
    fill(api, topic, "x", "x", "y")
    answers: list[dict[str, Any]] = []
    waiter = threading.Thread(
        target=lambda: answers.append(good(api.diff(topic, 3, wait_ms=8000))), daemon=True
    )
    waiter.start()
    with RawConnection(api.server.address) as other:
        for body in (b'{"match":"x"}', b'{"before_seq":3}', b'{"before_seq":4}'):
            path = f"/v0/topics/{topic}/delete"
            assert other.request("POST", path, body=body, headers=JSON).status == 200
    assert answers == []
    good(api.append(topic, "news"))
    waiter.join(10)
    assert payloads(answers[0]) == ["news"]


def test_a_long_poll_below_deleted_records_waits_for_a_live_one(api: Api, topic: str) -> None:
    """API 3.2: skipped seqs advance the cursor of a wait as of any read."""
    fill(api, topic, "x", "x")
    deleted(api, topic, match="x")
    page = good(api.diff(topic, 0, wait_ms=50))
    assert (page["records"], page["next_from_seq"], page["tombstone"]) == ([], 2, None)
    good(api.append(topic, "news"))
    page = good(api.diff(topic, 0, wait_ms=5000))
    assert (payloads(page), page["tombstone"]) == (["news"], None)


def test_other_topics_are_left_alone(api: Api, topic: str) -> None:
    """API 5: a tag belongs to its topic."""
    fill(api, topic, "x")
    fill(api, f"{topic}-other", "x")
    assert deleted(api, topic, match="x") == 1
    assert left(api, f"{topic}-other") == [1]


def test_a_recreated_topic_has_nothing_deleted(api: Api, topic: str) -> None:
    """API 1.4: a new incarnation starts with all of its own records."""
    fill(api, topic, "x", "y")
    deleted(api, topic, before_seq=3)
    good(api.delete(topic))
    fill(api, topic, "x", "y")
    assert left(api, topic) == [1, 2]

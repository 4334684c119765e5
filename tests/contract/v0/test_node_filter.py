"""Node loop prevention on reads (API 4.5, DESIGN 6)."""

from __future__ import annotations

import pytest

from tests.harness.answers import good, payloads
from tests.harness.api import Api


def write_nodes(api: Api, topic: str, *nodes: str | None) -> None:
    records = [
        {"data": number} | ({} if node is None else {"node": node})
        for number, node in enumerate(nodes, start=1)
    ]
    assert api.write(topic, records).status_code in (200, 201)


def test_a_reader_does_not_get_its_own_records(api: Api, topic: str) -> None:
    """API 4.5: records whose $node equals the reader's node are dropped, silently."""
    write_nodes(api, topic, "a", "b", None, "a", "c")
    page = good(api.diff(topic, node="a"))
    assert payloads(page) == [2, 3, 5]
    assert (page["next_from_seq"], page["caught_up"], page["tombstone"]) == (5, True, None)


def test_several_identities_are_filtered_at_once(api: Api, topic: str) -> None:
    """API 4.5: drop if $node is in the set."""
    write_nodes(api, topic, "a", "b", None, "a", "c")
    assert payloads(good(api.diff(topic, node=["a", "c"]))) == [2, 3]
    assert payloads(good(api.diff(topic, node=["a", "b", "c", "d"]))) == [3]


@pytest.mark.parametrize("node", ["ab", "A", "a ", "", "aa"])
def test_matching_is_exact(api: Api, topic: str, node: str) -> None:
    """API 4.5: byte-exact equality only, no prefix, no case folding."""
    write_nodes(api, topic, "a")
    assert payloads(good(api.diff(topic, node=node))) == [1]


def test_an_empty_set_filters_nothing(api: Api, topic: str) -> None:
    """API 4.5: drop if $node is in the empty set: never."""
    write_nodes(api, topic, "a", None)
    assert payloads(good(api.diff(topic, node=[]))) == [1, 2]


def test_filtered_records_advance_the_cursor(api: Api, topic: str) -> None:
    """API 3.2: a topic full of own records is traversed, not looped over."""
    write_nodes(api, topic, *["me"] * 50)
    page = good(api.diff(topic, node="me"))
    assert page["records"] == []
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (50, True, 0)


def test_a_long_own_stretch_ends_in_finitely_many_pages(api: Api, topic: str) -> None:
    """API 3.2: next_from_seq grows with every page, and the foreign record is found."""
    write_nodes(api, topic, *["me"] * 3000, "other", *["me"] * 10)
    found: list[int] = []
    cursor, pages, caught_up = 0, 0, False
    while not caught_up:
        page = good(api.diff(topic, cursor, node="me", limit=100))
        assert page["next_from_seq"] > cursor
        cursor, caught_up, pages = page["next_from_seq"], page["caught_up"], pages + 1
        found += payloads(page)
    assert found == [3001]
    assert pages <= 31


def test_a_page_never_exceeds_its_limit_with_filters(api: Api, topic: str) -> None:
    """API 3: up to limit records after skipping."""
    write_nodes(api, topic, *(["me", "other"] * 20))
    seen: list[int] = []
    cursor = 0
    while cursor < 40:
        page = good(api.diff(topic, cursor, node="me", limit=3))
        assert len(page["records"]) <= 3
        assert page["next_from_seq"] > cursor
        cursor = page["next_from_seq"]
        seen += payloads(page)
    assert seen == list(range(2, 41, 2))


def test_a_topic_can_opt_out(api: Api, topic: str) -> None:
    """API 0.10: dedupe_node false gives a reader its own records."""
    good(api.put(topic, {"dedupe_node": False}), 201)
    write_nodes(api, topic, "a", "b")
    assert payloads(good(api.diff(topic, node="a"))) == [1, 2]


def test_nodes_outside_ascii_match_exactly(api: Api, topic: str) -> None:
    """API 4.5: a node id is an opaque token."""
    write_nodes(api, topic, "é\U0001f600", 'q"', "e\u0301")
    assert payloads(good(api.diff(topic, node="é\U0001f600"))) == [2, 3]
    assert payloads(good(api.diff(topic, node='q"'))) == [1, 3]
    assert payloads(good(api.diff(topic, node="é"))) == [1, 2, 3]

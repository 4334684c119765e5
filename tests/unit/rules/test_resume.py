"""Event ids, and where a watch goes on (API 7.4)."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicsd.rules.resume import (
    BadId,
    Cursors,
    EventId,
    decode_id,
    encode_id,
    encode_partial_id,
    id_key,
    resolve,
)

maps = st.dictionaries(st.text("abc:.-_", min_size=1, max_size=9), st.integers(0, 2**64 - 1))


def test_an_id_is_the_example_of_the_contract() -> None:
    """API 7.4: base64url of the JSON map, without padding."""
    number = encode_id({"jobs": 5210, "events": 88130})
    assert b"=" not in number
    padded = number + b"=" * (-len(number) % 4)
    assert json.loads(base64.urlsafe_b64decode(padded)) == {"jobs": 5210, "events": 88130}


@given(maps)
def test_ids_come_back(seqs: dict[str, int]) -> None:
    cursors = {name: (0, seq) for name, seq in seqs.items()}
    assert decode_id(encode_id(seqs).decode()) == EventId(cursors, None)
    assert decode_id(encode_partial_id(7, seqs).decode()) == EventId(cursors, 7)


def test_another_epoch_stands_in_the_id() -> None:
    assert [id_key("a", epoch, {"a": 3}) for epoch in (3, 4)] == ["a", "a@4"]
    assert id_key("b", 1, {"a": 3}) == "b@1"
    found = decode_id(encode_id({"a": 5, "b@4": 6}).decode())
    assert found == EventId({"a": (0, 5), "b": (4, 6)}, None)
    with pytest.raises(BadId):
        decode_id(encode_id({"a@x": 1}).decode())


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "=",
        "g1",
        "g.e30",
        "gx.e30",
        "g-1.e30",
        "bnVsbA",
        "W10",
        "eyJhIjotMX0",
        "eyJhIjoxLjV9",
        "eyJhIjoiMSJ9",
        "é",
        "e30\n",
        "A" * (1 << 20) + "AA",
    ],
)
def test_what_no_stream_sent_is_refused(text: str) -> None:
    with pytest.raises(BadId):
        decode_id(text)


SESSION: Cursors = {"a": (1, 10), "b": (2, 20)}
EPOCHS = {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("said", "clean", "expected"),
    [
        (None, True, {"a": 10, "b": 20}),
        (None, False, {"a": 10, "b": 20}),
        ({"a": 7}, True, {"a": 7, "b": 20}),
        ({"a": 12, "b": 3}, True, {"a": 10, "b": 3}),
        ({"a": 12, "b": 3}, False, {"a": 12, "b": 3}),
        ({"c": 5}, True, {"a": 10, "b": 20}),
        ({}, True, {"a": 10, "b": 20}),
    ],
)
def test_a_client_rewinds_and_is_only_believed_when_nobody_knows_better(
    said: dict[str, int] | None, clean: bool, expected: dict[str, int]
) -> None:
    """API 7.4: never advance past the session, unless it lost track (a killed worker)."""
    claimed = None if said is None else EventId({n: (0, seq) for n, seq in said.items()}, None)
    found = resolve(SESSION, [], claimed, clean=clean, epochs=EPOCHS)
    assert {name: seq for name, (_, seq) in found.items()} == expected
    assert {name: epoch for name, (epoch, _) in found.items()} == {"a": 1, "b": 2}


def test_a_partial_id_is_filled_from_the_map_its_stream_opened_with() -> None:
    openings: list[tuple[int, Cursors]] = [
        (3, {"a": (1, 1), "b": (2, 2)}),
        (4, {"a": (1, 5), "b": (2, 6)}),
    ]
    found = resolve(SESSION, openings, EventId({"a": (0, 7)}, 4), clean=True, epochs=EPOCHS)
    assert found == {"a": (1, 7), "b": (2, 6)}
    found = resolve(SESSION, openings, EventId({"b": (0, 4)}, 3), clean=True, epochs=EPOCHS)
    assert found == {"a": (1, 1), "b": (2, 4)}


def test_an_id_older_than_what_is_kept_rewinds_to_the_oldest_map() -> None:
    """Rather something twice than something lost."""
    openings: list[tuple[int, Cursors]] = [(3, {"a": (1, 1), "b": (2, 2)})]
    found = resolve(SESSION, openings, EventId({"b": (0, 1)}, 1), clean=True, epochs=EPOCHS)
    assert found == {"a": (1, 1), "b": (2, 1)}


@pytest.mark.parametrize("clean", [True, False])
def test_a_seq_of_the_former_topic_is_none_of_the_new_one(clean: bool) -> None:
    """The reader is told that the topic was made anew, whatever its seqs are."""
    session: Cursors = {"a": (4, 10)}
    found = resolve(session, [], EventId({"a": (0, 3)}, None), clean=clean, epochs={"a": 1})
    assert found == {"a": (1, 3)}


@pytest.mark.parametrize(("clean", "expected"), [(True, (1, 10)), (False, (4, 3))])
def test_a_seq_of_a_newer_topic_is_believed_when_the_session_lost_track(
    clean: bool, expected: tuple[int, int]
) -> None:
    session: Cursors = {"a": (1, 10)}
    found = resolve(session, [], EventId({"a": (4, 3)}, None), clean=clean, epochs={"a": 1})
    assert found == {"a": expected}


@pytest.mark.parametrize(("clean", "expected"), [(True, {}), (False, {"t:1": (7, 3)})])
def test_what_a_prefix_found_is_taken_from_the_id_when_the_session_lost_track(
    clean: bool, expected: Cursors
) -> None:
    claimed = EventId({"t:1": (7, 3), "u": (7, 3), "t:2": (0, 3)}, None)
    found = resolve(
        {}, [], claimed, clean=clean, epochs={}, is_followed=lambda name: name.startswith("t:")
    )
    assert found == expected

"""Idempotent producers (spec 1.5, decisions 2.1, 2.13)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.streams import NUMBER_MAX, Streams, decode_offset, failed, offset_of


def numbers(answer: Any) -> tuple[str | None, str | None]:
    return answer.headers.get("producer-epoch"), answer.headers.get("producer-seq")


def expectation(answer: Any) -> tuple[str | None, str | None]:
    headers = answer.headers
    return headers.get("producer-expected-seq"), headers.get("producer-received-seq")


@pytest.mark.parametrize("epoch", [0, 1, 7, NUMBER_MAX])
def test_an_unknown_producer_starts_at_zero(streams: Streams, name: str, epoch: int) -> None:
    """Spec 1.5: unknown id, seq 0, any epoch is accepted with 200."""
    streams.create(name)
    answer = streams.produce(name, b"x", epoch, 0)
    assert (answer.status_code, numbers(answer)) == (200, (str(epoch), "0"))
    assert offset_of(answer) == streams.head(name).headers["stream-next-offset"]


@pytest.mark.parametrize("seq", [1, 5, NUMBER_MAX])
def test_an_unknown_producer_may_not_start_later(streams: Streams, name: str, seq: int) -> None:
    """Spec 1.5, decision 2.13: 409, expected 0."""
    streams.create(name)
    answer = streams.produce(name, b"x", 0, seq)
    failed(answer, 409)
    assert expectation(answer) == ("0", str(seq))
    assert streams.read(name) == b""


def test_a_stale_epoch_is_403(streams: Streams, name: str) -> None:
    """Spec 1.5: with the stored epoch, whatever the sequence."""
    streams.create(name)
    assert streams.produce(name, b"x", 3, 0).status_code == 200
    for seq in (0, 1, 9):
        answer = streams.produce(name, b"y", 2, seq)
        failed(answer, 403)
        assert answer.headers["producer-epoch"] == "3"
    assert streams.read(name) == b"x"


@pytest.mark.parametrize("epoch", [1, 2, 50])
def test_a_new_epoch_begins_at_zero(streams: Streams, name: str, epoch: int) -> None:
    """Spec 1.5: epochs may skip; the state becomes (epoch, 0)."""
    streams.create(name)
    assert streams.produce(name, b"a", 0, 0).status_code == 200
    assert streams.produce(name, b"b", 0, 1).status_code == 200
    answer = streams.produce(name, b"c", epoch, 0)
    assert (answer.status_code, numbers(answer)) == (200, (str(epoch), "0"))
    assert streams.produce(name, b"d", epoch, 1).status_code == 200
    failed(streams.produce(name, b"e", 0, 2), 403)
    assert streams.read(name) == b"abcd"


@pytest.mark.parametrize("seq", [1, 2])
def test_a_new_epoch_may_not_begin_later(streams: Streams, name: str, seq: int) -> None:
    """Spec 1.5: 400, and the old epoch goes on."""
    streams.create(name)
    assert streams.produce(name, b"a", 0, 0).status_code == 200
    failed(streams.produce(name, b"b", 1, seq), 400)
    assert streams.produce(name, b"c", 0, 1).status_code == 200
    assert streams.read(name) == b"ac"


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_a_duplicate_is_204_with_the_highest_seq(streams: Streams, name: str, seq: int) -> None:
    """Spec 1.5, decision 2.1: the body is ignored, Stream-Next-Offset is there."""
    streams.create(name)
    for number in range(3):
        tail = offset_of(streams.produce(name, b"%d" % number, 0, number))
    answer = streams.produce(name, b"something else", 0, seq)
    assert (answer.status_code, numbers(answer)) == (204, ("0", "2"))
    assert offset_of(answer) == tail
    assert streams.read(name) == b"012"


@pytest.mark.parametrize("seq", [2, 9])
def test_a_gap_is_409_with_both_numbers(streams: Streams, name: str, seq: int) -> None:
    """Spec 1.5: expected and received; nothing is appended."""
    streams.create(name)
    assert streams.produce(name, b"a", 0, 0).status_code == 200
    answer = streams.produce(name, b"b", 0, seq)
    failed(answer, 409)
    assert expectation(answer) == ("1", str(seq))
    assert streams.produce(name, b"c", 0, 1).status_code == 200
    assert streams.read(name) == b"ac"


BAD_NUMBERS = ["1abc", "0xyz", "1e3", "-1", "+1", "0x1", "1.0", "", str(2**53), "9" * 40, "٣"]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("header", ["producer_epoch", "producer_seq"])
def test_a_bad_number_is_400(streams: Streams, name: str, header: str, value: str) -> None:
    """Spec 1.4 step 1, decision 2.13: digits only, at most 2^53-1."""
    streams.create(name)
    triple = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0", header: value}
    sent = {key.replace("_", "-").encode(): text.encode() for key, text in triple.items()}
    sent[b"content-type"] = b"text/plain"
    failed(streams.request("POST", streams.path(name), content=b"x", headers=sent), 400)
    assert streams.read(name) == b""


TRIPLE = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
PARTIAL = [
    {key: TRIPLE[key] for key in keys}
    for keys in (
        ("producer_id",),
        ("producer_epoch",),
        ("producer_seq",),
        ("producer_id", "producer_epoch"),
        ("producer_id", "producer_seq"),
        ("producer_epoch", "producer_seq"),
    )
] + [{**TRIPLE, "producer_id": ""}]


@pytest.mark.parametrize("headers", PARTIAL, ids="+".join)
@pytest.mark.parametrize("closing", [None, "true"])
def test_a_partial_triple_is_400(
    streams: Streams, name: str, headers: dict[str, str], closing: str | None
) -> None:
    """Spec 1.4 step 1, 3: an empty Producer-Id is present, and 400; close-only is no exception."""
    streams.create(name)
    failed(streams.post(name, b"" if closing else b"x", stream_closed=closing, **headers), 400)
    assert "stream-closed" not in streams.head(name).headers


def test_producers_do_not_know_each_other(streams: Streams, name: str) -> None:
    """Spec 1.5: the scope is the stream and the producer's id."""
    streams.create(name)
    streams.create(f"{name}-b")
    for producer in ("p", "q", "P"):
        assert streams.produce(name, b"x", 0, 0, producer).status_code == 200
    assert streams.produce(f"{name}-b", b"x", 0, 0).status_code == 200
    assert streams.produce(name, b"y", 0, 1, "q").status_code == 200
    failed(streams.produce(name, b"y", 0, 2, "p"), 409)


def test_a_sequence_counts_requests(streams: Streams, name: str) -> None:
    """Spec 1.5: a batch of three messages is one number."""
    epoch, first = decode_offset(streams.json(name))
    for seq in range(2):
        answer = streams.produce(name, b"[1,2,3]", 0, seq, content_type="application/json")
        assert answer.status_code == 200
    assert decode_offset(offset_of(answer)) == (epoch, first + 6)


def test_a_deleted_stream_forgets_its_producers(streams: Streams, name: str) -> None:
    """Spec 1.5: state lives as long as the stream."""
    streams.create(name)
    assert streams.produce(name, b"x", 4, 0).status_code == 200
    assert streams.delete(name).status_code == 204
    streams.create(name)
    assert streams.produce(name, b"y", 0, 0).status_code == 200
    assert streams.read(name) == b"y"


def test_one_of_many_equal_requests_is_accepted(streams: Streams, name: str) -> None:
    """Spec 1.5: validation and append are serialised for a producer."""
    streams.create(name)
    for seq in range(5):
        call = lambda seq=seq: streams.produce(name, b"%d" % seq, 0, seq).status_code  # noqa: E731
        assert sorted(streams.together([call] * 8)) == [200] + 7 * [204]
    assert streams.read(name) == b"01234"

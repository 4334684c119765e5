"""POST: append, and the order of its checks (spec 1.4, decisions 2.1, 2.17)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.streams import (
    BYTES,
    JSON,
    TEXT,
    Streams,
    decode_offset,
    failed,
    is_closed,
    offset_of,
)


def test_an_append_is_204_with_the_tail(streams: Streams, name: str) -> None:
    """Spec 1.4 step 10: 204 without producer headers, an empty body, the new tail."""
    streams.create(name)
    answer = streams.post(name, b"a")
    assert (answer.status_code, answer.content) == (204, b"")
    assert offset_of(answer) == streams.head(name).headers["stream-next-offset"]
    assert "stream-closed" not in answer.headers and "producer-seq" not in answer.headers


def test_bytes_come_back_in_order(streams: Streams, name: str) -> None:
    """Spec 1.1: order is total and bytes never change."""
    parts = [bytes([number]) * number for number in range(1, 40)]
    streams.create(name, *parts, content_type=BYTES)
    assert streams.read(name) == b"".join(parts)


def test_a_chunked_body_is_one_append(streams: Streams, name: str) -> None:
    """Spec 1.4: chunked bodies must work."""

    def body() -> Iterator[bytes]:
        yield b"one "
        yield b"two"

    start = streams.create(name)
    answer = streams.post(name, body(), content_type=TEXT)
    assert decode_offset(offset_of(answer))[1] == decode_offset(start)[1] + 1
    assert streams.read(name) == b"one two"


def test_a_json_batch_moves_by_its_entries(streams: Streams, name: str) -> None:
    """Decision 2.17: a batch of ten moves n by ten; a byte append moves it by one."""
    epoch, first = decode_offset(streams.json(name))
    answer = streams.post(name, b"[0,1,2,3,4,5,6,7,8,9]", content_type=JSON)
    assert decode_offset(offset_of(answer)) == (epoch, first + 10)


@pytest.mark.parametrize("body, kind", [(b"x", TEXT), (b"1", JSON)])
def test_a_missing_stream_is_404(streams: Streams, name: str, body: bytes, kind: str) -> None:
    """Spec 1.4 step 2."""
    failed(streams.post(name, body, content_type=kind), 404)


def test_bad_producer_headers_come_before_existence(streams: Streams, name: str) -> None:
    """Spec 1.4 step 1 before step 2."""
    failed(streams.post(name, b"x", producer_id="p"), 400)


def test_existence_comes_before_an_empty_body(streams: Streams, name: str) -> None:
    """Spec 1.4 step 2 before step 3."""
    failed(streams.post(name), 404)


@pytest.mark.parametrize("kind", [None, TEXT])
def test_an_empty_body_is_400(streams: Streams, name: str, kind: str | None) -> None:
    """Spec 1.4 step 3."""
    streams.create(name)
    failed(streams.post(name, content_type=kind), 400)


def test_an_empty_body_is_400_on_a_closed_stream_too(streams: Streams, name: str) -> None:
    """Spec 1.4 step 3 before step 5."""
    streams.create(name, stream_closed="true")
    failed(streams.post(name, content_type=TEXT), 400)


def test_a_body_needs_a_content_type(streams: Streams, name: str) -> None:
    """Spec 1.4 step 4, on an open and on a closed stream."""
    streams.create(name)
    failed(streams.post(name, b"x", content_type=None), 400)
    assert streams.post(name, stream_closed="true").status_code == 204
    failed(streams.post(name, b"x", content_type=None), 400)


WINS = [
    ("plain", {}),
    ("type", {"content_type": JSON}),
    ("seq", {"stream_seq": "1"}),
    ("stale seq", {"stream_seq": "0"}),
    ("producer gap", {"producer_id": "p", "producer_epoch": "0", "producer_seq": "7"}),
    ("and close", {"stream_closed": "true"}),
]


@pytest.mark.parametrize("headers", [row[1] for row in WINS], ids=[row[0] for row in WINS])
def test_closed_wins(streams: Streams, name: str, headers: dict[str, str]) -> None:
    """Spec 1.4 step 5: closed comes before type mismatch, sequences and producers."""
    streams.create(name)
    final = offset_of(streams.post(name, b"x", stream_seq="1", stream_closed="true"))
    answer = streams.post(name, b"y", **headers)
    failed(answer, 409)
    assert (is_closed(answer), answer.headers["stream-next-offset"]) == (True, final)
    assert streams.read(name) == b"x"


@pytest.mark.parametrize(
    "kind, status",
    [
        (TEXT, 204),
        ("TEXT/PLAIN", 204),
        ("text/plain; charset=utf-8", 204),
        (JSON, 409),
        (BYTES, 409),
    ],
)
def test_content_types_are_compared_without_parameters(
    streams: Streams, name: str, kind: str, status: int
) -> None:
    """Spec 1.4 step 6: lower-cased, parameters stripped."""
    streams.create(name)
    assert streams.post(name, b"x", content_type=kind).status_code == status
    assert streams.read(name) == (b"x" if status == 204 else b"")


def test_the_type_comes_before_the_producer(streams: Streams, name: str) -> None:
    """Spec 1.4 step 6 before step 7: a mismatch uses up no sequence."""
    streams.create(name)
    failed(streams.produce(name, b"1", 0, 0, content_type=JSON), 409)
    assert streams.produce(name, b"x", 0, 0).status_code == 200


def test_a_duplicate_with_its_seq_is_204(streams: Streams, name: str) -> None:
    """Spec 1.4 step 7 before step 8."""
    streams.create(name)
    assert streams.produce(name, b"x", 0, 0, stream_seq="5").status_code == 200
    assert streams.produce(name, b"x", 0, 0, stream_seq="5").status_code == 204
    failed(streams.produce(name, b"y", 0, 1, stream_seq="5"), 409)
    assert streams.produce(name, b"y", 0, 1, stream_seq="6").status_code == 200


@pytest.mark.parametrize(
    "last, following, status",
    [
        ("1", "2", 204),
        ("2", "10", 409),
        ("10", "2", 204),
        ("a", "B", 409),
        ("B", "a", 204),
        ("5", "5", 409),
        ("05", "1", 204),
        ("a", "aa", 204),
        ("aa", "a", 409),
    ],
)
def test_stream_seq_is_compared_byte_by_byte(
    streams: Streams, name: str, last: str, following: str, status: int
) -> None:
    """Spec 1.4 step 8: not above the last accepted is 409, and nothing is appended."""
    streams.create(name)
    assert streams.post(name, b"a", stream_seq=last).status_code == 204
    assert streams.post(name, b"b", stream_seq=following).status_code == status
    assert streams.read(name) == (b"ab" if status == 204 else b"a")


def test_an_append_without_seq_does_not_touch_it(streams: Streams, name: str) -> None:
    """Spec 1.4 step 8: the mark is the stream's, and only a seq moves it."""
    streams.create(name)
    assert streams.post(name, b"a", stream_seq="5").status_code == 204
    assert streams.post(name, b"b").status_code == 204
    failed(streams.post(name, b"c", stream_seq="5"), 409)


@pytest.mark.parametrize("body", [b"[]", b"[ ]", b"{", b"[1,]", b"nope", b"1 2", b"NaN", b"\xff"])
def test_bad_json_is_400_and_uses_up_nothing(streams: Streams, name: str, body: bytes) -> None:
    """Spec 1.4 step 9: neither the producer's sequence nor Stream-Seq is consumed."""
    tail = streams.json(name)
    failed(streams.produce(name, body, 0, 0, content_type=JSON, stream_seq="5"), 400)
    assert streams.head(name).headers["stream-next-offset"] == tail
    good = streams.produce(name, b"1", 0, 0, content_type=JSON, stream_seq="5")
    assert good.status_code == 200


def test_a_large_append_is_answered(streams: Streams, name: str) -> None:
    """Spec 1.4, 3: ten megabytes, below the default limit of 64 MiB, read back whole."""
    body = bytes(range(256)) * 40_960
    streams.create(name, content_type=BYTES)
    assert streams.post(name, body, content_type=BYTES).status_code == 204
    assert streams.read(name) == body

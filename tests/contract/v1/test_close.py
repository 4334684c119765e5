"""Closing a stream (spec 1.6, decision 2.14)."""

from __future__ import annotations

import pytest

from tests.harness.streams import JSON, Streams, data_of, failed, is_closed, offset_of


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
def test_close_only_is_204(streams: Streams, name: str, value: str) -> None:
    """Spec 1.6: with the tail and the flag, and again when repeated."""
    tail = streams.create(name, b"a")
    for _ in range(3):
        answer = streams.post(name, stream_closed=value)
        assert (answer.status_code, is_closed(answer), offset_of(answer)) == (204, True, tail)


@pytest.mark.parametrize("value", ["false", "1", "yes", "", "tru"])
def test_other_values_close_nothing(streams: Streams, name: str, value: str) -> None:
    """Decision 2.14: with a body it is an append, without one it is an empty append."""
    streams.create(name)
    failed(streams.post(name, stream_closed=value), 400)
    answer = streams.post(name, b"a", stream_closed=value)
    assert (answer.status_code, "stream-closed" in answer.headers) == (204, False)
    assert streams.post(name, b"b").status_code == 204


@pytest.mark.parametrize("kind", ["text/plain", JSON, "image/png", None])
def test_close_only_ignores_the_content_type(streams: Streams, name: str, kind: str | None) -> None:
    """Spec 1.6: any Content-Type is ignored."""
    streams.create(name)
    answer = streams.post(name, stream_closed="true", content_type=kind)
    assert (answer.status_code, is_closed(answer)) == (204, True)


def test_closing_a_missing_stream_is_404(streams: Streams, name: str) -> None:
    """Spec 1.6."""
    failed(streams.post(name, stream_closed="true"), 404)


def test_append_and_close_is_one_step(streams: Streams, name: str) -> None:
    """Spec 1.6: 204 with the flag; afterwards every append is 409 with the final offset."""
    streams.create(name, b"a")
    answer = streams.post(name, b"b", stream_closed="true")
    assert (answer.status_code, is_closed(answer)) == (204, True)
    again = streams.post(name, b"c", stream_closed="true")
    failed(again, 409)
    assert (is_closed(again), again.headers["stream-next-offset"]) == (True, offset_of(answer))
    assert streams.read(name) == b"ab"


@pytest.mark.parametrize(
    "headers", [{"content_type": JSON}, {"stream_seq": "4"}, {"stream_seq": "5"}]
)
def test_a_refused_append_does_not_close(
    streams: Streams, name: str, headers: dict[str, str]
) -> None:
    """Spec 1.4 step 10: append and close are one step, or none."""
    streams.create(name)
    assert streams.post(name, b"a", stream_seq="5").status_code == 204
    failed(streams.post(name, b"b", stream_closed="true", **headers), 409)
    assert streams.post(name, b"c").status_code == 204
    assert streams.read(name) == b"ac"


def test_bad_json_does_not_close(streams: Streams, name: str) -> None:
    """Spec 1.4 step 9: 400 and the stream is open."""
    streams.json(name)
    failed(streams.post(name, b"{", content_type=JSON, stream_closed="true"), 400)
    assert streams.post(name, b"1", content_type=JSON).status_code == 204


def test_a_producer_appends_and_closes(streams: Streams, name: str) -> None:
    """Spec 1.6: 200 with the flag; the retry of the closing triple is 204, another one 409."""
    streams.create(name)
    answer = streams.produce(name, b"a", 0, 0, stream_closed="true")
    assert (answer.status_code, is_closed(answer)) == (200, True)
    for body in (b"a", b"different"):
        retry = streams.produce(name, body, 0, 0, stream_closed="true")
        assert (retry.status_code, is_closed(retry)) == (204, True)
    for epoch, seq, producer in ((0, 1, "p"), (1, 0, "p"), (0, 0, "q")):
        other = streams.produce(name, b"b", epoch, seq, producer, stream_closed="true")
        failed(other, 409)
        assert is_closed(other)
    assert streams.read(name) == b"a"


def test_the_closing_triple_without_the_flag_is_204(streams: Streams, name: str) -> None:
    """Spec 1.4 step 5: it is the triple that counts."""
    streams.create(name)
    assert streams.produce(name, b"a", 0, 0, stream_closed="true").status_code == 200
    retry = streams.produce(name, b"a", 0, 0)
    assert (retry.status_code, is_closed(retry)) == (204, True)


def test_a_producer_closes_only(streams: Streams, name: str) -> None:
    """Spec 1.6: the sequence advances, the answer carries it, the retry is 204."""
    streams.create(name)
    assert streams.produce(name, b"a", 0, 0).status_code == 200
    for _ in range(2):
        answer = streams.produce(name, b"", 0, 1, stream_closed="true")
        assert (answer.status_code, is_closed(answer)) == (204, True)
        assert answer.headers["producer-epoch"] == "0"
        assert answer.headers["producer-seq"] == "1"
    other = streams.produce(name, b"", 0, 2, stream_closed="true")
    failed(other, 409)
    assert is_closed(other)


@pytest.mark.parametrize("epoch, seq, status", [(1, 0, 403), (2, 5, 409), (3, 1, 400)])
def test_a_fenced_producer_closes_nothing(
    streams: Streams, name: str, epoch: int, seq: int, status: int
) -> None:
    """Spec 1.5: the state machine runs for close-only too."""
    streams.create(name)
    assert streams.produce(name, b"a", 2, 0).status_code == 200
    failed(streams.produce(name, b"", epoch, seq, stream_closed="true"), status)
    assert streams.post(name, b"b").status_code == 204


def test_a_stale_epoch_on_a_closed_stream_is_refused(streams: Streams, name: str) -> None:
    """Spec 1.6: 403 or 409."""
    streams.create(name)
    assert streams.produce(name, b"a", 2, 0, stream_closed="true").status_code == 200
    assert streams.produce(name, b"b", 1, 0).status_code in (403, 409)


def test_closing_wakes_every_long_poll(streams: Streams, name: str) -> None:
    """Spec 1.6: each gets 204 with the flag, long before its time is up."""
    tail = streams.create(name, b"a")
    polls = [streams.waiting(name, tail) for _ in range(4)]
    assert streams.post(name, stream_closed="true").status_code == 204
    for poll in polls:
        answer = poll.result(4)
        assert (answer.status_code, is_closed(answer), offset_of(answer)) == (204, True, tail)


@pytest.mark.parametrize("round_", range(12))
def test_final_data_comes_before_the_closed_event(streams: Streams, name: str, round_: int) -> None:
    """Spec 1.6, 1.10: an append-and-close while a reader waits is data, then closed, then end."""
    streams.create(name, *[b"x"] * (round_ % 3))
    events = streams.events(name, "now")
    assert events.next().body["upToDate"] is True
    final = offset_of(streams.post(name, b"last", stream_closed="true"))
    data, control = data_of(events)
    assert data == b"last"
    bodies = [control, *(frame.body for frame in events.rest())]
    assert [body["streamNextOffset"] for body in bodies] == [final] * len(bodies)
    assert bodies[-1]["streamClosed"] is True and "streamCursor" not in bodies[-1]

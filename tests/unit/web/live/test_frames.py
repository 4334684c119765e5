"""Frames that the server sends on a WebSocket."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.reader import DiffPage
from topicsd.rules.floors import Tombstone
from topicsd.web.live import frames
from topicsd.web.live.pages import SharedPage

SUB: Any = SimpleNamespace(name="jobs", cursor=2)


def read(data: bytes) -> list[bytes]:
    """The text messages in what a server sent, as a client library understands it."""
    client = ClientProtocol(parse_uri("ws://test/"), state=OPEN, max_size=None)
    client.receive_data(data)
    texts = []
    for event in client.events_received():
        assert isinstance(event, Frame) and event.opcode is Opcode.TEXT and event.fin
        texts.append(bytes(event.data))
    assert client.parser_exc is None
    return texts


def read_one(data: bytes) -> Any:
    (text,) = read(data)
    return json.loads(text)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
def test_every_length_is_framed(size: int) -> None:
    """RFC 6455 5.2: the length in 7, 16 or 64 bits, always the shortest."""
    data = frames.frame(b"x" * size)
    assert [b"x" * size] == read(data)
    assert size + (2 if size < 126 else 4 if size < 65_536 else 10) == len(data)


def test_frames_follow_each_other() -> None:
    """Two frames in one write are two messages."""
    assert read(frames.frame(b"a") + frames.frame(b"b")) == [b"a", b"b"]


def test_an_id_is_echoed_as_it_came() -> None:
    """It is JSON text already; without one there is no member."""
    assert read(frames.message("pong", b"1e2"))[0] == b'{"op":"pong","request_id":1e2}'
    assert read(frames.message("pong", b""))[0] == b'{"op":"pong"}'
    assert read(frames.answer("ack", b"", b'"a":1'))[0] == b'{"op":"ack","a":1}'


@pytest.mark.parametrize(
    "error, expected",
    [
        (errors.unauthorized("no"), {"code": "unauthorized", "message": "no"}),
        (
            TopicsError("throttled", "busy", {"limit": "x"}, 1500),
            {
                "code": "throttled",
                "message": "busy",
                "detail": {"limit": "x"},
                "retry_after_ms": 1500,
            },
        ),
    ],
)
def test_refusals_have_the_codes_of_http(error: TopicsError, expected: dict[str, Any]) -> None:
    """Code and message, and what else the refusal says."""
    assert {"op": "error", "request_id": "p", **expected} == read_one(frames.error(error, b'"p"'))


def test_a_batch_is_framed_once_for_all() -> None:
    """Connections at the same position get the same bytes object."""
    records = b'{"$seq":1,"$ts":7,"data":1},{"$seq":2,"$ts":7,"data":2}'
    shared = SharedPage(DiffPage(records, 2, 2, 5, 1, None, 2))
    sent = frames.WsEncoder().record(SUB, shared, 0)
    assert sent is frames.WsEncoder().record(SUB, shared, 0)
    assert {
        "op": "record",
        "topic": "jobs",
        "records": json.loads(b"[%b]" % records),
        "from_seq": 0,
        "to_seq": 2,
        "head_seq": 5,
    } == read_one(sent)


def test_what_happens_to_a_topic_is_told() -> None:
    """API 7: each frame has exactly these members."""
    encoder = frames.WsEncoder()
    lost = Tombstone(1, 2, "cap", 2, 3, 5)
    assert {
        "op": "tombstone",
        "topic": "jobs",
        "reason": "from_seq_too_old",
        "gap_from": lost.gap_from,
        "gap_to": lost.gap_to,
        "earliest_seq": lost.earliest_seq,
        "head_seq": lost.head_seq,
    } == read_one(encoder.tombstone(SUB, lost, "from_seq_too_old"))
    assert read_one(encoder.caught_up(SUB, 5)) == {
        "op": "caught_up",
        "topic": "jobs",
        "head_seq": 5,
    }
    assert read_one(encoder.deleted(SUB, 5)) == {
        "op": "topic_deleted",
        "topic": "jobs",
        "head_seq": 5,
        "reason": "deleted",
    }


def test_advice_names_its_topics() -> None:
    """Pacing under pressure, and a topic for which there is no room."""
    encoder = frames.WsEncoder()
    paced = read_one(encoder.throttled(["a", "b"], 1500))
    assert (paced["op"], paced["code"], paced["retry_after_ms"]) == ("error", "throttled", 1500)
    assert paced["detail"]["topics"] == ["a", "b"]
    full = read_one(encoder.full("jobs", 256))
    assert full["detail"] == {"limit": "max_watch_topics", "max": 256, "topic": "jobs"}

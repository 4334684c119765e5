"""GET /v0/ws end to end: what one client does over one socket, with a real library."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.ws import Message, Socket, Sockets

COMMANDS = 2000
WINDOW = 16


def seqs_of(frame: Message) -> list[int]:
    return [record["$seq"] for record in frame.get("records", [])]


def test_a_client_that_always_writes_still_reads(topic: str, sockets: Sockets) -> None:
    """Decision 13: records follow their acks even while more writes are always under way."""
    socket = sockets.open()
    socket.ask("publish", topic=topic, records=[{"data": 0}])
    socket.subscribe(topic)
    start = len(socket.seen)
    for number in range(WINDOW):
        socket.send("publish", request_id=number, topic=topic, records=[{"data": number}])
    numbers = itertools.count(WINDOW)
    acknowledged = delivered = 1
    while delivered < 200:
        frame = socket.next()
        if frame["op"] == "ack":
            acknowledged = frame["last_seq"]
            # Never fewer than the window: the writes never pause.
            socket.send("publish", request_id=next(numbers), topic=topic, records=[{"data": 1}])
        else:
            assert frame["op"] == "record"
            assert seqs_of(frame) == list(range(delivered + 1, frame["to_seq"] + 1))
            assert frame["to_seq"] <= acknowledged
            delivered = frame["to_seq"]
    assert not [frame for frame in socket.seen[start:] if frame["op"] == "caught_up"]


def test_thousands_of_publishes_are_pipelined(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: more than may be under way at once; all acknowledged in order, none lost."""
    socket = sockets.open()
    acks = []
    for number in range(COMMANDS):
        socket.send("publish", request_id=number, topic=topic, records=[{"data": number}])
        if number >= 1000:
            acks.append(socket.next())
    while len(acks) < COMMANDS:
        acks.append(socket.next())
    assert [(ack["request_id"], ack["last_seq"]) for ack in acks] == [
        (number, number + 1) for number in range(COMMANDS)
    ]
    assert good(api.state(topic))["count"] == COMMANDS


def test_what_is_published_before_a_close_is_written(
    api: Api, topic: str, sockets: Sockets
) -> None:
    """A client may say all it has to say and leave."""
    socket = sockets.open()
    for number in range(500):
        socket.send("publish", topic=topic, records=[{"data": number}])
    socket.connection.close()
    assert good(api.state(topic))["count"] == 500


def test_a_subscribe_finds_what_was_published_before_it(topic: str, sockets: Sockets) -> None:
    """Commands are taken in order, though nothing is waited for."""
    socket = sockets.open()
    socket.send("publish", request_id="p1", topic=topic, records=[{"data": 1}])
    socket.send("subscribe", request_id="s", topic=topic, tail=False)
    socket.send("publish", request_id="p2", topic=topic, records=[{"data": 2}])
    assert socket.payloads(topic, 2) == [1, 2]
    ops = [frame["op"] for frame in socket.seen]
    assert ops.index("ack") < ops.index("record")
    assert ops.index("subscribed") < ops.index("record")


def test_payloads_travel_verbatim_both_ways(topic: str, sockets: Sockets) -> None:
    """API 0.3: what JSON allows comes back byte for byte."""
    payload = '{"b":1.50,"a":[1e2,123456789012345678901234567890.10,"\\ud800\\u0041é"],"c":"a\\nb"}'
    socket = sockets.open()
    records = f'"records":[{{"data":{payload}}}]'
    socket.send_text(f'{{{records},"request_id":"\\ud800","topic":"{topic}","op":"publish"}}')
    text = socket.connection.recv(5)
    assert isinstance(text, str) and '"request_id":"\\ud800"' in text
    socket.send("subscribe", topic=topic)
    socket.connection.recv(5)
    record = socket.connection.recv(5)
    assert isinstance(record, str) and f'"data":{payload}' in record


@pytest.mark.parametrize("fields", [{"topics": ["A"]}, {"topics": {"A": {}}}, {"topic": "A"}])
def test_topics_are_left_in_every_form(
    api: Api, topic: str, sockets: Sockets, fields: dict[str, Any]
) -> None:
    """A name, a list or a map; the answer lists what was followed."""
    good(api.put(topic), 201)
    named = json.loads(json.dumps(fields).replace("A", topic))
    socket = sockets.open()
    socket.subscribe(topic)
    for expected in ([topic], []):
        assert socket.ask("unsubscribe", request_id="u", **named) == {
            "op": "unsubscribed",
            "request_id": "u",
            "topics": expected,
        }
    assert socket.ask("unsubscribe")["code"] == "invalid_request"


def test_a_prefix_is_left_with_its_topics(api: Api, topic: str, sockets: Sockets) -> None:
    """Our extension: those that came through it, and not the one that was named."""
    for name in ("a", "b"):
        good(api.put(f"{topic}:{name}"), 201)
    socket = sockets.open()
    socket.send("subscribe", prefixes=[f"{topic}:"])
    for _ in range(2):
        socket.until("caught_up")
    socket.subscribe(f"{topic}:b")
    left = socket.ask("unsubscribe", prefixes=[f"{topic}:"])
    assert left["topics"] == [f"{topic}:a"]
    for name in ("a", "b", "c"):
        api.append(f"{topic}:{name}", name)
    assert socket.payloads(f"{topic}:b", 1) == ["b"]
    assert socket.is_quiet(0.05)


def test_the_topics_of_a_socket_are_bounded(launch: Callable[..., Server]) -> None:
    """API 7.2: max_watch_topics in all, whatever they were subscribed with."""
    server = launch(TOPICS_MAX_WATCH_TOPICS="3")
    with Sockets(server) as sockets:
        for name in ("p:1", "p:2", "q:1", "q:2"):
            good(sockets.api.put(name), 201)
        socket = sockets.open()
        for name in ("p:1", "p:2", "q:1", "q:1"):
            socket.subscribe(name)
        assert _refusal(socket.ask("subscribe", topic="q:2")) == ("invalid_request", 3)
        assert _refusal(socket.ask("subscribe", prefixes=["q:"])) == ("invalid_request", 3)
        assert socket.ask("subscribe", prefixes=["p:"])["op"] == "subscribed"
        for _ in range(2):
            socket.until("caught_up")
        good(sockets.api.put("p:3"), 201)
        full = socket.next()
        assert full["detail"] == {"limit": "max_watch_topics", "max": 3, "topic": "p:3"}


def _refusal(frame: Message) -> tuple[str, int]:
    assert frame["op"] == "error", frame
    return frame["code"], frame["detail"]["max"]


def test_a_strong_subscription_is_served(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7.2: consistency strong delivers what is synced, and says caught_up once."""
    good(api.put(topic), 201)
    socket = sockets.open()
    socket.subscribe(topic, consistency="strong")
    for number in range(20):
        good(api.append(topic, number))
    got: list[int] = []
    while len(got) < 20:
        frame = socket.next()
        assert frame["op"] == "record"
        got += seqs_of(frame)
    assert got == list(range(1, 21))
    assert socket.ask("subscribe", topic=topic, consistency="weak")["code"] == "invalid_request"


def test_a_message_above_the_limit_closes_the_socket(guarded: Server) -> None:
    """RFC 6455: 1009, at the limit of a body."""
    with Sockets(guarded, "full-key") as sockets:
        socket = sockets.open()
        fits = '{"op":"ping","note":"%s"}'
        socket.send_text(fits % ("x" * (100_000 - len(fits % ""))))
        assert socket.next() == {"op": "pong"}
        code = _send_and_lose(socket, "x" * 100_001)
        assert code == 1009


def _send_and_lose(socket: Socket, text: str) -> int | None:
    try:
        socket.send_text(text)
        socket.connection.recv(5)
    except ConnectionClosed:
        return socket.connection.close_code
    raise AssertionError("the socket stayed open")

"""GET /v0/ws (API 7, the WebSocket part): subscribe, unsubscribe, ping, and what comes back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request, exchange
from tests.harness.server import Server
from tests.harness.waiting import until
from tests.harness.ws import Message, Sockets

TOMBSTONE = {"op", "topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"}


def failed(frame: Message, code: str, request_id: str | None = None) -> Message:
    """An error frame in the seed's shape, with the id of its command if that had one."""
    assert frame["op"] == "error", frame
    assert frame["code"] == code, frame
    assert isinstance(frame["message"], str) and frame["message"]
    assert frame.get("request_id") == request_id
    assert ("request_id" in frame) is (request_id is not None)
    return frame


def delivered(frames: list[Message], topic: str) -> list[Any]:
    return [
        record["data"]
        for frame in frames
        if frame["op"] == "record" and frame["topic"] == topic
        for record in frame["records"]
    ]


def test_a_subscription_is_answered_and_followed(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: subscribed, the backlog, caught_up, then live records; each exactly in shape."""
    good(api.append(topic, 1, 2, 3), 201)
    socket = sockets.open()
    subscribed = socket.ask("subscribe", request_id="s1", topic=topic, from_seq=1)
    assert subscribed == {
        "op": "subscribed",
        "request_id": "s1",
        "topics": {topic: {"from_seq": 1, "head_seq": 3, "earliest_seq": 1}},
    }
    record = socket.next()
    assert set(record) == {"op", "topic", "from_seq", "to_seq", "head_seq", "records"}
    assert (record["from_seq"], record["to_seq"], record["head_seq"]) == (1, 3, 3)
    assert [set(entry) for entry in record["records"]] == [{"$seq", "$ts", "data"}] * 2
    assert socket.next() == {"op": "caught_up", "topic": topic, "head_seq": 3}
    good(api.append(topic, 4))
    written = time.monotonic()
    live = socket.next()
    assert time.monotonic() - written < 0.5
    assert (live["op"], live["from_seq"], live["to_seq"], live["head_seq"]) == ("record", 3, 4, 4)
    assert socket.is_quiet(0.05)


def test_records_are_those_of_a_diff(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: the same read path as HTTP; payloads byte for byte, options as in a watch."""
    body = b'{"records":[{"data":{"b":1.50,"a":1e2},"tag":"t","node":"n","meta":{"m":"1"}}]}'
    good(api.write_bytes(topic, body), 201)
    for fields in ({}, {"include_tags": True}, {"include_meta": False}):
        socket = sockets.open()
        socket.send("subscribe", topic=topic, **fields)
        socket.until("subscribed")
        text = socket.connection.recv(5)
        page = api.diff(topic, **fields).content.decode()
        records = page[page.index("[") : page.index(',"next_from_seq"')]
        assert isinstance(text, str) and f'"records":{records}' in text
    socket = sockets.open()
    socket.send("subscribe", topic=topic, include_data=False, include_tags=True)
    assert set(socket.until("record")["records"][0]) == {"$seq", "$ts", "$tag", "$node"}


def test_tail_starts_at_the_head(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: tail ignores from_seq."""
    good(api.append(topic, 1, 2), 201)
    socket = sockets.open()
    subscribed = socket.subscribe(topic, tail=True, from_seq=1)
    assert subscribed["topics"][topic]["from_seq"] == 2
    good(api.append(topic, 3))
    assert socket.payloads(topic, 1) == [3]


def test_many_topics_are_subscribed_at_once(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: a topics map as in POST /v0/watch."""
    first, second = f"{topic}-a", f"{topic}-b"
    good(api.append(first, 1, 2), 201)
    good(api.append(second, 1, 2), 201)
    socket = sockets.open()
    socket.send(
        "subscribe", request_id="s", topics={first: {"from_seq": 1}, second: {"tail": True}}
    )
    subscribed = socket.until("subscribed", request_id="s")
    assert {name: entry["from_seq"] for name, entry in subscribed["topics"].items()} == {
        first: 1,
        second: 2,
    }
    for _ in range(2):
        socket.until("caught_up")
    assert (delivered(socket.seen, first), delivered(socket.seen, second)) == ([2], [])


def test_a_socket_follows_several_subscriptions(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: commands add up; each has its own options."""
    first, second = f"{topic}-a", f"{topic}-b"
    socket = sockets.open()
    for name in (first, second):
        good(api.put(name), 201)
        socket.subscribe(name, node="me" if name == first else "you")
    for name in (first, second):
        good(api.append(name, "of me", node="me"))
        good(api.append(name, "of you", node="you"))
    assert socket.payloads(first, 1) == ["of you"]
    while delivered(socket.seen, second) != ["of me"]:
        socket.next()


def test_batches_are_bounded(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: limit and max_batch_bytes as in a watch; caught_up on backlog to live only."""
    good(api.append(topic, *["x" * 1000] * 20), 201)
    for fields, most in (({"limit": 6}, 6), ({"max_batch_bytes": 5000}, 6)):
        socket = sockets.open()
        socket.subscribe(topic, **fields)
        counts = [len(frame["records"]) for frame in socket.seen if frame["op"] == "record"]
        assert (sum(counts), max(counts) <= most, len(counts) > 3) == (20, True, True)
    good(api.append(topic, "live"))
    assert socket.next()["op"] == "record"
    assert socket.is_quiet(0.05)


def test_subscribing_again_replaces(api: Api, topic: str, sockets: Sockets) -> None:
    """Decision 13: the new cursor and options count, nothing is delivered twice over."""
    good(api.append(topic, 1, 2, 3), 201)
    socket = sockets.open()
    socket.subscribe(topic)
    start = len(socket.seen)
    socket.subscribe(topic, from_seq=2)
    assert delivered(socket.seen[start:], topic) == [3]
    good(api.append(topic, 4))
    assert socket.payloads(topic, 1) == [4]
    assert socket.is_quiet(0.05)


def test_unsubscribing_ends_a_topic(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: no record of it comes afterwards; others go on."""
    other = f"{topic}-other"
    socket = sockets.open()
    for name in (topic, other):
        good(api.put(name), 201)
        socket.subscribe(name)
    socket.send("unsubscribe", request_id="u1", topic=topic)
    answers = socket.fence()
    assert all(frame["op"] == "unsubscribed" for frame in answers)
    assert all(frame["request_id"] == "u1" for frame in answers)
    good(api.append(topic, "unheard"))
    good(api.append(other, "heard"))
    assert socket.payloads(other, 1) == ["heard"]
    assert socket.is_quiet(0.05)
    assert delivered(socket.seen, topic) == []
    socket.subscribe(topic)
    assert delivered(socket.seen, topic) == ["unheard"]


def test_unsubscribing_from_nothing_is_no_harm(topic: str, sockets: Sockets) -> None:
    """API 7: it is so already."""
    socket = sockets.open()
    socket.send("unsubscribe", request_id="u", topic=topic)
    assert all(frame.get("code") != "internal" for frame in socket.fence())


def test_pings_are_answered(sockets: Sockets) -> None:
    """API 7, decision 13: pong with the id, and without one when there was none."""
    socket = sockets.open()
    assert socket.ask("ping", request_id="ping-1") == {"op": "pong", "request_id": "ping-1"}
    assert socket.ask("ping") == {"op": "pong"}


def test_protocol_pings_are_answered(sockets: Sockets) -> None:
    """RFC 6455: a ping frame gets its pong."""
    assert sockets.open().connection.ping(b"liveness").wait(5)


def test_loss_is_told(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: a tombstone on connect and on a live socket, before the records behind it."""
    good(api.put(topic, {"cap_records": 2}), 201)
    good(api.append(topic, 1, 2, 3, 4))
    socket = sockets.open()
    socket.send("subscribe", topic=topic)
    socket.until("subscribed")
    tombstone = socket.next()
    assert TOMBSTONE <= set(tombstone) <= TOMBSTONE | {"missed_estimate"}
    assert (tombstone["op"], tombstone["reason"]) == ("tombstone", "from_seq_too_old")
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (1, 2)
    assert socket.payloads(topic, 2) == [3, 4]
    socket.until("caught_up")
    good(api.append(topic, 5, 6, 7))
    live = socket.next()
    assert (live["op"], live["reason"]) == ("tombstone", "cap")
    assert (live["gap_from"], live["gap_to"], live["head_seq"]) == (5, 5, 7)
    assert socket.payloads(topic, 2) == [6, 7]


def test_a_cursor_beyond_the_head_is_a_recreated_topic(
    api: Api, topic: str, sockets: Sockets
) -> None:
    """Decision 10: and everything that is there follows."""
    good(api.append(topic, 1), 201)
    socket = sockets.open()
    socket.send("subscribe", topic=topic, from_seq=9)
    assert socket.until("tombstone")["reason"] == "recreated"
    assert socket.payloads(topic, 1) == [1]


def test_a_deleted_topic_is_told(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: topic_deleted at once, terminal for the topic; the socket stays."""
    good(api.append(topic, 1, 2), 201)
    socket = sockets.open()
    socket.subscribe(topic)
    good(api.delete(topic))
    frame = socket.next(1)
    assert set(frame) == {"op", "topic", "head_seq", "reason"}
    assert (frame["op"], frame["topic"], frame["reason"]) == ("topic_deleted", topic, "deleted")
    good(api.append(topic, "new"), 201)
    assert socket.fence() == []
    socket.subscribe(topic)
    assert delivered(socket.seen, topic)[-1:] == ["new"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic": 5},
        {"topic": ""},
        {"topic": "a/b"},
        {"topics": {}},
        {"topics": []},
        {"topics": {"a": 5}},
        {"topics": {"a": {"from_seq": -1}}},
        {"from_seq": -1},
        {"from_seq": "1"},
        {"tail": 1},
        {"limit": "1"},
        {"max_batch_bytes": -1},
        {"node": 5},
        {"include_data": 1},
        {"include_tags": "yes"},
        {"include_meta": 0},
    ],
)
def test_a_malformed_subscription_is_refused(
    api: Api, topic: str, sockets: Sockets, fields: dict[str, Any]
) -> None:
    """API 7: an error with the command's id; the socket and its subscriptions stay."""
    good(api.put(topic), 201)
    names = {} if not fields or fields.keys() & {"topic", "topics"} else {"topic": topic}
    socket = sockets.open()
    socket.subscribe(topic)
    failed(socket.ask("subscribe", request_id="s", **names, **fields), "invalid_request", "s")
    good(api.append(topic, 1))
    assert socket.payloads(topic, 1) == [1]


def test_an_unknown_topic_is_not_found(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: all or nothing, and nothing is created."""
    good(api.append(topic, 1), 201)
    absent = f"{topic}-absent"
    socket = sockets.open()
    failed(socket.ask("subscribe", request_id="s", topic=absent), "topic_not_found", "s")
    both = {topic: {}, absent: {}}
    failed(socket.ask("subscribe", request_id="t", topics=both), "topic_not_found", "t")
    assert socket.fence() == []
    refused(api.state(absent), 404, "topic_not_found")


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"op":"ping"', '{"op":}', "{}{}"])
def test_bad_json_is_answered_and_the_socket_kept(sockets: Sockets, text: str) -> None:
    """Decision 13: invalid_json."""
    socket = sockets.open()
    socket.send_text(text)
    failed(socket.next(), "invalid_json")
    assert socket.ask("ping") == {"op": "pong"}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "null",
        "5",
        '"ping"',
        '{"op":5}',
        '{"op":null}',
        '{"op":"dance"}',
        '{"op":"PING"}',
    ],
)
def test_an_unknown_command_is_answered_and_the_socket_kept(sockets: Sockets, text: str) -> None:
    """Decision 13: invalid_request."""
    socket = sockets.open()
    socket.send_text(text)
    failed(socket.next(), "invalid_request")
    assert socket.ask("ping") == {"op": "pong"}


def test_the_id_of_an_unknown_command_is_echoed(sockets: Sockets) -> None:
    """API 7: the client can tell which of its commands failed."""
    failed(sockets.open().ask("dance", request_id="d1"), "invalid_request", "d1")


def test_binary_messages_are_answered_and_the_socket_kept(sockets: Sockets) -> None:
    """Decision 13: unsupported_message."""
    socket = sockets.open()
    for data in (b"", b"\x00\xff", b'{"op":"ping"}'):
        socket.send_bytes(data)
        failed(socket.next(), "unsupported_message")
    assert socket.ask("ping") == {"op": "pong"}


def test_fragmented_messages_are_one(api: Api, topic: str, sockets: Sockets) -> None:
    """RFC 6455: a message may come in pieces."""
    socket = sockets.open()
    socket.connection.send(['{"op":"pi', 'ng","request', '_id":"x"}'])
    assert socket.next() == {"op": "pong", "request_id": "x"}


def test_a_request_without_upgrade_is_refused(server: Server) -> None:
    """RFC 6455: 426 or 400, in the error envelope, and the connection is an ordinary one."""
    answer = exchange(server.address, build_request("GET", "/v0/ws"))
    assert answer.status in (400, 426)
    assert answer.json()["error"]["code"] == "invalid_request"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-WebSocket-Version": "13"},
        {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": "short", "Sec-WebSocket-Version": "13"},
    ],
)
def test_a_bad_handshake_is_refused(server: Server, headers: dict[str, str]) -> None:
    """RFC 6455 4.2: without a good key or with another version there is no socket."""
    head = {"Upgrade": "websocket", "Connection": "Upgrade", **headers}
    answer = exchange(server.address, build_request("GET", "/v0/ws", None, head))
    assert answer.status in (400, 426)


def test_closing_is_clean(api: Api, topic: str, sockets: Sockets) -> None:
    """RFC 6455: a close frame is echoed; what the socket held is free."""
    good(api.put(topic), 201)
    before = api.metrics()["sse_connections"]
    socket = sockets.open()
    socket.subscribe(topic)
    assert api.metrics()["sse_connections"] == before + 1
    socket.connection.close(1000, "done")
    assert socket.connection.close_code == 1000
    until(lambda: api.metrics()["sse_connections"] == before, why="the slot to be free")
    good(api.append(topic, 1))


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403), ("", 101)],
)
def test_pages_of_other_origins_need_keys(server: Server, origin: str, status: int) -> None:
    """A browser sends Origin and lets any page open sockets on this machine (API 12)."""
    host = "{}:{}".format(*server.address)
    headers = {
        "Host": host,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Origin": origin or f"http://{host}",
    }
    with RawConnection(server.address) as connection:
        connection.send(build_request("GET", "/v0/ws", None, headers))
        assert connection.receive_head()[0] == status

"""publish on /v0/ws (API 7): an append over the socket, with the options of HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.ws import Message, Socket, Sockets

AsKey = Callable[[str], Api]
SocketsAs = Callable[[str], Sockets]


def published(frame: Message, last_seq: int) -> Message:
    assert frame["op"] == "ack", frame
    assert (frame["last_seq"], frame["head_seq"]) == (last_seq, last_seq)
    assert isinstance(frame["performance"]["fsync_ms"], int | float)
    return frame


def failed(frame: Message, code: str) -> Message:
    assert (frame["op"], frame["code"]) == ("error", code), frame
    assert frame["request_id"] == "p"
    assert isinstance(frame["message"], str) and frame["message"]
    return frame


def publish(socket: Socket, topic: str, *payloads: Any, **fields: Any) -> Message:
    records = [{"data": data} for data in payloads]
    return socket.ask("publish", request_id="p", topic=topic, records=records, **fields)


def test_a_publish_is_acknowledged(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: ack with the id, the topic and where the log ends now; the records are there."""
    socket = sockets.open()
    ack = published(publish(socket, topic, 1, 2, return_seqs=False), 2)
    assert (ack["request_id"], ack["topic"]) == ("p", topic)
    assert "seqs" not in ack
    published(publish(socket, topic, 3), 3)
    page = good(api.diff(topic))
    assert [record["data"] for record in page["records"]] == [1, 2, 3]


def test_seqs_are_returned_on_request(topic: str, sockets: Sockets) -> None:
    """API 7, decision 5: return_seqs is a field here."""
    ack = publish(sockets.open(), topic, "a", "b", return_seqs=True)
    assert ack["seqs"] == [1, 2]


def test_records_have_all_their_fields(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: the same record fields as POST /v0/topics/:topic; payloads are kept verbatim."""
    socket = sockets.open()
    record = '{"data":{"b":1.50,"a":1e2},"tag":"t","node":"n","meta":{"m":"1"}}'
    text = '{"op":"publish","topic":"%s","node":"batch","records":[%s,{"data":2}]}'
    socket.send_text(text % (topic, record))
    assert "request_id" not in published(socket.next(), 2)
    answer = api.diff(topic, include_tags=True)
    first, second = good(answer)["records"]
    assert b'"data":{"b":1.50,"a":1e2}' in answer.content
    assert (first["$tag"], first["$node"], first["meta"]) == ("t", "n", {"m": "1"})
    assert second["$node"] == "batch"


def test_the_ack_precedes_the_records_it_causes(api: Api, topic: str, sockets: Sockets) -> None:
    """Decision 13: on one socket, always in this order."""
    good(api.put(topic), 201)
    socket = sockets.open()
    socket.subscribe(topic)
    start = len(socket.seen)
    for number in range(1, 51):
        socket.send("publish", request_id=str(number), topic=topic, records=[{"data": number}])
    while [r["data"] for f in socket.seen[start:] for r in f.get("records", [])][-1:] != [50]:
        socket.next()
    acknowledged = 0
    for frame in socket.seen[start:]:
        if frame["op"] == "ack":
            acknowledged = frame["last_seq"]
        else:
            assert frame["to_seq"] <= acknowledged
    acks = [frame["request_id"] for frame in socket.seen[start:] if frame["op"] == "ack"]
    assert acks == [str(number) for number in range(1, 51)]


def test_an_fsync_publish_waits_for_its_sync(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: the same write path, so the same durability, with the records after the ack."""
    good(api.put(topic, {"durability": "fsync"}), 201)
    socket = sockets.open()
    socket.subscribe(topic)
    assert published(publish(socket, topic, 1), 1)["performance"]["fsync_ms"] > 0
    assert socket.payloads(topic, 1) == [1]


def test_own_records_are_not_echoed(api: Api, topic: str, sockets: Sockets) -> None:
    """API 4.5: a node that publishes and subscribes hears the others only."""
    good(api.put(topic), 201)
    mine, other = sockets.open(), sockets.open()
    mine.subscribe(topic, node="u017")
    other.subscribe(topic, node="u018")
    published(publish(mine, topic, "hello", node="u017"), 1)
    assert other.payloads(topic, 1) == ["hello"]
    published(publish(other, topic, "you too", node="u018"), 2)
    assert mine.payloads(topic, 1) == ["you too"]


def test_a_retried_publish_appends_once(api: Api, topic: str, sockets: Sockets) -> None:
    """API 0.8: idempotency_key is the topic's, whichever door is used."""
    first, second = sockets.open(), sockets.open()
    published(publish(first, topic, "once", idempotency_key="k"), 1)
    published(publish(second, topic, "once", idempotency_key="k"), 1)
    assert good(api.append(topic, "once", idempotency_key="k"))["deduped"] is True
    assert good(api.state(topic))["head_seq"] == 1


def test_create_and_config_are_as_in_http(api: Api, topic: str, sockets: Sockets) -> None:
    """API 2: create false refuses an absent topic; config is that of a topic it makes."""
    socket = sockets.open()
    failed(publish(socket, topic, 1, create=False), "topic_not_found")
    refused(api.state(topic), 404, "topic_not_found")
    published(publish(socket, topic, 1, create=True, config={"cap_records": 2}), 1)
    assert good(api.state(topic))["config"]["cap_records"] == 2
    published(publish(socket, topic, 2, config={"cap_records": 9}), 2)
    assert good(api.state(topic))["config"]["cap_records"] == 2
    published(publish(socket, topic, 3, disable_backpressure=True), 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"records": None},
        {"records": []},
        {"records": 5},
        {"records": [5]},
        {"records": [{}]},
        {"records": [{"data": 1, "tag": 5}]},
        {"records": [{"data": 1, "meta": []}]},
        {"node": 5},
        {"create": "yes"},
        {"config": 5},
        {"config": {"type": "heap"}},
        {"idempotency_key": 5},
        {"idempotency_key": "k" * 257},
        {"disable_backpressure": 1},
        {"return_seqs": "no"},
        {"topic": None},
        {"topic": 5},
        {"topic": "a/b"},
    ],
)
def test_a_malformed_publish_is_refused(
    api: Api, topic: str, sockets: Sockets, fields: dict[str, Any]
) -> None:
    """API 2, 7: an error with the id, nothing appended, the socket kept."""
    command = {"request_id": "p", "topic": topic, "records": [{"data": 1}], **fields}
    socket = sockets.open()
    failed(
        socket.ask("publish", **{k: v for k, v in command.items() if v is not None}),
        "invalid_request",
    )
    refused(api.state(topic), 404, "topic_not_found")
    published(publish(socket, topic, "good"), 1)


def test_a_full_topic_refuses(api: Api, topic: str, sockets: Sockets) -> None:
    """API 0.10: the codes of HTTP, without the status."""
    good(api.put(topic, {"cap_records": 1, "discard": "reject"}), 201)
    socket = sockets.open()
    published(publish(socket, topic, 1), 1)
    failed(publish(socket, topic, 2), "topic_full")


def test_limits_are_those_of_http(sockets_as: SocketsAs, topic: str) -> None:
    """API 2: records in a batch, bytes of a record, bytes of tag, node and meta."""
    socket = sockets_as("full").open()
    failed(publish(socket, topic, *range(11)), "batch_too_large")
    failed(publish(socket, topic, "x" * 2000), "record_too_large")
    for record in ({"tag": "x" * 21}, {"node": "x" * 11}, {"meta": {"m": "x" * 300}}):
        frame = socket.ask("publish", request_id="p", topic=topic, records=[{"data": 1, **record}])
        assert frame["op"] == "error" and frame["code"] in ("invalid_request", "record_too_large")
    published(publish(socket, topic, *range(10)), 10)


def test_each_command_is_authorized_by_itself(
    as_key: AsKey, sockets_as: SocketsAs, topic: str
) -> None:
    """API 7: opening takes no scope; subscribe needs read, publish write, config admin too."""
    good(as_key("full").append(topic, 0), 201)
    for name in ("full", "read", "write", "delete", "admin", "rw"):
        socket = sockets_as(name).open()
        assert socket.ask("ping") == {"op": "pong"}
        frame = socket.ask("subscribe", request_id="p", topic=topic, tail=True)
        if name in ("full", "read", "rw"):
            assert frame["op"] == "subscribed"
            socket.until("caught_up")
            socket.send("unsubscribe", topic=topic)
            socket.fence()
        else:
            failed(frame, "forbidden")
        frame = publish(socket, topic, name)
        if name in ("full", "write", "rw"):
            assert frame["op"] == "ack"
        else:
            failed(frame, "forbidden")
        frame = publish(socket, f"{topic}-{name}", 1, config={"cap_records": 5})
        if name == "full":
            assert frame["op"] == "ack"
        else:
            failed(frame, "forbidden")
            refused(as_key("full").state(f"{topic}-{name}"), 404, "topic_not_found")


def test_every_name_is_checked_against_the_prefixes(
    as_key: AsKey, sockets_as: SocketsAs, topic: str
) -> None:
    """API 7: of subscribe, of a topics map, of publish; existing or not."""
    mine, other = f"tenant42:{topic}", f"tenant43:{topic}"
    for name in (mine, other):
        good(as_key("full").put(name), 201)
    socket = sockets_as("tenant").open()
    socket.subscribe(mine)
    published(publish(socket, mine, 1), 1)
    assert socket.payloads(mine, 1) == [1]
    for name in (other, f"absent-{topic}"):
        failed(socket.ask("subscribe", request_id="p", topic=name), "forbidden")
        failed(socket.ask("subscribe", request_id="p", topics={mine: {}, name: {}}), "forbidden")
        failed(publish(socket, name, 1), "forbidden")
    dead = publish(socket, f"{mine}-q", 1, config={"dead_letter": other})
    failed(dead, "forbidden")

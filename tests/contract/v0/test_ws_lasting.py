"""Sockets of /v0/ws over time (API 7, 11): keys, caps, slow clients, crashes, shutdown."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.harness.answers import Answer, good, refused
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import Watching
from tests.harness.waiting import until
from tests.harness.ws import Socket, Sockets

AsKey = Callable[[str], Api]
SocketsAs = Callable[[str], Sockets]


def throttled(answer: Answer | None, limit: str, maximum: int) -> None:
    assert answer is not None, "the stream opened"
    assert refused(answer, 429, "throttled")["detail"] == {"limit": limit, "max": maximum}
    assert int(answer.headers["retry-after"]) >= 1


def test_opening_needs_a_valid_key(guarded: Server) -> None:
    """API 7: 401 at the upgrade, for a missing or unknown key; ?token= is not taken here."""
    with Sockets(guarded) as nobody:
        refused(nobody.refusal(), 401, "unauthorized")
        refused(nobody.refusal(Authorization="Bearer nobody"), 401, "unauthorized")
        refused(nobody.refusal("/v0/ws?token=full-key"), 401, "unauthorized")


def test_without_keys_anybody_may_open(api: Api, topic: str, sockets: Sockets) -> None:
    """API 0.2: in dev mode the header is ignored."""
    socket = sockets.open(Authorization="Bearer whatever")
    assert socket.ask("ping") == {"op": "pong"}


def test_sockets_and_streams_share_their_caps(launch: Callable[..., Server]) -> None:
    """API 7, 11: the same long-lived connection limits, per key and for the instance."""
    server = launch(
        TOPICS_API_KEYS="alice-key,bob-key",
        TOPICS_MAX_SSE_CONNECTIONS="3",
        TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="2",
    )
    with (
        Sockets(server, "alice-key") as alice,
        Sockets(server, "bob-key") as bob,
        Watching(server, "alice-key") as watching,
        Watching(server, "bob-key") as bobs,
    ):
        good(alice.api.append("t", 1), 201)
        first = alice.open()
        watching.watch(["t"])
        for _ in range(2):
            throttled(alice.refusal(), "max_sse_connections_per_key", 2)
            throttled(
                watching.attempt(watching.create(["t"])).answer, "max_sse_connections_per_key", 2
            )
        bob.open()
        throttled(bob.refusal(), "max_sse_connections", 3)
        throttled(bobs.attempt(bobs.create(["t"])).answer, "max_sse_connections", 3)
        assert alice.api.metrics()["sse_connections"] == 3
        first.close()
        until(lambda: alice.api.metrics()["sse_connections"] == 2, why="a free slot")
        # A client that vanishes without a close frame frees its slot, too.
        second = alice.open()
        second.connection.socket.close()
        until(lambda: alice.api.metrics()["sse_connections"] == 2, why="a free slot")
        alice.open()


def test_a_socket_is_no_request_in_flight(launch: Callable[..., Server]) -> None:
    """API 11: bounded by the connection caps, not by max_inflight_per_key."""
    server = launch(TOPICS_API_KEYS="alice-key", TOPICS_MAX_INFLIGHT_PER_KEY="1")
    with Sockets(server, "alice-key") as alice:
        opened = [alice.open() for _ in range(3)]
        good(alice.api.append("t", 1), 201)
        for socket in opened:
            assert socket.ask("publish", topic="t", records=[{"data": 2}])["op"] == "ack"


def test_a_stopping_server_closes_with_1001(launch: Callable[..., Server]) -> None:
    """API 7: going away, and the process is gone within five seconds."""
    server = launch()
    with Sockets(server) as sockets:
        good(sockets.api.put("t"), 201)
        opened = [sockets.open() for _ in range(5)]
        for socket in opened:
            socket.subscribe("t")
        started = time.monotonic()
        server.terminate()
        assert [socket.wait_closed() for socket in opened] == [1001] * 5
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 5


def test_a_killed_engine_is_survived(mortal: Server, topic: str) -> None:
    """Architecture 3: the socket stays; publishes are refused meanwhile, records go on after."""
    with Sockets(mortal) as sockets:
        api = sockets.api
        good(api.put(topic, {"durability": "fsync"}), 201)
        socket = sockets.open()
        socket.subscribe(topic)
        good(api.append(topic, 1))
        assert socket.payloads(topic, 1) == [1]
        mortal.crash()
        if mortal.shape.single_process:
            assert socket.wait_closed() == 1006
            socket = sockets.open()
            socket.subscribe(topic, from_seq=1)
        good(api.append(topic, 2))
        assert socket.payloads(topic, 1) == [2]
        assert _published(socket, topic, 3)
        assert socket.payloads(topic, 1) == [3]


def _published(socket: Socket, topic: str, number: int) -> bool:
    frame = socket.ask("publish", topic=topic, records=[{"data": number}])
    assert frame["op"] == "ack", frame
    return True


def test_a_slow_socket_loses_nothing(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7.6: a durable topic lags; commands are answered when the client reads again."""
    payload = "x" * 100_000
    good(api.put(topic), 201)
    socket = sockets.open()
    socket.subscribe(topic)
    for number in range(100):
        good(api.append(topic, f"{number:03d}{payload}"))
    assert [data[:3] for data in socket.payloads(topic, 100, 10)] == [
        f"{number:03d}" for number in range(100)
    ]


def test_a_socket_that_does_not_read_is_closed(launch: Callable[..., Server]) -> None:
    """API 7.6, 11: past the timeout it is gone, its slot is free, and nobody else noticed."""
    server = launch(TOPICS_SLOW_CONSUMER_TIMEOUT_MS="300", TOPICS_WATCH_BUFFER_GRACE_MS="100")
    with Sockets(server) as sockets:
        api = sockets.api
        for _ in range(5):
            assert api.append("flood", *["x" * 100_000] * 20).status_code in (200, 201)
        sockets.open(receive_bytes=4096).send("subscribe", topic="flood")
        reader = sockets.open()
        reader.send("subscribe", topic="flood")
        assert len(reader.payloads("flood", 100, 10)) == 100
        until(lambda: api.metrics()["sse_connections"] == 1, 20, why="the other to be closed")
        good(api.append("flood", "on"))
        assert reader.payloads("flood", 1) == ["on"]


def test_many_sockets_hear_every_record(api: Api, topic: str, sockets: Sockets) -> None:
    """API 7: on whichever workers they are, each record once and in order."""
    good(api.put(topic), 201)
    opened = [sockets.open() for _ in range(20)]
    for socket in opened:
        socket.subscribe(topic)
    for number in range(10):
        good(api.append(topic, number))
    assert [socket.payloads(topic, 10) for socket in opened] == [list(range(10))] * 20


@pytest.mark.parametrize("count", [300])
def test_commands_may_be_pipelined(topic: str, sockets: Sockets, count: int) -> None:
    """API 7: each is answered, in order."""
    socket = sockets.open()
    for number in range(count):
        socket.send("ping", request_id=str(number))
    assert [socket.next()["request_id"] for _ in range(count)] == [str(n) for n in range(count)]


def test_prefixes_are_followed_over_a_socket(api: Api, topic: str, sockets: Sockets) -> None:
    """Our extension, as in a watch: existing and future topics, with match."""
    good(api.append(f"{topic}:old", 1), 201)
    socket = sockets.open()
    subscribed = socket.ask("subscribe", request_id="s", prefixes=[f"{topic}:"])
    assert (subscribed["op"], set(subscribed["topics"])) == ("subscribed", {f"{topic}:old"})
    assert socket.payloads(f"{topic}:old", 1) == [1]
    good(api.append(f"{topic}:new", "first"), 201)
    assert socket.payloads(f"{topic}:new", 1) == ["first"]


def test_match_filters_over_a_socket(api: Api, topic: str, sockets: Sockets) -> None:
    """Our extension, as in a watch."""
    records = [{"data": number, "tag": f"k:{number % 2}"} for number in range(6)]
    good(api.write(topic, records), 201)
    socket = sockets.open()
    socket.send("subscribe", topics={topic: {"match": "k:1"}})
    assert socket.payloads(topic, 3) == [1, 3, 5]


def test_prefixes_over_a_socket_keep_to_the_key(sockets_as: SocketsAs) -> None:
    """API 0.2: a key follows only names that it may touch, all of them."""
    socket = sockets_as("tenant-reader").open()
    frame = socket.ask("subscribe", request_id="s", prefixes=["tenant"])
    assert (frame["op"], frame["code"], frame["request_id"]) == ("error", "forbidden", "s")
    assert socket.ask("subscribe", prefixes=["tenant42:"])["op"] == "subscribed"

"""The protocol of a WebSocket: what clients may send, and how it ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.web.fakes import World
from tests.unit.web.live.raw_socket import (
    BINARY,
    CLOSE,
    CONT,
    HANDSHAKE,
    PING,
    PONG,
    TEXT,
    RawSocket,
    Sent,
    build,
    command,
    opened,
    publish,
)
from tests.unit.web.running import Running, head, running
from topicsd.web.live import socket as live_socket
from topicsd.web.v0 import ws

PINGED = build(TEXT, b'{"op":"ping"}')
PONGED = {"op": "pong"}
LIMIT = 5000


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with running(World(max_body_bytes=LIMIT)) as started:
        yield started


@pytest.fixture
def raw(served: Running) -> Iterator[RawSocket]:
    with opened(served) as socket:
        yield socket


@pytest.fixture
def alone() -> Iterator[Running]:
    """A server of the test's own."""
    with running(World(slow_consumer_timeout_ms=1000, stream_buffer_bytes=4096)) as started:
        yield started


def close_frame(code: int) -> bytes:
    return build(CLOSE, code.to_bytes(2, "big"))


def test_the_handshake_is_accepted(served: Running) -> None:
    """RFC 6455 4.2.2: the example's key has the example's answer."""
    with served.connect() as connection:
        raw = RawSocket(connection)
        raw.send(head(*HANDSHAKE))
        answer = raw.read_head().lower()
    assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in answer
    assert b"upgrade: websocket" in answer
    assert b"sec-websocket-extensions" not in answer


@pytest.mark.parametrize("absent", HANDSHAKE[2:])
def test_every_line_of_the_handshake_is_needed(served: Running, absent: str) -> None:
    """A request without one of them is refused in our envelope."""
    lines = [line for line in HANDSHAKE if line != absent]
    if absent.startswith("Connection"):
        lines.append("Connection: close")
    answer = served.exchange(head(*lines))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_request"' in answer


def test_what_comes_with_the_handshake_is_heard(served: Running) -> None:
    """A client that does not wait for the answer loses nothing."""
    with opened(served, PINGED) as raw:
        assert raw.message() == PONGED


def test_messages_may_arrive_byte_by_byte(raw: RawSocket) -> None:
    """Nothing depends on how TCP cuts."""
    for byte in PINGED:
        raw.send(bytes([byte]))
    assert raw.message() == PONGED


def test_many_messages_may_arrive_at_once(raw: RawSocket) -> None:
    """Each is answered, in order."""
    raw.send(b"".join(command("ping", request_id=number) for number in range(50)))
    assert list(range(50)) == [raw.message()["request_id"] for _ in range(50)]


@pytest.mark.parametrize("cuts", [(1,), (0,), (5, 5), (1, 2, 3, 4), (13,)])
def test_a_message_may_come_in_fragments(raw: RawSocket, cuts: tuple[int, ...]) -> None:
    """RFC 6455 5.4: also empty ones; control frames may stand between them."""
    text = b'{"op":"ping"}'
    edges = [0, *cuts, len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(edges)]
    for number, part in enumerate(parts):
        fin = number == len(parts) - 1
        raw.send(build(CONT if number else TEXT, part, fin=fin))
        if not fin:
            raw.send(build(PING, b"between"))
            assert Sent(PONG, b"between") == raw.next()
    assert raw.message() == PONGED


def test_a_character_may_be_cut_in_two(raw: RawSocket) -> None:
    """UTF-8 is judged when the message is whole."""
    text = '{"op":"ping","request_id":"é"}'.encode()
    cut = text.index("é".encode()) + 1
    raw.send(build(TEXT, text[:cut], fin=False) + build(CONT, text[cut:]))
    assert raw.message() == {"op": "pong", "request_id": "é"}


def test_binary_messages_are_refused_and_the_socket_kept(raw: RawSocket) -> None:
    """Decision 13, also in fragments."""
    raw.send(build(BINARY, b"\xff") + build(BINARY, b"", fin=False) + build(CONT, b"x") + PINGED)
    assert [raw.message()["code"] for _ in range(2)] == ["unsupported_message"] * 2
    assert raw.message() == PONGED


@pytest.mark.parametrize(
    "data, code",
    [
        (build(TEXT, b"{}", masked=False), 1002),
        (build(TEXT, b"{}", reserved=4), 1002),
        (build(CONT, b"{}"), 1002),
        (build(TEXT, b"{", fin=False) + build(TEXT, b"}"), 1002),
        (build(PING, b"", fin=False), 1002),
        (build(PING, b"x" * 126), 1002),
        (build(3, b""), 1002),
        (build(11, b""), 1002),
        (build(CLOSE, b"x"), 1002),
        (build(CLOSE, (1005).to_bytes(2, "big")), 1002),
        (build(TEXT, b'"\xff"'), 1007),
        (build(TEXT, b'"\xc3', fin=False) + build(CONT, b'"'), 1007),
        (build(TEXT, b'"\xed\xa0\x80"'), 1007),
        (build(TEXT, b"x" * (LIMIT + 1)), 1009),
        (build(TEXT, b"x" * LIMIT, fin=False) + build(CONT, b"x"), 1009),
        (build(TEXT, b"x" * 100_000), 1009),
    ],
)
def test_who_breaks_the_rules_is_told_and_hung_up_on(
    raw: RawSocket, data: bytes, code: int
) -> None:
    """RFC 6455 7.4.1: 1002 protocol, 1007 text that is none, 1009 too large."""
    raw.send(data + PINGED)
    assert code == raw.next().code
    assert raw.is_over()


def test_a_message_of_the_largest_size_is_heard(raw: RawSocket) -> None:
    """The limit is that of a body, to the byte."""
    text = b'{"op":"ping","note":"%b"}'
    filler = b"x" * (LIMIT - len(text % b""))
    assert raw.ask(build(TEXT, text % filler)) == PONGED
    half = len(text) // 2
    whole = text % filler
    assert raw.ask(build(TEXT, whole[:half], fin=False) + build(CONT, whole[half:])) == PONGED


@pytest.mark.parametrize("data", [close_frame(1000), build(CLOSE, b"")])
def test_a_close_is_answered_and_the_connection_ends(raw: RawSocket, data: bytes) -> None:
    """RFC 6455 5.5.1: the same code comes back, and nothing after it."""
    raw.send(data + PINGED)
    assert raw.next().opcode == CLOSE
    assert raw.is_over()


def test_what_was_said_before_a_close_is_done_first(alone: Running) -> None:
    """More publishes than may be under way, then Close at once: all are written and answered."""
    count = ws.IN_FLIGHT_MAX + 50
    with opened(alone) as raw:
        raw.send(b"".join(publish("a", number) for number in range(count)) + close_frame(1000))
        acks = [raw.message() for _ in range(count)]
        assert list(range(1, count + 1)) == [ack["last_seq"] for ack in acks]
        assert raw.next().code == 1000
        assert raw.is_over()


def test_no_more_is_read_than_may_be_under_way(alone: Running) -> None:
    """A client that sends faster than the engine answers waits, and then goes on."""
    port = alone.world.port
    port.hold = True
    count = 3 * ws.IN_FLIGHT_MAX
    with opened(alone) as raw:
        raw.send(b"".join(publish("a", number) for number in range(count)))
        alone.until(lambda: len(port.commands) == ws.IN_FLIGHT_MAX)
        alone.call(lambda: None)
        assert len(port.commands) == ws.IN_FLIGHT_MAX
        alone.call(lambda: setattr(port, "hold", False))
        alone.call(port.release)
        acks = [raw.message()["last_seq"] for _ in range(count)]
    assert list(range(1, count + 1)) == acks


def test_large_messages_under_way_are_bounded_by_their_bytes(
    alone: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few large publishes hold the reader back like many small ones."""
    monkeypatch.setattr(ws, "IN_FLIGHT_BYTES_MAX", 30_000)
    port = alone.world.port
    port.hold = True
    with opened(alone) as raw:
        raw.send(b"".join(publish("a", "x" * 10_000) for _ in range(6)))
        alone.until(lambda: len(port.commands) == 3)
        alone.call(lambda: setattr(port, "hold", False))
        alone.call(port.release)
        assert [raw.message()["last_seq"] for _ in range(6)] == [1, 2, 3, 4, 5, 6]


def test_a_lost_connection_ends_what_it_had_under_way(alone: Running) -> None:
    """Nothing stays counted as in flight, or as a stream."""
    port, gate = alone.world.port, alone.world.gate
    port.hold = True
    with opened(alone) as raw:
        raw.send(publish("a", 1) + publish("b", 2))
        alone.until(lambda: gate.in_flight == 2)
    alone.until(lambda: gate.in_flight == 0)
    alone.until(lambda: not alone.app.ctx.context.streams)


def test_a_stopping_server_answers_first_and_closes_then(alone: Running) -> None:
    """Publishes under way are acknowledged, new ones refused, and then 1001."""
    port = alone.world.port
    port.hold = True
    with opened(alone) as raw:
        raw.send(publish("a", 1))
        alone.until(lambda: len(port.commands) == 1)

        def stop() -> None:
            alone.world.gate.draining = True
            for stream in tuple(alone.app.ctx.context.streams):
                stream.shut_down()

        alone.call(stop)
        assert raw.ask(publish("b", 2))["code"] == "shutting_down"
        assert raw.ask(command("subscribe", topic="a"))["code"] == "shutting_down"
        alone.call(port.release)
        assert raw.message()["op"] == "ack"
        assert raw.next() == Sent(CLOSE, (1001).to_bytes(2, "big") + b"server_shutting_down")
        raw.send(close_frame(1001))
        assert raw.is_over()


def test_an_answer_to_our_close_is_not_waited_for_forever(
    alone: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that ignores it is hung up on."""
    monkeypatch.setattr(live_socket, "CLOSE_WAIT_S", 0.05)
    with opened(alone) as raw:
        alone.until(lambda: bool(alone.app.ctx.context.streams))
        alone.call(lambda: [each.shut_down() for each in tuple(alone.app.ctx.context.streams)])
        assert raw.next().code == 1001
        assert raw.is_over()


def test_a_silent_client_is_pinged_and_then_hung_up_on(
    alone: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Liveness: a ping after a silence, 1011 when it stays unanswered."""
    monkeypatch.setattr(live_socket, "PING_S", 0.1)
    with opened(alone) as raw:
        assert Sent(PING, b"") == raw.next()
        assert raw.next().code == 1011
        raw.send(close_frame(1011))
        assert raw.is_over()


def test_a_client_that_answers_pings_stays(alone: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it does."""
    monkeypatch.setattr(live_socket, "PING_S", 0.1)
    with opened(alone) as raw:
        for _ in range(4):
            assert Sent(PING, b"") == raw.next()
            raw.send(build(PONG, b""))
        assert raw.ask(PINGED) == PONGED


def test_a_client_that_does_not_read_is_hung_up_on(alone: Running) -> None:
    """API 7.6: an error and 1013 after the timeout; what it missed it did not get."""
    alone.world.store.create("a")
    with opened(alone) as raw:
        raw.ask(command("subscribe", topic="a"))
        payload: Any = "x" * 200_000
        # Published by the socket itself, which never reads the records.
        raw.send(b"".join(publish("a", payload) for _ in range(30)))
        alone.until(lambda: not alone.app.ctx.context.streams)
        frames = [raw.next()]
        while frames[-1].opcode == TEXT:
            frames.append(raw.next())
        assert b'"code":"request_timeout"' in frames[-2].payload
        assert frames[-1].code == 1013

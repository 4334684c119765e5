"""Connections: reuse, pipelining, backpressure, hang-ups, timeouts, through both doors."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.unit.web.fakes import World
from tests.unit.web.running import Running, head, post, read_all, read_response, running
from topicsd.model import errors
from topicsd.web.lane import PENDING_BYTES_MAX, LaneProtocol

ONE = b'{"records":[{"data":1}]}'
CLOSE = "Connection: close"


@pytest.fixture(params=[True, False], ids=["lane", "sanic"])
def served(request: pytest.FixtureRequest) -> Iterator[Running]:
    with running(World(max_body_bytes=10_000_000), lane=request.param) as server:
        yield server


def test_keep_alive_connections_are_reused(served: Running) -> None:
    """Many requests, one connection, in order."""
    with served.connect() as connection:
        for number in range(1, 50):
            connection.sendall(post("/v0/topics/a", ONE))
            assert json.loads(read_response(connection)[1])["first_seq"] == number


def test_pipelined_requests_are_answered_in_order(served: Running) -> None:
    """Also when each one waits for the engine."""
    with served.connect() as connection:
        connection.sendall(post("/v0/topics/a", ONE) * 200 + post("/v0/topics/a", ONE, CLOSE))
        seqs = [int(seq) for seq in re.findall(rb'"first_seq":(\d+)', read_all(connection))]
    assert seqs == list(range(1, 202))


def test_a_body_in_many_pieces_arrives(served: Running) -> None:
    """Megabytes over several reads."""
    body = b'{"records":[' + b",".join([b'{"data":"%b"}' % (b"x" * 100_000)] * 50) + b"]}"
    with served.connect() as connection:
        connection.sendall(post("/v0/topics/a", body))
        answer = json.loads(read_response(connection)[1])
    assert answer["count"] == 50


def test_bytes_behind_a_waiting_request_are_held(served: Running) -> None:
    """Reading pauses; nothing is lost or reordered."""
    served.world.port.hold = True
    follower = post("/v0/topics/a", b'{"records":[{"data":"%b"}]}' % (b"y" * 1000))
    count = 2 * PENDING_BYTES_MAX // len(follower)
    with served.connect() as connection:
        connection.sendall(post("/v0/topics/a", ONE))
        served.until(lambda: bool(served.world.port.held))
        connection.sendall(follower * count)
        served.world.port.hold = False
        served.call(served.world.port.release)
        for number in range(1, count + 2):
            assert json.loads(read_response(connection)[1])["first_seq"] == number


def test_a_client_that_does_not_read_is_waited_for(served: Running) -> None:
    """Write backpressure stops the serving, not the server."""
    body = b'{"records":[{"data":"%b"}]}' % (b"z" * 500_000)
    with served.connect() as connection:
        connection.sendall(post("/v0/topics/a", body))
        read_response(connection)
        connection.sendall(post("/v0/topics/a/diff", b"{}") * 40)
        assert served.exchange(post("/v0/topics/b", ONE, CLOSE)).startswith(b"HTTP/1.1 201")
        for _ in range(40):
            assert len(json.loads(read_response(connection)[1])["records"]) == 1


def test_a_hang_up_ends_a_waiting_request(served: Running) -> None:
    """The long-poll of a client that went away is cancelled at once."""
    world = served.world
    world.store.create("a")
    connection = served.connect()
    connection.sendall(post("/v0/topics/a/diff", b'{"wait_ms":30000}'))
    served.until(lambda: len(world.port.wakeups) == 1)
    assert world.gate.in_flight == 1
    connection.close()
    served.until(lambda: len(world.port.wakeups) == 0 and world.gate.in_flight == 0)


def test_a_reset_during_an_append_harms_nobody(
    served: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply has nowhere to go; the next client is served; nothing is logged."""
    world = served.world
    world.port.hold = True
    connection = served.connect()
    connection.sendall(post("/v0/topics/a", ONE))
    served.until(lambda: bool(world.port.held))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    served.until(lambda: world.gate.in_flight == 0)
    world.port.hold = False
    served.call(world.port.release)
    assert served.exchange(post("/v0/topics/a", ONE, CLOSE)).startswith(b"HTTP/1.1 200")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_wakeup_reaches_a_waiting_connection(served: Running) -> None:
    """Long-poll over one connection, append over another."""
    world = served.world
    world.store.create("a")
    with served.connect() as waiting:
        waiting.sendall(post("/v0/topics/a/diff", b'{"wait_ms":30000}'))
        served.until(lambda: len(world.port.wakeups) == 1)
        served.exchange(post("/v0/topics/a", ONE, CLOSE))
        assert len(json.loads(read_response(waiting)[1])["records"]) == 1


def test_draining_closes_connections_after_their_answer(served: Running) -> None:
    """New requests get 503 and the end of the connection."""
    with served.connect() as connection:
        connection.sendall(post("/v0/topics/a", ONE))
        assert b"keep-alive" in read_response(connection)[0]
        served.world.gate.draining = True
        connection.sendall(post("/v0/topics/a", ONE))
        response = read_all(connection)
    assert b"503 Service Unavailable" in response
    assert b"connection: close" in response
    assert b"shutting_down" in response


def test_an_oversized_body_is_refused_before_it_is_sent(served: Running) -> None:
    """413 from Content-Length alone."""
    with served.connect() as connection:
        connection.sendall(
            head(
                "POST /v0/topics/a HTTP/1.1",
                "Content-Type: application/json",
                "Content-Length: 10000001",
            )
        )
        assert b"413 " in read_response(connection)[0]


def test_a_refused_expectation_closes_without_100_continue(served: Running) -> None:
    """The client is told the refusal, not to go on."""
    request = head(
        "POST /v0/topics/a HTTP/1.1",
        "Content-Type: text/plain",
        "Content-Length: 10",
        "Expect: 100-continue",
    )
    response = served.exchange(request)
    assert response.startswith(b"HTTP/1.1 415 ")
    assert b"connection: close" in response


@pytest.fixture(params=[True, False], ids=["lane", "sanic"])
def hasty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr("topicsd.web.app.REQUEST_TIMEOUT_S", 0.3)
    with running(
        World(),
        lane=request.param,
        request_timeout=0.3,
        response_timeout=0.6,
        keep_alive_timeout=0.3,
    ) as server:
        yield server


def test_an_idle_connection_is_closed(hasty: Running) -> None:
    """Keep-alive timeout, counted from the last answer."""
    with hasty.connect() as connection:
        connection.sendall(post("/v0/topics/a", ONE))
        read_response(connection)
        assert read_all(connection) == b""


def test_a_body_that_stops_arriving_times_out(hasty: Running) -> None:
    """408 request_timeout, then the end."""
    response = hasty.exchange(post("/v0/topics/a", ONE)[:-3])
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in response


def test_an_answer_that_does_not_come_times_out(hasty: Running) -> None:
    """503 not_ready, then the end; the handler is gone."""
    hasty.world.port.hold = True
    response = hasty.exchange(post("/v0/topics/a", ONE))
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"not_ready" in response
    hasty.until(lambda: hasty.world.gate.in_flight == 0)


def test_waiting_is_not_idling(hasty: Running) -> None:
    """A long-poll longer than the keep-alive timeout is answered."""
    hasty.world.store.create("a")
    with hasty.connect() as connection:
        connection.sendall(post("/v0/topics/a/diff", b'{"wait_ms":450}'))
        assert b"200 OK" in read_response(connection)[0]


def test_a_connection_that_serves_is_not_closed_as_idle() -> None:
    """What Sanic asks of every connection when it stops."""
    with running(World()) as server, server.connect() as connection:
        server.world.port.hold = True
        connection.sendall(post("/v0/topics/a", ONE))
        server.until(lambda: bool(server.world.port.held))
        assert not server.call(lambda: any(p.close_if_idle() for p in _protocols(server)))
        server.call(server.world.port.release)
        assert b"201 Created" in read_response(connection)[0]


def _protocols(server: Running) -> list[LaneProtocol]:
    return [protocol for protocol in server.connections if isinstance(protocol, LaneProtocol)]


def test_a_failure_of_the_engine_is_an_envelope(served: Running) -> None:
    """Refusals cross the bridge and the lane alike."""
    served.world.port.failure = errors.storage_full("no space left")
    response = served.exchange(post("/v0/topics/a", ONE, CLOSE))
    assert response.startswith(b"HTTP/1.1 507 ")
    assert b"retry-after: 1\r\n" in response


def test_a_refused_body_is_dropped_and_the_connection_goes_on(served: Running) -> None:
    """A client that sends first and reads later gets its 413."""
    with served.connect() as connection:
        connection.sendall(post("/v0/topics/a", b"x" * 12_000_000))
        assert b"413 " in read_response(connection)[0]
        connection.sendall(post("/v0/topics/a", ONE))
        assert b"201 Created" in read_response(connection)[0]


def test_a_refused_client_that_falls_silent_is_hung_up_on(served: Running) -> None:
    """The announced body never comes; the connection does not stay open for it."""
    request = head(
        "POST /v0/topics/a HTTP/1.1",
        "Content-Type: text/plain",
        "Content-Length: 10",
    )
    assert served.exchange(request).startswith(b"HTTP/1.1 415 ")

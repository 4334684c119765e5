"""How a real server stops: quickly, cleanly, and at once when asked twice."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.crash.family import (
    Servers,
    api_is_draining,
    ask_every_worker,
    endless_request,
    family,
    read_all,
    write,
)
from tests.harness import processes
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.server import (
    SHAPES,
    TWO_WORKERS,
)
from tests.harness.waiting import until


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_idle_server_stops_within_two_seconds(servers: Servers, shape) -> None:
    """SIGTERM ends an idle server with exit code 0, open idle connections or not."""
    server = servers.start(shape)
    pids = family(server)
    with RawConnection(server.address) as connection:
        connection.request("GET", "/healthz")
        asked = time.monotonic()
        assert server.stop() == 0
    assert time.monotonic() - asked < 2
    assert not any(map(processes.is_alive, pids))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_open_long_poll_is_answered_by_a_stopping_server(servers: Servers, shape) -> None:
    """A 30 s long poll gets a proper answer when the server stops, and the stop is quick."""
    server = servers.start(shape)
    Api(server).put("quiet")
    with RawConnection(server.address) as connection:
        body = b'{"from_seq":0,"wait_ms":30000}'
        connection.send(build_request("POST", "/v0/topics/quiet/diff", body))
        assert connection.is_silent(0.2)
        asked = time.monotonic()
        server.terminate()
        assert connection.receive().status in (200, 503)
    assert server.wait_exit() == 0
    assert time.monotonic() - asked < 10


def test_stop_signal_to_the_whole_group_is_one_stop(servers: Servers) -> None:
    """Ctrl-C in a terminal reaches every process; the drain is as clean as ever."""
    server = servers.start(TWO_WORKERS)
    Api(server).put("quiet")
    with RawConnection(server.address) as connection:
        body = b'{"from_seq":0,"wait_ms":30000}'
        connection.send(build_request("POST", "/v0/topics/quiet/diff", body))
        assert connection.is_silent(0.2)
        os.killpg(server.process.pid, signal.SIGINT)
        assert connection.receive().status in (200, 503)
    assert server.wait_exit() == 0
    assert "Traceback" not in server.log()
    server.start()
    assert "recovered clean=true" in server.log()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_stuck_request_does_not_keep_the_server(servers: Servers, shape) -> None:
    """A body that never comes is abandoned: the server is gone within ten seconds."""
    server = servers.start(shape, TOPICS_DRAIN_TIMEOUT_MS="2000")
    with RawConnection(server.address) as connection:
        connection.send(endless_request())
        assert connection.is_silent(0.2)
        asked = time.monotonic()
        assert server.stop() == 0
    assert time.monotonic() - asked < 5


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_second_signal_ends_the_server_at_once(servers: Servers, shape) -> None:
    """Two SIGTERMs do not wait for anything, and acknowledged fsync data is there."""
    server = servers.start(shape)
    api = Api(server)
    assert write(api, "kept", 1) == 201
    pids = family(server)
    with RawConnection(server.address) as connection:
        # A request that never ends keeps the drain busy.
        connection.send(endless_request())
        assert connection.is_silent(0.2)
        server.terminate()
        until(lambda: api_is_draining(api), 5, why="the drain to begin")
        asked = time.monotonic()
        server.terminate()
        assert server.wait_exit() == 1
    assert time.monotonic() - asked < 1
    until(lambda: not any(map(processes.is_alive, pids)), 1)
    server.start()
    assert read_all(Api(server), "kept") == [1]


def test_frozen_worker_is_killed_when_its_time_is_up(servers: Servers) -> None:
    """A worker that cannot react does not stop the server from stopping."""
    server = servers.start(TWO_WORKERS, TOPICS_DRAIN_TIMEOUT_MS="500")
    frozen = min(ask_every_worker(server, 2, build_request("GET", "/healthz")))
    os.kill(frozen, signal.SIGSTOP)
    asked = time.monotonic()
    assert server.stop() == 1
    assert time.monotonic() - asked < 5
    assert not processes.is_alive(frozen)

"""The processes of a real server: what dies is replaced, what must die is gone.

Everything is observed from outside: pids, exit codes, signals, HTTP.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import httpx
import pytest

from tests.crash.family import (
    Servers,
    ask_every_worker,
    family,
    name_of,
    read_all,
    wait_for_workers,
    workers_of,
    write,
)
from tests.harness import processes
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.server import (
    ONE_WORKER,
    SHAPES,
    TWO_WORKERS,
)
from tests.harness.waiting import until


def test_processes_have_names_people_recognise(servers: Servers) -> None:
    """One main process, one engine, the workers asked for, and nothing else."""
    server = servers.start(TWO_WORKERS)
    wait_for_workers(server, 2)
    names = sorted(map(name_of, family(server)))
    assert names == ["topicsd-engine", "topicsd-main", "topicsd-worker", "topicsd-worker"]


def test_record_written_through_one_worker_is_read_through_the_other(servers: Servers) -> None:
    """Every connection, whichever worker serves it, sees the record at once."""
    server = servers.start(TWO_WORKERS)
    assert Api(server).append("shared", 7).status_code == 201
    request = build_request("POST", "/v0/topics/shared/diff", b"{}")
    answers = ask_every_worker(server, 2, request)
    assert [answer.json()["records"][0]["data"] for answer in answers.values()] == [7, 7]


def test_long_poll_is_woken_by_a_write_through_the_engine(servers: Servers) -> None:
    """A waiting diff answers as soon as somebody writes, long before its deadline."""
    server = servers.start(TWO_WORKERS)
    api = Api(server)
    api.put("news")
    with RawConnection(server.address, timeout=20) as connection:
        body = b'{"from_seq":0,"wait_ms":15000}'
        connection.send(build_request("POST", "/v0/topics/news/diff", body))
        assert connection.is_silent(0.2)
        written = time.monotonic()
        api.append("news", 1)
        assert connection.receive().json()["head_seq"] == 1
    assert time.monotonic() - written < 1


def test_killed_engine_is_replaced_and_nothing_acknowledged_is_lost(servers: Servers) -> None:
    """Workers stay, answer 503 meanwhile, and serve again by themselves."""
    server = servers.start(TWO_WORKERS)
    api = Api(server)
    workers = wait_for_workers(server, 2)
    acknowledged: list[int] = []
    statuses: set[int | None] = set()
    stop = threading.Event()

    def load() -> None:
        writer = Api(server)
        value = 0
        while not stop.is_set():
            value += 1
            status = write(writer, "durable", value)
            statuses.add(status)
            if status in (200, 201):
                acknowledged.append(value)
        writer.close()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(3):
            count = len(acknowledged)
            until(lambda n=count: len(acknowledged) > n + 20, 10, why="writes to flow")
            server.crash()
    finally:
        stop.set()
        thread.join()
    assert statuses <= {200, 201, 503}
    assert 503 in statuses
    assert workers_of(server) == workers
    stored = read_all(api, "durable")
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored)), "a write was applied twice"


def test_refusal_while_the_engine_is_away_says_when_to_retry(servers: Servers) -> None:
    """503 not_ready carries Retry-After and the replay progress."""
    server = servers.start(ONE_WORKER)
    api = Api(server)
    api.put("t")
    engine = server.engine_pid()
    os.kill(engine, signal.SIGKILL)

    def refusal() -> httpx.Response | None:
        answer = api.append("t", 1)
        return answer if answer.status_code == 503 else None

    answer = until(refusal, 5, why="a 503", poll_s=0)
    error = answer.json()["error"]
    assert error["code"] == "not_ready"
    assert 0 <= error["detail"]["replay_progress"] <= 1
    assert int(answer.headers["retry-after"]) >= 1
    until(server.is_ready, 10)


def test_engine_that_keeps_dying_keeps_coming_back(servers: Servers) -> None:
    """Several kills in a row delay the restart but never end it."""
    server = servers.start(ONE_WORKER)
    for _ in range(4):
        server.crash()
    assert Api(server).append("t", 1).status_code == 201


def test_killed_worker_is_replaced(servers: Servers) -> None:
    """A dead worker costs its own connections; the other worker and the engine stay."""
    server = servers.start(TWO_WORKERS)
    engine, before = server.engine_pid(), wait_for_workers(server, 2)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(workers_of(server) - {victim}) == 2, 10, why="a new worker")
    assert server.engine_pid() == engine
    assert before - {victim} < workers_of(server)
    api = Api(server, connections=20)
    until(lambda: all(api.append("t", 1).status_code in (200, 201) for _ in range(20)), 10)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_nothing_survives_the_main_process(servers: Servers, shape) -> None:
    """After SIGKILL of main all processes are gone in a second and the data is free."""
    server = servers.start(shape)
    Api(server).append("t", 1)
    pids = family(server)
    server.process.kill()
    killed = time.monotonic()
    until(lambda: not any(map(processes.is_alive, pids)), 3, why=f"{pids} to be gone")
    assert time.monotonic() - killed < 1
    server.process.wait()
    server.start()
    assert Api(server).state("t").json()["head_seq"] == 1

"""A server that believes to be late: who waits, goes first, is sent away (API 0.6, DESIGN 3).

The lag is dialled (TOPICS_TEST_LAG_FILE), because no load makes every machine late in the same
way; all that follows from it is the real thing. Requests that must be in line together are
sent while their worker is stopped, so that it finds all of them at once.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.dial import ServerDial
from tests.harness.raw import RawConnection, RawResponse, build_request
from tests.harness.server import Server
from tests.harness.waiting import until

# Above the threshold after one measurement, below it again a few after the pressure ends.
LATE_MS = 1000
# The pace falls from 1024 a turn to one; a lone request waits for at least one turn.
TURNS_TO_SLOWEST = 12
ANSWER_TIMEOUT_S = 60.0
LOWEST, HIGHEST = -1000, 1000

Call = tuple[str, dict[str, Any]]


def append(topic: str, **fields: Any) -> Call:
    return f"/v0/topics/{topic}", {"records": [{"data": 1}], **fields}


def diff(topic: str) -> Call:
    return f"/v0/topics/{topic}/diff", {}


def write(*topics: str, **fields: Any) -> Call:
    return "/v0/write", {
        "writes": [{"topic": topic, "records": [{"data": 1}]} for topic in topics],
        **fields,
    }


def waited_ms(answer: RawResponse) -> float:
    waited: float = answer.json()["performance"]["throttle_wait_ms"]
    return waited


class Jam:
    """One worker of a server under pressure that lets in one request a turn."""

    def __init__(self, server: Server, lag: ServerDial, stack: ExitStack) -> None:
        self.api = Api(server)
        stack.callback(self.api.close)
        self.server = server
        self._lag = lag
        self._stack = stack
        first = self._connect()
        self._worker = server.worker_of(first.socket)
        self._idle = [first]

    def begin(self) -> None:
        """Return when the worker is at its slowest."""
        self._lag.turn(LATE_MS)
        until(lambda: waited_ms(self.call(diff("low"))) > 0, why="pressure")
        for _ in range(TURNS_TO_SLOWEST):
            assert waited_ms(self.call(diff("low"))) > 0

    def end(self) -> None:
        self._lag.turn(0)

    def in_flight(self) -> int:
        """How many requests are inside the server, in line or served."""
        answer = self.api.request("GET", "/v0/metrics", headers={"Accept": "application/json"})
        inside: int = good(answer)["requests_in_flight"]
        return inside

    def call(self, call: Call) -> RawResponse:
        return self.call_on(self._idle[0], call)

    def call_on(self, connection: RawConnection, call: Call) -> RawResponse:
        connection.send(_encode(call))
        return connection.receive()

    def call_together(self, calls: list[Call]) -> list[RawResponse]:
        return [connection.receive() for connection in self.send_together(calls)]

    def send_together(self, calls: list[Call]) -> list[RawConnection]:
        """Send all, so that the worker finds all of them between two turns."""
        connections = self.connect(len(calls))
        os.kill(self._worker, signal.SIGSTOP)
        try:
            for connection, call in zip(connections, calls, strict=True):
                connection.send(_encode(call))
        finally:
            os.kill(self._worker, signal.SIGCONT)
        return connections

    def connect(self, count: int) -> list[RawConnection]:
        """Connections to the one worker; which worker accepts is the kernel's choice."""
        while len(self._idle) < count:
            connection = self._connect()
            if self.server.worker_of(connection.socket) == self._worker:
                self._idle.append(connection)
            else:
                connection.close()
        return self._idle[:count]

    def _connect(self) -> RawConnection:
        return self._stack.enter_context(RawConnection(self.server.address, ANSWER_TIMEOUT_S))


def _encode(call: Call) -> bytes:
    path, body = call
    return build_request("POST", path, json.dumps(body).encode())


@pytest.fixture
def jam(launch: Callable[..., Server], tmp_path: Path) -> Iterator[Callable[[int], Jam]]:
    """Starts a server that sends a request away after so many milliseconds in line."""
    with ExitStack() as stack:

        def start(wait_ms: int) -> Jam:
            lag = ServerDial(tmp_path / "lag")
            server = launch(
                TOPICS_TEST_LAG_FILE=str(lag.path), TOPICS_THROTTLE_WAIT_MS=str(wait_ms)
            )
            made = Jam(server, lag, stack)
            good(made.api.put("low", {"priority": LOWEST}), 201)
            good(made.api.put("high", {"priority": HIGHEST}), 201)
            return made

        yield start


def test_the_important_go_first_and_the_rest_is_throttled(jam: Callable[[int], Jam]) -> None:
    """API 0.6: 429 with Retry-After and detail.retry_after_ms; higher priority drains first."""
    jammed = jam(3000)
    jammed.begin()
    low, high = [append("low")] * 90, [append("high")] * 3 + [diff("high")] * 2
    answers = jammed.call_together([*low, *high])
    of_low, of_high = answers[: len(low)], answers[len(low) :]
    assert [answer.status for answer in of_high] == [200] * len(high)
    served = [answer for answer in of_low if answer.status == 200]
    sent_away = [answer for answer in of_low if answer.status != 200]
    # At most one turn every 50 ms: 60 of 90 at the very best.
    assert sent_away
    for answer in sent_away:
        error = refused(answer, 429, "throttled")
        assert error["detail"] == {"retry_after_ms": 3000}
        assert answer.headers["retry-after"] == "3"
        assert waited_ms(answer) >= 3000
    slowest_high = max(map(waited_ms, of_high))
    assert all(waited_ms(answer) > slowest_high for answer in of_low)
    assert good(jammed.api.state("low"))["count"] == len(served)


def test_what_is_throttled_was_not_done(jam: Callable[[int], Jam]) -> None:
    """API 2: a refused write appends nothing, on one topic or on several."""
    jammed = jam(200)
    jammed.begin()
    answers = jammed.call_together([append("low")] * 20 + [write("low", "many")] * 20)
    assert 429 in {answer.status for answer in answers}
    done = [answer.json() for answer in answers if answer.status != 429]
    assert good(jammed.api.state("low"))["count"] == len(done)


def test_disable_backpressure_waits_instead(jam: Callable[[int], Jam]) -> None:
    """API 0.6: such a write is admitted however long it has to wait in line."""
    jammed = jam(200)
    jammed.begin()
    patient = [
        *[append("low", disable_backpressure=True)] * 15,
        *[write("low", disable_backpressure=True)] * 5,
    ]
    answers = jammed.call_together([*patient, *[append("low")] * 20])
    of_patient, of_others = answers[: len(patient)], answers[len(patient) :]
    assert [answer.status for answer in of_patient] == [200] * len(patient)
    # One turn every 50 ms for twenty of them.
    assert max(map(waited_ms, of_patient)) > 200
    assert 429 in {answer.status for answer in of_others}


def test_nothing_starves(jam: Callable[[int], Jam]) -> None:
    """DESIGN 3: waiting makes important, so a stream of hotter requests cannot keep one out."""
    jammed = jam(30_000)
    good(jammed.api.put("quiet", {"priority": 0}), 201)
    good(jammed.api.put("hot", {"priority": 100}), 201)
    jammed.begin()
    quiet, *hot = jammed.connect(9)
    served, stopped = [0] * len(hot), threading.Event()

    def keep_asking(number: int) -> None:
        while not stopped.is_set():
            good(jammed.call_on(hot[number], append("hot")))
            served[number] += 1

    threads = [threading.Thread(target=keep_asking, args=(n,)) for n in range(len(hot))]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(served), 30, why="a stream of hot requests")
        before = sum(served)
        answer = jammed.call_on(quiet, append("quiet"))
        overtaken = sum(served) - before
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    good(answer)
    # It is less important for its first second: the hot ones that came after it went first.
    assert overtaken > len(hot)
    assert waited_ms(answer) < 30_000


def test_the_unlimited_calls_pass_under_pressure(jam: Callable[[int], Jam]) -> None:
    """API 8: probes, metrics and state answer at once, so that an operator sees what happens."""
    jammed = jam(60_000)
    jammed.begin()
    for path in ("/v0/health", "/v0/ready", "/v0/topics", "/v0/topics/low"):
        assert "throttle_wait_ms" not in good(jammed.api.request("GET", path))["performance"]


def test_when_the_pressure_ends_nobody_waits(jam: Callable[[int], Jam]) -> None:
    """API 0.6: the throttle is elastic; what was in line is served and newcomers pass."""
    jammed = jam(60_000)
    jammed.begin()
    jammed.end()
    answers = jammed.call_together([append("low")] * 40)
    assert {answer.status for answer in answers} == {200}
    until(lambda: waited_ms(jammed.call(diff("low"))) == 0, why="the end of the pressure")


def test_a_stopping_server_sends_the_line_away(jam: Callable[[int], Jam]) -> None:
    """API 0.6: who is in line gets 503 at once, however patient, and the exit is clean."""
    jammed = jam(60_000)
    jammed.begin()
    calls = [append("low", disable_backpressure=True), append("low")] * 100
    connections = jammed.send_together(calls)
    until(lambda: jammed.in_flight() > len(calls) // 2, why="a line")
    jammed.server.terminate()
    answers = [connection.receive() for connection in connections]
    refusals = [answer for answer in answers if answer.status != 200]
    assert refusals
    for answer in refusals:
        refused(answer, 503, "shutting_down")
        assert answer.headers["retry-after"] == "1"
    assert jammed.server.wait_exit() == 0

"""Elastic throttling under CPU pressure (API 0.6, DESIGN 3)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.waiting import until

# Enough to decode, render and commit that a loop serving a few of them is always late.
BATCH = [{"data": {"n": number}, "tag": "t", "meta": {"k": number}} for number in range(4000)]


class Load:
    """Clients that write to one topic, one request after the other, until told to stop."""

    def __init__(self, server: Server, topic: str, clients: int, **fields: Any) -> None:
        self._server = server
        self._path = f"/v0/topics/{topic}?return_seqs=false"
        self._body = {"records": BATCH, **fields}
        self._stop = threading.Event()
        self.answers: list[httpx.Response] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        api = Api(self._server, connections=1)
        while not self._stop.is_set():
            self.answers.append(api.request("POST", self._path, json=self._body))
        api.close()

    def refused(self) -> list[httpx.Response]:
        return [answer for answer in self.answers if answer.status_code == 429]

    def served(self) -> list[dict[str, Any]]:
        return [good(answer) for answer in self.answers if answer.status_code == 200]


def test_without_pressure_nobody_waits(api: Api, topic: str) -> None:
    """API 0.9: throttle_wait_ms is reported by writes and reads, and is 0."""
    written = good(api.append(topic, 1, disable_backpressure=True), 201)
    many = good(
        api.request(
            "POST", "/v0/write", json={"writes": [{"topic": topic, "records": [{"data": 2}]}]}
        )
    )
    read = good(api.diff(topic))
    assert [answer["performance"]["throttle_wait_ms"] for answer in (written, many, read)] == [
        0
    ] * 3


def test_zero_switches_the_throttle_off(launch: Callable[..., Server]) -> None:
    """TOPICS_THROTTLE_LAG_MS=0: no load makes a request wait."""
    server = launch(TOPICS_THROTTLE_LAG_MS="0", TOPICS_THROTTLE_WAIT_MS="1")
    with Load(server, "t", 4) as load:
        until(lambda: len(load.answers) >= 20, 30, why="answers")
    assert not load.refused()
    assert {answer["performance"]["throttle_wait_ms"] for answer in load.served()} == {0}

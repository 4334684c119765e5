"""Resource caps of an instance and of a key (API 11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx

from tests.harness.answers import Answer, good, refused
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.server import Server
from tests.harness.waiting import until

KEYS = "alice-key,bob-key,watcher-key:read"
JSON = {"Accept": "application/json"}


def throttled(answer: Answer, limit: str, maximum: int) -> None:
    """A 429 in the shape of API 11."""
    error = refused(answer, 429, "throttled")
    assert error["detail"] == {"limit": limit, "max": maximum}
    assert int(answer.headers["retry-after"]) >= 1


class Polls:
    """Long polls that stay inside the server, spread over all its workers."""

    def __init__(self, server: Server, token: str, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._watch = Api(server, "watcher-key" if token else "")
        stack.callback(self._watch.close)

    def in_flight(self) -> int:
        """Requests inside, without the one that asks."""
        answer = self._watch.request("GET", "/v0/metrics", headers=JSON)
        return int(good(answer)["requests_in_flight"]) - 1

    def connect(self, workers: set[int]) -> RawConnection:
        """A connection to a worker that is not among `workers`, unless all of them are."""

        def attempt() -> RawConnection | None:
            connection = self._stack.enter_context(RawConnection(self._server.address))
            pid = self._server.worker_of(connection.socket)
            if pid in workers and len(workers) < self._server.shape.workers:
                connection.close()
                return None
            workers.add(pid)
            return connection

        return until(attempt, why="a connection to another worker")

    def hold(self, count: int, topic: str) -> list[RawConnection]:
        workers: set[int] = set()
        body = json.dumps({"wait_ms": 25_000}).encode()
        request = build_request("POST", f"/v0/topics/{topic}/diff", body, self._headers)
        before = self.in_flight()
        connections = [self.connect(workers) for _ in range(count)]
        for connection in connections:
            connection.send(request)
        until(lambda: self.in_flight() == before + count, why=f"{count} polls to be inside")
        return connections


def test_a_key_may_have_so_many_requests_inside(launch: Callable[..., Server]) -> None:
    """Instance-wide and per key: what any worker serves counts, other keys do not notice."""
    server = launch(TOPICS_API_KEYS=KEYS, TOPICS_MAX_INFLIGHT_PER_KEY="2")
    alice, bob = Api(server, "alice-key"), Api(server, "bob-key")
    good(alice.put("a"), 201)
    with ExitStack() as stack:
        first, second = Polls(server, "alice-key", stack).hold(2, "a")
        # Rotates over connections, so that every worker has to know.
        for _ in range(4):
            throttled(alice.state("a"), "max_inflight_per_key", 2)
        throttled(alice.append("a", 1), "max_inflight_per_key", 2)
        throttled(alice.list(), "max_inflight_per_key", 2)
        assert good(bob.state("a"))["head_seq"] == 0
        # A client that hangs up frees its slot.
        first.close()
        until(lambda: alice.state("a").status_code == 200, why="the slot of a lost client")
        # So does an answer.
        good(bob.append("a", 1))
        assert second.receive().status == 200
    for _ in range(4):
        good(alice.state("a"))
    alice.close()
    bob.close()


def test_refusals_and_errors_free_their_slot(launch: Callable[..., Server]) -> None:
    """A request that fails leaves nothing behind, whatever ended it."""
    server = launch(TOPICS_API_KEYS=KEYS, TOPICS_MAX_INFLIGHT_PER_KEY="1")
    alice = Api(server, "alice-key")
    for _ in range(3):
        refused(alice.state("absent"), 404, "topic_not_found")
        refused(alice.write_bytes("a", b"{"), 400, "invalid_request")
        refused(alice.request("PATCH", "/v0/topics/a"), 405, "method_not_allowed")
    with RawConnection(server.address) as connection:
        head = {"Authorization": "Bearer alice-key", "Content-Length": "100"}
        connection.send(build_request("POST", "/v0/topics/a", b'{"records"', head))
    until(lambda: alice.append("a", 1).status_code < 300, why="the slot of a lost upload")
    good(alice.append("a", 1))
    alice.close()


def test_probes_take_no_slot_of_a_key(launch: Callable[..., Server]) -> None:
    """A saturated key does not make the server look dead."""
    server = launch(TOPICS_API_KEYS=KEYS, TOPICS_MAX_INFLIGHT_PER_KEY="1")
    alice = Api(server, "alice-key")
    good(alice.put("a"), 201)
    with ExitStack() as stack:
        Polls(server, "alice-key", stack).hold(1, "a")
        throttled(alice.state("a"), "max_inflight_per_key", 1)
        good(alice.request("GET", "/v0/ready"))
        good(alice.request("GET", "/healthz"))
    alice.close()


def test_per_key_limits_need_keys(launch: Callable[..., Server]) -> None:
    """Without authentication there is nobody to attribute use to."""
    server = launch(TOPICS_MAX_INFLIGHT_PER_KEY="1")
    api = Api(server)
    good(api.put("a"), 201)
    with ExitStack() as stack:
        Polls(server, "", stack).hold(3, "a")
        good(api.state("a"))
    api.close()


def test_zero_disables_every_cap(launch: Callable[..., Server]) -> None:
    """0 is unlimited, not nothing."""
    server = launch(
        TOPICS_API_KEYS=KEYS,
        TOPICS_MAX_INFLIGHT_PER_KEY="0",
        TOPICS_MAX_TOPICS="0",
        TOPICS_MAX_TOTAL_BYTES="0",
    )
    alice = Api(server, "alice-key")
    good(alice.append("a", "x" * 10_000), 201)
    good(alice.put("b"), 201)
    with ExitStack() as stack:
        Polls(server, "alice-key", stack).hold(3, "b")
        good(alice.state("a"))
    alice.close()


def test_a_server_full_of_topics_can_still_be_configured(launch: Callable[..., Server]) -> None:
    """Only new topics count: a re-PUT of an existing one always succeeds."""
    server = launch(TOPICS_MAX_TOPICS="2")
    api = Api(server)
    good(api.put("a"), 201)
    good(api.put("b"), 201)
    for config in ({}, {"ttl_ms": 5}, {"durability": "fsync"}, {"durability": "ephemeral"}, {}):
        assert good(api.put("a", config))["created"] is False
    for attempt in _creations(api, "c"):
        throttled(attempt, "max_topics", 2)
    refused(api.state("c"), 404, "topic_not_found")
    assert len(good(api.list())["topics"]) == 2
    server.restart()
    throttled(api.put("c"), "max_topics", 2)
    good(api.put("b", {"cap_records": 3}))
    good(api.delete("a"))
    good(api.put("c"), 201)
    api.close()


def _creations(api: Api, name: str) -> list[httpx.Response]:
    """Every way to create a topic."""
    return [
        api.put(name),
        api.append(name, 1),
        api.append(name, 1, create=True),
        api.append(name, 1, config={"durability": "memory"}),
    ]


def test_the_byte_quota_counts_what_is_retained(launch: Callable[..., Server]) -> None:
    """Over the sum of all topics; a refused write changes nothing; room comes back."""
    server = launch(TOPICS_MAX_TOTAL_BYTES="1000")
    api = Api(server)
    good(api.append("a", "x" * 498), 201)
    good(api.append("b", "x" * 498), 201)
    for topic in ("a", "b", "new"):
        throttled(api.append(topic, 1), "max_total_bytes", 1000)
    refused(api.state("new"), 404, "topic_not_found")
    assert _retained(api) == 1000
    server.restart()
    throttled(api.append("a", 1), "max_total_bytes", 1000)
    server.crash()
    throttled(api.append("a", 1), "max_total_bytes", 1000)
    good(api.put("c"), 201)
    deleted: dict[str, Any] = {"before_seq": 2}
    good(api.request("POST", "/v0/topics/a/delete", json=deleted))
    good(api.append("c", "y" * 498))
    throttled(api.append("c", 1), "max_total_bytes", 1000)
    good(api.delete("b"))
    good(api.append("c", 1))
    api.close()


def _retained(api: Api) -> int:
    return int(good(api.request("GET", "/v0/metrics", headers=JSON))["bytes_live"])

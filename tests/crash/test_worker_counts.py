"""What a killed worker leaves behind in the counts that all workers share."""

from __future__ import annotations

import json
import os
import signal

from tests.crash.family import Servers, wait_for_workers
from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.server import TWO_WORKERS
from tests.harness.waiting import until

KEYS = "alice-key,bob-key"


def snapshot(api: Api) -> dict:
    return good(api.request("GET", "/v0/metrics", headers={"Accept": "application/json"}))


def test_a_killed_worker_frees_its_slots_and_keeps_its_counts(servers: Servers) -> None:
    """kill -9 of a worker with a poll inside: its key may go on, its requests stay counted."""
    server = servers.start(TWO_WORKERS, TOPICS_API_KEYS=KEYS, TOPICS_MAX_INFLIGHT_PER_KEY="1")
    alice, bob = Api(server, "alice-key"), Api(server, "bob-key")
    good(alice.put("a"), 201)
    with RawConnection(server.address) as connection:
        body = json.dumps({"wait_ms": 25_000}).encode()
        token = {"Authorization": "Bearer alice-key"}
        connection.send(build_request("POST", "/v0/topics/a/diff", body, token))
        until(lambda: snapshot(bob)["requests_in_flight"] == 2, why="the poll to be inside")
        refused(alice.state("a"), 429, "throttled")
        victim = server.worker_of(connection.socket)
        before = snapshot(bob)
        alice.close()
        bob.close()
        os.kill(victim, signal.SIGKILL)
        assert connection.is_closed()
    until(lambda: victim not in wait_for_workers(server, 2), 10, why="a replacement")
    server.wait_ready()
    alice, bob = Api(server, "alice-key"), Api(server, "bob-key")
    good(alice.state("a"))
    after = snapshot(bob)
    assert after["requests_in_flight"] == 1
    assert after["records_appended"] == before["records_appended"]
    counted = {(row["method"], row["route"], row["status"]): row for row in after["requests"]}
    for row in before["requests"]:
        same = counted[row["method"], row["route"], row["status"]]
        assert same["latency_us"]["count"] >= row["latency_us"]["count"]
    alice.close()
    bob.close()

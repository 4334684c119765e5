"""Health and readiness (API 8.1, 8.2), also while the server drains."""

from __future__ import annotations

import os
from collections.abc import Callable

import httpx
import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import ConnectionEnded, RawConnection, build_request
from tests.harness.server import Server
from tests.harness.waiting import until


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_tells_version_and_uptime(api: Api, path: str) -> None:
    """API 8.1: 200 while the process can serve."""
    answer = api.request("GET", path)
    body = answer.json()
    assert answer.status_code == 200
    assert body["status"] == "ok"
    assert isinstance(body["version"], str) and body["version"]
    assert isinstance(body["uptime_ms"], int) and body["uptime_ms"] >= 0


def test_uptime_grows(api: Api) -> None:
    """API 8.1: uptime_ms is measured."""
    first = api.request("GET", "/healthz").json()["uptime_ms"]
    until(lambda: api.request("GET", "/healthz").json()["uptime_ms"] > first)


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready_counts_topics(api: Api, topic: str, path: str) -> None:
    """API 8.2: status, wal_replay_complete and the number of topics."""
    before = api.request("GET", path).json()["topics"]
    good(api.put(topic), 201)
    answer = api.request("GET", path)
    body = answer.json()
    assert answer.status_code == 200
    assert (body["status"], body["wal_replay_complete"]) == ("ready", True)
    assert body["topics"] == before + 1
    good(api.delete(topic))
    assert api.request("GET", path).json()["topics"] == before


def test_the_port_file_names_the_address(server: Server) -> None:
    """Spec 1: TOPICS_PORT_FILE receives host:port."""
    text = server.port_file.read_text().strip()
    assert text == f"127.0.0.1:{server.port}"
    assert os.listdir(server.port_file.parent).count("port") == 1


def test_probes_can_be_closed(launch: Callable[..., Server]) -> None:
    """API 8: TOPICS_PROBE_AUTH requires a key on the probes too."""
    server = launch("secret", TOPICS_API_KEYS="secret,reader:r", TOPICS_PROBE_AUTH="true")
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        refused(httpx.get(server.url + path), 401, "unauthorized")
        for key in ("secret", "reader"):
            headers = {"Authorization": f"Bearer {key}"}
            assert httpx.get(server.url + path, headers=headers).status_code == 200


def test_a_draining_server_finishes_what_it_began(launch: Callable[..., Server]) -> None:
    """API 8.2: a stop ends waiting requests, refuses new ones with 503, and exits with 0."""
    server = launch()
    body = b'{"records":[{"data":1}]}'
    with RawConnection(server.address) as idle, RawConnection(server.address) as waiting:
        good(idle.request("POST", "/v0/topics/a", body), 201)
        waiting.send(build_request("POST", "/v0/topics/a/diff", b'{"from_seq":1,"wait_ms":30000}'))
        assert waiting.is_silent(0.1)
        server.terminate()
        answer = waiting.receive()
        if answer.status == 200:
            assert answer.json()["records"] == []
        else:
            refused(answer, 503, "shutting_down")
            assert int(answer.headers["retry-after"]) >= 1
        _assert_refused_or_closed(idle)
    assert server.wait_exit(10) == 0


def _assert_refused_or_closed(connection: RawConnection) -> None:
    connection.send_tolerant(build_request("POST", "/v0/topics/a", b'{"records":[{"data":2}]}'))
    try:
        answer = connection.receive()
    except (ConnectionEnded, ConnectionResetError):
        return
    refused(answer, 503, "shutting_down")
    assert int(answer.headers["retry-after"]) >= 1

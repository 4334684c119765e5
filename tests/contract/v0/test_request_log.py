"""What a server logs of requests, and what it never logs (API 12)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.server import Server

SECRET, BOUND = "s3cr3t-full-token", "s3cr3t-bound-token"
WRONG = "s3cr3t-wrong-token"
KEYS = f"{SECRET},{BOUND}:read:tenant42:"
LINE = re.compile(
    r"^\S+Z debug topicsd\.web request method=(\S+) route=(\S+) status=(\d+) ms=\S+ key=(\S+)$",
    re.M,
)


def converse(server: Server) -> None:
    """Requests that carry secrets in every place a client may put them."""
    api, wrong, bound = Api(server, SECRET), Api(server, WRONG), Api(server, BOUND)
    good(api.append("a", 1), 201)
    good(api.diff("a"))
    refused(wrong.state("a"), 401, "unauthorized")
    refused(bound.state("a"), 403, "forbidden")
    refused(api.request("GET", f"/v0/topics/a/nothing?token={SECRET}"), 404, "not_found")
    refused(Api(server).request("GET", f"/v0/topics/a?token={SECRET}"), 401, "unauthorized")
    good(api.request("GET", f"/v0/topics/a?token={SECRET}"))
    refused(api.write_bytes("a", b'{"records":'), 400, "invalid_request")
    assert api.request("GET", "/v0/metrics").status_code == 200
    for client in (api, wrong, bound):
        client.close()


def test_a_request_is_one_line_at_debug(launch: Callable[..., Server]) -> None:
    """Method, route, status, time and the key's id; the topic's name and the query are not."""
    server = launch(TOPICS_API_KEYS=KEYS, TOPICS_LOG_LEVEL="debug")
    converse(server)
    lines = LINE.findall(server.log())
    key = hashlib.sha256(SECRET.encode()).hexdigest()[:12]
    expected = [
        ("POST", "/v0/topics/:topic", "201", key),
        ("POST", "/v0/topics/:topic/diff", "200", key),
        ("GET", "/v0/topics/:topic", "401", "none"),
        ("GET", "/v0/topics/:topic", "200", key),
        ("GET", "none", "404", key),
        ("POST", "/v0/topics/:topic", "400", key),
        ("GET", "/v0/metrics", "200", key),
    ]
    for line in expected:
        assert line in lines, (line, lines)
    assert len([line for line in lines if line[1] != "/readyz"]) == 9


def test_no_log_line_has_a_token(launch: Callable[..., Server]) -> None:
    """Neither whole nor in part, at the most talkative level, over the life of a server."""
    server = launch(TOPICS_API_KEYS=KEYS, TOPICS_LOG_LEVEL="debug")
    converse(server)
    server.restart()
    server.crash()
    converse_again = Api(server, SECRET)
    good(converse_again.state("a"))
    converse_again.close()
    assert server.stop() == 0
    log = server.log()
    assert "request method=" in log
    assert "s3cr3t" not in log
    assert "token=" not in log


def test_requests_are_not_logged_by_default(launch: Callable[..., Server]) -> None:
    """The access log is off: a quiet server has a quiet log."""
    server = launch(TOPICS_API_KEYS=KEYS)
    before = server.log()
    converse(server)
    assert server.log() == before

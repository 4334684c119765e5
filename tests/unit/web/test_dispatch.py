"""The order of checks, and the end of every request."""

from __future__ import annotations

import json
import logging

import pytest

from tests.unit.web.fakes import World
from topicsd.web.reply import Reply

KEYS = "full,reader:read,writer:w,tenant::t1:|t2:"


def code(reply: Reply) -> str:
    return str(json.loads(reply.body)["error"]["code"])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer nobody"}, {"authorization": "Basic full"},
     {"authorization": "Bearer"}, {"authorization": "full"}, {"authorization": "Bearer \udcff"}],
)  # fmt: skip
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v0/topics"),
        ("GET", "/v0/nowhere"),
        ("PATCH", "/v0/topics/a"),
        ("POST", "/v0/topics/%2F"),
    ],
)
def test_401_comes_before_anything(headers: dict[str, str], method: str, target: str) -> None:
    """Spec 2.8: not even the existence of a path is told."""
    reply = World(keys=KEYS).ask(method, target, b"nonsense", headers)
    assert (reply.status, code(reply)) == (401, "unauthorized")
    assert ("www-authenticate", "Bearer") in reply.headers


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_compared_without_case(scheme: str) -> None:
    """Spec 2.9."""
    world = World(keys=KEYS)
    assert world.ask("GET", "/v0/topics", None, {"authorization": f"{scheme}  full "}).status == 200


def test_without_keys_the_header_is_ignored() -> None:
    """API 0.2: dev mode."""
    assert World().ask("GET", "/v0/topics", None, bearer("whatever")).status == 200


@pytest.mark.parametrize(
    ("token", "method", "target", "status"),
    [
        ("reader", "GET", "/v0/topics", 200),
        ("reader", "POST", "/v0/topics/a/diff", 404),
        ("reader", "POST", "/v0/topics/a", 403),
        ("reader", "PUT", "/v0/topics/a", 403),
        ("reader", "DELETE", "/v0/topics/a", 403),
        ("reader", "HEAD", "/v0/topics/a", 404),
        ("writer", "GET", "/v0/topics/a", 403),
        ("writer", "HEAD", "/v0/topics/a", 403),
        ("writer", "POST", "/v0/topics/a", 201),
        ("writer", "PATCH", "/v0/topics/a", 405),
        ("writer", "GET", "/v0/nowhere", 404),
        ("tenant", "POST", "/v0/topics/t1:x", 201),
        ("tenant", "POST", "/v0/topics/t3:x", 403),
        ("tenant", "PATCH", "/v0/topics/t3:x", 405),
        ("tenant", "DELETE", "/v0/topics/t2:x", 200),
        ("full", "DELETE", "/v0/topics/t3:x", 200),
    ],
)
def test_scopes_and_prefixes(token: str, method: str, target: str, status: int) -> None:
    """API 0.2: each route needs its scope, each name one of the key's prefixes."""
    expected = 403 if (token, method) == ("tenant", "PATCH") else status
    body = b'{"records":[{"data":1}]}' if method == "POST" and "diff" not in target else b"{}"
    assert expected == World(keys=KEYS).ask(method, target, body, bearer(token)).status


def test_403_comes_before_415_and_the_body() -> None:
    """Spec 2.8."""
    headers = {**bearer("reader"), "content-type": "text/plain"}
    assert World(keys=KEYS).ask("POST", "/v0/topics/a", b"x", headers).status == 403


def test_404_and_405_come_before_415() -> None:
    """A wrong content type is not the first thing wrong."""
    world, headers = World(), {"content-type": "text/plain"}
    assert world.ask("POST", "/v0/nowhere", b"x", headers).status == 404
    assert world.ask("POST", "/v0/topics", b"x", headers).status == 405
    assert world.ask("POST", "/v0/topics/%2F", b"x", headers).status == 415


@pytest.mark.parametrize(
    "name", ["a%2Fb", "%2F", "%ff", "-a", "a%00", "a" * 256, "%C3%A9", "a%20b", "a\\b"]
)
def test_a_bad_name_is_400(name: str, world: World) -> None:
    """Never 404 and never a crash (API 1.1)."""
    reply = world.ask("GET", f"/v0/topics/{name}")
    assert (reply.status, code(reply)) == (400, "invalid_request")


def test_the_longest_name_is_fine(world: World) -> None:
    """255 characters."""
    assert world.ask("PUT", "/v0/topics/" + "a" * 255).status == 201


def test_a_wrong_method_is_405_with_allow(world: World) -> None:
    """The envelope names the methods too."""
    reply = world.ask("PATCH", "/v0/topics/a/delete")
    assert (reply.status, reply.headers) == (405, (("allow", "OPTIONS, POST"),))
    assert json.loads(reply.body)["error"]["detail"]["allow"] == ["OPTIONS", "POST"]


def test_options_answers_the_methods(world: World) -> None:
    """204 with Allow and no body."""
    reply = world.ask("OPTIONS", "/v0/topics")
    assert reply[:3] == (204, b"", (("allow", "GET, HEAD, OPTIONS"),))


def test_probes_are_open_unless_probe_auth() -> None:
    """API 8: load balancers carry no key by default."""
    for path in ("/healthz", "/readyz", "/v0/health", "/v0/ready"):
        assert World(keys=KEYS).ask("GET", path).status == 200
        closed = World(keys=KEYS, probe_auth=True)
        assert closed.ask("GET", path).status == 401
        assert closed.ask("GET", path, None, bearer("writer")).status == 200


def test_draining_refuses_all_but_probes(world: World) -> None:
    """503 with Retry-After; health stays 200 and ready says why not."""
    world.gate.draining = True
    reply = world.ask("POST", "/v0/topics/a", b'{"records":[{"data":1}]}')
    assert (reply.status, code(reply)) == (503, "shutting_down")
    assert reply.headers == (("retry-after", "1"),)
    assert world.ask("GET", "/healthz").status == 200
    assert code(world.ask("GET", "/readyz")) == "shutting_down"


def test_a_bug_is_logged_and_answers_internal(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns nothing of it; the log has the traceback; the gate is left."""
    monkeypatch.setattr(world.reader, "find_log", lambda name: 1 // 0)
    with caplog.at_level(logging.ERROR):
        reply = world.ask("GET", "/v0/topics/a")
    assert (reply.status, code(reply)) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text
    assert b"ZeroDivision" not in reply.body
    assert world.gate.in_flight == 0


def test_every_error_carries_performance(world: World) -> None:
    """API 0.9, spec 3."""
    for method, target in [("GET", "/x"), ("PATCH", "/healthz"), ("GET", "/v0/topics/a")]:
        content = json.loads(world.ask(method, target).body)
        assert content["performance"]["server_total_ms"] >= 0


def test_a_key_over_its_inflight_limit_is_throttled() -> None:
    """API 11: 429 with Retry-After and the name of the limit."""
    world = World(keys=KEYS, max_inflight_per_key=1)
    world.gate.enter(next(iter(world.settings.api_keys)))
    reply = world.ask("GET", "/v0/topics", None, bearer("full"))
    assert (reply.status, code(reply), reply.headers) == (429, "throttled", (("retry-after", "1"),))

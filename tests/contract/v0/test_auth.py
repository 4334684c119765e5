"""Bearer keys, scopes and prefixes (API 0.2), and the order of checks (decision 2.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import build_request, exchange
from tests.harness.server import Server

AsKey = Callable[[str], Api]

RECORDS = {"records": [{"data": 1}]}
ROUTES: dict[str, Callable[[Api, str], httpx.Response]] = {
    "put": lambda api, topic: api.put(topic),
    "append": lambda api, topic: api.append(topic, 1),
    "append-config": lambda api, topic: api.append(topic, 1, config={"ttl_ms": 5_000_000}),
    "state": lambda api, topic: api.state(topic),
    "list": lambda api, topic: api.list(prefix=topic),
    "diff": lambda api, topic: api.diff(topic),
    "delete": lambda api, topic: api.delete(topic),
}
ALLOWED: dict[str, set[str]] = {
    "full": set(ROUTES),
    "read": {"state", "list", "diff"},
    "write": {"append"},
    "delete": {"delete"},
    "admin": {"put"},
    "rw": {"state", "list", "diff", "append"},
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_missing_key_is_unauthorized(as_key: AsKey, topic: str, route: str) -> None:
    """API 0.2: a missing key is 401 on every route."""
    refused(ROUTES[route](as_key(""), topic), 401, "unauthorized")


@pytest.mark.parametrize(
    "header",
    [
        "Bearer nobody",
        "Bearer full-key2",
        "Bearer full-ke",
        "Bearer FULL-KEY",
        "Bearer",
        "Bearer ",
        "full-key",
        "Basic full-key",
        "Basic ZnVsbC1rZXk6",
        "Bearer read-key:read",
        "Bearer full-key full-key",
        "Token full-key",
    ],
)
def test_an_unknown_key_is_unauthorized(guarded: Server, header: str) -> None:
    """API 0.2: unknown, partial and malformed credentials are 401."""
    request = build_request("GET", "/v0/topics", None, {"Authorization": header})
    refused(exchange(guarded.address, request), 401, "unauthorized")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_is_read_in_any_case(guarded: Server, scheme: str) -> None:
    """Decision 2.9: bearer in any case."""
    request = build_request("GET", "/v0/topics", None, {"Authorization": f"{scheme} full-key"})
    good(exchange(guarded.address, request))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("key", ALLOWED)
def test_each_scope_opens_its_routes_only(as_key: AsKey, topic: str, key: str, route: str) -> None:
    """API 0.2: read, write, delete and admin, route by route; anything else is 403."""
    good(as_key("full").put(topic), 201)
    answer = ROUTES[route](as_key(key), topic)
    if route in ALLOWED[key]:
        good(answer)
    else:
        refused(answer, 403, "forbidden")


def test_an_inline_config_needs_admin(as_key: AsKey, topic: str) -> None:
    """Decision 2.8: a config on a write needs the admin scope too, also to be ignored."""
    refused(as_key("write").append(topic, 1, config={}), 403, "forbidden")
    refused(as_key("full").state(topic), 404, "topic_not_found")
    good(as_key("write").append(topic, 1), 201)


@pytest.mark.parametrize("name", ["tenant42:a", "tenant42:", "shared.x"])
def test_a_prefix_key_works_inside_its_prefixes(as_key: AsKey, topic: str, name: str) -> None:
    """API 0.2: empty scopes are all scopes; the match is a byte prefix of the name."""
    name = f"{name}{topic}"
    api = as_key("tenant")
    good(api.put(name), 201)
    good(api.append(name, 1))
    good(api.diff(name))
    good(api.state(name))
    assert good(api.delete(name))["deleted"] is True


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "list"])
@pytest.mark.parametrize("name", ["tenant43:a", "tenant42", "Tenant42:a", "shared", "x.shared.y"])
def test_a_prefix_key_is_forbidden_outside(as_key: AsKey, name: str, route: str) -> None:
    """API 0.2: a name outside the allowlist is 403 whether it exists or not."""
    refused(ROUTES[route](as_key("tenant"), name), 403, "forbidden")


def test_a_listing_shows_only_what_a_key_may_touch(as_key: AsKey, topic: str) -> None:
    """API 0.2: list endpoints are filtered to the allowlist."""
    for name in (f"tenant42:{topic}", f"tenant43:{topic}", f"shared.{topic}", topic):
        good(as_key("full").put(name), 201)
    listed = [entry["topic"] for entry in good(as_key("tenant").list(page_size=1000))["topics"]]
    assert {f"tenant42:{topic}", f"shared.{topic}"} <= set(listed)
    assert all(name.startswith(("tenant42:", "shared.")) for name in listed)
    assert good(as_key("tenant").list(prefix="tenant43:"))["topics"] == []
    assert good(as_key("tenant").list(prefix=topic))["topics"] == []


def test_a_filtered_listing_pages_through_everything(as_key: AsKey, topic: str) -> None:
    """API 0.2, 1.3: pages of a filtered listing are full, and the last has no cursor."""
    wanted = []
    for number in range(5):
        good(as_key("full").put(f"shared.{topic}-{number}"), 201)
        good(as_key("full").put(f"tenant42:{topic}-{number}"), 201)
        good(as_key("full").put(f"shaded.{topic}-{number}"), 201)
        wanted += [f"shared.{topic}-{number}", f"tenant42:{topic}-{number}"]
    seen: list[str] = []
    query: dict[str, str] = {}
    while True:
        body = good(as_key("tenant").list(page_size=2, **query))
        seen += [entry["topic"] for entry in body["topics"]]
        if "next_cursor" not in body:
            break
        assert len(body["topics"]) == 2
        query = {"cursor": body["next_cursor"]}
    assert [name for name in seen if topic in name] == sorted(wanted)


def test_a_dead_letter_outside_the_prefixes_is_forbidden(as_key: AsKey, topic: str) -> None:
    """Decision 2.8: dead_letter names are checked against the key's prefixes."""
    api = as_key("tenant")
    refused(api.put(f"tenant42:{topic}", {"dead_letter": "other.dlq"}), 403, "forbidden")
    good(api.put(f"tenant42:{topic}", {"dead_letter": "shared.dlq"}), 201)


def test_prefix_and_scope_are_both_required(as_key: AsKey, topic: str) -> None:
    """API 0.2: a reader of one tenant reads there and does nothing else."""
    name = f"tenant42:{topic}"
    good(as_key("full").put(name), 201)
    reader = as_key("tenant-reader")
    good(reader.diff(name))
    refused(reader.append(name, 1), 403, "forbidden")
    refused(reader.diff(f"shared.{topic}"), 403, "forbidden")


CHECKS: list[tuple[str, dict[str, Any]]] = [
    ("unknown path", {"method": "GET", "path": "/v0/nothing"}),
    ("wrong method", {"method": "PATCH", "path": "/v0/topics/x"}),
    ("bad name", {"method": "PUT", "path": "/v0/topics/_bad", "json": {}}),
    ("absent topic", {"method": "GET", "path": "/v0/topics/absent"}),
    ("no content type", {"method": "POST", "path": "/v0/topics/x", "content": b"{}"}),
    ("bad json", {"method": "POST", "path": "/v0/topics/x", "content": b"{"}),
    ("body too large", {"method": "POST", "path": "/v0/topics/x", "content": b" " * 100_001}),
]


@pytest.mark.parametrize("request_of", [check for _, check in CHECKS], ids=[c for c, _ in CHECKS])
def test_authentication_comes_before_everything(as_key: AsKey, request_of: dict[str, Any]) -> None:
    """Decision 2.8: 401 before anything else is looked at."""
    refused(as_key("").request(**request_of), 401, "unauthorized")


@pytest.mark.parametrize("name", ["absent-topic", "tenant43:absent"])
def test_permission_comes_before_existence(as_key: AsKey, name: str) -> None:
    """Decision 2.8: 403 before 404, so that a key learns nothing about other names."""
    refused(as_key("tenant-reader").state(name), 403, "forbidden")
    refused(as_key("write").diff(name), 403, "forbidden")


def test_permission_comes_before_the_body(as_key: AsKey, topic: str) -> None:
    """Decision 2.8: 403 before 415 and before the body."""
    path = f"/v0/topics/{topic}"
    for content, headers in [
        (b"{}", {"Content-Type": "text/plain"}),
        (b"{", {"Content-Type": "application/json"}),
    ]:
        answer = as_key("read").request("POST", path, content=content, headers=headers)
        refused(answer, 403, "forbidden")


def test_probes_need_no_key(as_key: AsKey) -> None:
    """API 8: health and readiness are open by default."""
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert as_key("").request("GET", path).status_code == 200


def test_without_keys_the_header_is_ignored(api: Api, topic: str) -> None:
    """API 0.2: with no keys configured auth is off and any header is ignored."""
    headers = {"Authorization": "Bearer whatever"}
    good(api.request("PUT", f"/v0/topics/{topic}", json={}, headers=headers), 201)


def test_keys_are_not_in_the_log(guarded: Server, as_key: AsKey) -> None:
    """API 0.2: tokens are never logged."""
    good(as_key("full").list())
    refused(as_key("").list(), 401, "unauthorized")
    log = guarded.log()
    assert "full-key" not in log and "tenant-key" not in log

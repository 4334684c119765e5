"""Keys, scopes, prefixes and methods on every row of the route table, so none is forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.harness.answers import refused
from tests.harness.api import Api
from topicsd.web.docs.fields import TOPIC_PATTERN
from topicsd.web.openapi import build
from topicsd.web.route import KEYED, OPEN, PUBLIC, TOKEN, Route
from topicsd.web.routes import ROUTES

AsKey = Callable[[str], Api]

GUARDED = [route for route in ROUTES if route.scope not in (OPEN, PUBLIC, TOKEN)]
SCOPED = [route for route in GUARDED if route.scope != KEYED]
_NAMES = (":topic", ":router", ":stream")
NAMED = [route for route in GUARDED if any(name in route.path for name in _NAMES)]
# Guarded rows without a name in the path, and how a key's prefixes bind them.
UNNAMED = {
    "GET /v0/topics": "the listing is filtered (test_auth.py)",
    "GET /v0/routers": "the listing is filtered (test_routers.py)",
    "GET /v1/streams": "the listing is filtered (contract/v1/test_list.py)",
    **{
        f"{row} {mount}/__ds/subscriptions/:id{rest}": "names are checked (test_subscriptions.py)"
        for mount in ("/v1/stream", "")
        for row, rest in (
            ("PUT", ""),
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/streams"),
            ("DELETE", "/streams/:path"),
            ("POST", "/claim"),
        )
    },
    "GET /v0/metrics": "numbers of the instance; only the scope counts",
    "POST /v0/write": "every name in the body is checked (NAMES_IN_BODIES)",
    "POST /v0/watch": "every name and prefix in the body is checked (test_watch_auth.py)",
    "GET /v0/watch/:wid": "a session belongs to the key that made it (test_watch_auth.py)",
    "GET /v0/ws": "every command is checked (test_ws.py)",
}
RECORDS = [{"data": 1}]
# Every place of a request body that names a topic: a body whose only name outside a key's
# prefixes stands there.
NAMES_IN_BODIES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "PUT /v0/topics/:topic dead_letter": lambda inside, outside: {"dead_letter": outside},
    "POST /v0/topics/:topic config.dead_letter": lambda inside, outside: {
        "records": RECORDS,
        "config": {"dead_letter": outside},
    },
    "PUT /v0/routers/:router source": lambda inside, outside: {
        "source": outside,
        "dest": inside,
    },
    "PUT /v0/routers/:router dest": lambda inside, outside: {"source": inside, "dest": outside},
    "POST /v0/write writes.topic": lambda inside, outside: {
        "writes": [
            {"topic": inside, "records": RECORDS},
            {"topic": outside, "records": RECORDS},
        ]
    },
    "POST /v0/write writes.config.dead_letter": lambda inside, outside: {
        "writes": [{"topic": inside, "records": RECORDS, "config": {"dead_letter": outside}}]
    },
}
PATHS = list(dict.fromkeys(route.path for route in ROUTES))
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")
# A key of the guarded server that lacks the scope.
WITHOUT = {"read": "write", "write": "read", "delete": "rw", "admin": "rw"}
# What a row's path needs to be well-formed.
QUERIES = {"GET /v0/topics/:topic/work": {"node": "w1"}}


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def path_of(path: str, topic: str) -> str:
    for name in _NAMES:
        path = path.replace(name, topic)
    return path.replace(":wid", "wid_BuRguGorNdVFWNQULz-rrw").replace(":key", "k")


def call(api: Api, route: Route, topic: str, **headers: str) -> httpx.Response:
    """A well-formed request to a route: its documented example."""
    path = path_of(route.path, topic)
    if route.method not in ("POST", "PUT"):
        query = QUERIES.get(name_of(route))
        return api.request(route.method, path, headers=headers, params=query)
    example: Any = route.operation.request_example
    if ":router" in route.path:
        # Its ends are names, too.
        example = {**example, "source": f"{topic}.source", "dest": f"{topic}.dest"}
    headers = {"Content-Type": "application/json", **headers}
    return api.request(route.method, path, content=json.dumps(example or {}), headers=headers)


@pytest.mark.parametrize("route", GUARDED, ids=name_of)
def test_every_route_wants_a_key(as_key: AsKey, topic: str, route: Route) -> None:
    """API 0.2: no key and a wrong key are 401."""
    answer = call(as_key(""), route, topic)
    refused(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    wrong = call(as_key(""), route, topic, Authorization="Bearer no-such-key")
    refused(wrong, 401, "unauthorized")


@pytest.mark.parametrize("route", SCOPED, ids=name_of)
def test_every_route_wants_its_scope(as_key: AsKey, topic: str, route: Route) -> None:
    """API 0.2: a key without the route's scope is 403, and is told which."""
    for scope in route.scope.split("+"):
        error = refused(call(as_key(WITHOUT[scope]), route, topic), 403, "forbidden")
        assert error["detail"]["scope"] == scope


@pytest.mark.parametrize("route", NAMED, ids=name_of)
def test_every_route_with_a_name_keeps_to_the_prefixes(
    as_key: AsKey, topic: str, route: Route
) -> None:
    """API 0.2: a name outside the key's prefixes is 403 whether it exists or not."""
    error = refused(call(as_key("tenant"), route, f"other:{topic}"), 403, "forbidden")
    assert error["detail"]["name"] == f"other:{topic}"


@pytest.mark.parametrize("route", NAMED, ids=name_of)
def test_every_route_with_a_name_works_inside_the_prefixes(
    as_key: AsKey, topic: str, route: Route
) -> None:
    """API 0.2: the same request with a name of the key's own is not refused by the key."""
    answer = call(as_key("tenant"), route, f"tenant42:{topic}")
    assert answer.status_code in (200, 201, 404), answer.content


def list_names(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    """The dotted places of a request schema that hold the name of a topic."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for field, member in schema.get("properties", {}).items():
        if member.get("pattern") == TOPIC_PATTERN:
            yield field
        inner = member.get("items", member)
        if "$ref" in inner:
            yield from (f"{field}.{place}" for place in list_names(document, inner))


def test_every_name_in_a_body_is_known() -> None:
    """A new field that names a topic gets a body below."""
    document = build(ROUTES)
    found = set()
    for route in ROUTES:
        path = re.sub(r":(\w+)", r"{\1}", route.path)
        body = document["paths"][path][route.method.lower()].get("requestBody")
        if body is not None:
            schema = body["content"]["application/json"]["schema"]
            found |= {f"{name_of(route)} {place}" for place in list_names(document, schema)}
    assert found == set(NAMES_IN_BODIES)


@pytest.mark.parametrize("outside", ["other:x", "tenant42", "Shared.x"])
@pytest.mark.parametrize("place", NAMES_IN_BODIES)
def test_every_name_in_a_body_keeps_to_the_prefixes(
    as_key: AsKey, topic: str, place: str, outside: str
) -> None:
    """API 0.2, decision 2.8: one name outside is 403, and nothing of the request is done."""
    method, path, _ = place.split()
    inside = f"tenant42:{topic}"
    body = NAMES_IN_BODIES[place](inside, outside)
    answer = as_key("tenant").request(method, path_of(path, inside), json=body)
    assert refused(answer, 403, "forbidden")["detail"]["name"] == outside
    refused(as_key("full").state(inside), 404, "topic_not_found")


@pytest.mark.parametrize("place", NAMES_IN_BODIES)
def test_the_same_bodies_work_inside_the_prefixes(as_key: AsKey, topic: str, place: str) -> None:
    """API 0.2: with names of its own the key is not refused."""
    method, path, _ = place.split()
    inside = f"tenant42:{topic}"
    body = NAMES_IN_BODIES[place](inside, f"shared.{topic}")
    assert as_key("tenant").request(method, path_of(path, inside), json=body).status_code == 201


@pytest.mark.parametrize("place", [place for place in NAMES_IN_BODIES if "config" in place])
def test_a_config_in_a_body_needs_admin(as_key: AsKey, topic: str, place: str) -> None:
    """Decision 2.8: whichever write carries it, and nothing of the request is done."""
    method, path, _ = place.split()
    body = NAMES_IN_BODIES[place](topic, "any")
    answer = as_key("rw").request(method, path_of(path, topic), json=body)
    assert refused(answer, 403, "forbidden")["detail"]["scope"] == "admin"
    refused(as_key("full").state(topic), 404, "topic_not_found")


def test_routes_without_a_name_are_known() -> None:
    """A new route without a name in its path says how prefixes bind it."""
    assert {name_of(route) for route in GUARDED if route not in NAMED} <= set(UNNAMED)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_refuses_other_methods(api: Api, topic: str, path: str) -> None:
    """API 0.6: 405 with the methods that are there, in the header and in the detail."""
    there = {route.method for route in ROUTES if route.path == path}
    allowed = sorted({*there, "OPTIONS", *(["HEAD"] if "GET" in there else [])})
    for method in METHODS:
        if method not in there:
            answer = api.request(method, path_of(path, topic))
            error = refused(answer, 405, "method_not_allowed")
            assert error["detail"]["allow"] == allowed
            assert answer.headers["allow"] == ", ".join(allowed)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_answers_options(api: Api, topic: str, path: str) -> None:
    """The methods of a path can be asked for."""
    answer = api.request("OPTIONS", path_of(path, topic))
    there = {route.method for route in ROUTES if route.path == path}
    assert answer.status_code == 204
    assert there <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize("route", [r for r in ROUTES if r.scope in (OPEN, PUBLIC)], ids=name_of)
def test_open_routes_need_no_key(as_key: AsKey, topic: str, route: Route) -> None:
    """API 8: probes and docs answer without a key."""
    assert call(as_key(""), route, topic).status_code == 200


@pytest.mark.parametrize("route", [r for r in ROUTES if r.scope == TOKEN], ids=name_of)
def test_token_routes_want_their_token(as_key: AsKey, topic: str, route: Route) -> None:
    """Streams spec 1.16: a key is no token of a claim, nor is nothing."""
    refused(call(as_key(""), route, topic), 401, "TOKEN_INVALID")
    assert call(as_key("full"), route, topic).status_code in (400, 401)

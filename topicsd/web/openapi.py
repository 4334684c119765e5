"""The OpenAPI 3.1 document, generated from the route table and the message types.

`build` is a pure function of the table, so a new row appears by itself. Errors that any
request of a kind may get are added here, by method and scope; the others are named by the
row's operation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import topicsd
from topicsd.model.errors import STATUS
from topicsd.web.docs import shapes
from topicsd.web.docs.fields import NAME, ROUTER_PATTERN
from topicsd.web.docs.operation import Operation, Parameter
from topicsd.web.docs.schema import Components
from topicsd.web.route import KEYED, OPEN, PUBLIC, TOKEN, Route

_JSON = "application/json"
_SEGMENT = re.compile(r":(\w+)")
_WITH_BODY = frozenset({"POST", "PUT"})
_KEYLESS = frozenset({OPEN, PUBLIC, TOKEN})
_SCOPE_TEXTS = {
    OPEN: "Needs no key.",
    PUBLIC: "Needs no key.",
    TOKEN: "Needs the token of a claim or a webhook.",
    KEYED: "Needs a key, with any scope.",
}

_ANY_REQUEST = ("invalid_request", "request_timeout", "payload_too_large", "internal")
_ANY_GUARDED = ("unauthorized", "forbidden", "throttled", "not_ready", "shutting_down")
_ANY_BODY = ("unsupported_media_type",)

_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before trying again.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {
        "WWW-Authenticate": {"description": "The scheme.", "schema": {"const": "Bearer"}},
    },
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
    507: _RETRY_AFTER,
}
_PHRASES = {
    400: "The request is malformed or over a limit",
    401: "No key, or an unknown one",
    403: "The key lacks the scope or the name",
    404: "It does not exist",
    406: "The client does not take an event stream",
    408: "The body did not arrive in time",
    409: "It conflicts with what is there",
    413: "The body is too large",
    415: "The body is not JSON",
    410: "Gone",
    412: "The tail is elsewhere",
    422: "The topic is full",
    429: "A limit is reached",
    500: "A bug, or corrupt bytes",
    503: "Not ready, or stopping",
    507: "The disk is full",
}
_TEXT = {"type": "string"}
_PATH_PARAMETERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "topic": (NAME, "Name of the topic, compared byte for byte.", "jobs"),
    "router": (
        {"type": "string", "pattern": ROUTER_PATTERN},
        "Name of the router, compared byte for byte.",
        "orders->audit",
    ),
    "stream": (
        _TEXT,
        "Name of the stream; may have several segments, its slashes raw or as `%2F`.",
        "chat/42",
    ),
    "key": (_TEXT, "A routing key, percent-encoded.", "user-42"),
    "id": (_TEXT, "Name of the subscription.", "indexer"),
    "path": (_TEXT, "Name of the stream, percent-encoded.", "chat%2F42"),
    "wid": (
        {"type": "string", "pattern": "^wid_[A-Za-z0-9_-]{22}$"},
        "The session, as `POST /v0/watch` named it.",
        "wid_BuRguGorNdVFWNQULz-rrw",
    ),
}
_INTRODUCTION = (
    "Append-only topics over plain JSON. Times are milliseconds since 1970, durations are "
    "milliseconds. Unknown request fields are ignored; ignore unknown reply fields. Every GET "
    "also answers HEAD, every path OPTIONS; any other method is 405 with `Allow`."
)


def build(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document for a table of routes."""
    components = Components()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _SEGMENT.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "topicsd",
            "version": topicsd.__version__,
            "description": _INTRODUCTION,
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(_tag(route) for route in routes)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.schemas.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _tag(route: Route) -> str:
    first, *rest = route.path.strip("/").split("/")
    return rest[0] if first in ("v0", "v1") and route.scope not in _KEYLESS else "server"


def _operation(route: Route, components: Components) -> dict[str, Any]:
    described = route.operation
    guarded = route.scope not in _KEYLESS
    scope = _SCOPE_TEXTS.get(route.scope, f"Needs the `{route.scope}` scope.")
    content: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [_tag(route)],
        "summary": route.summary,
        "description": f"{described.text} {scope}".strip(),
        "security": [{"key": []}] if guarded else [],
        "parameters": [
            *(_path_parameter(name) for name in _SEGMENT.findall(route.path)),
            *(_parameter(parameter) for parameter in described.parameters),
        ],
        "responses": _replies(described, components) | _refusals(route, components),
    }
    if described.request is not None:
        content["requestBody"] = {
            "required": described.request_required,
            "content": {
                _JSON: {
                    "schema": components.reference(described.request),
                    "example": described.request_example,
                }
            },
        }
    if described.requests:
        content["requestBody"] = {
            "required": False,
            "content": {
                media: {"schema": {"type": "string"}, "example": text}
                for media, text in described.requests.items()
            },
        }
    return content


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method.lower(), *words])


def _path_parameter(name: str) -> dict[str, Any]:
    schema, text, example = _PATH_PARAMETERS.get(name, ({"type": "string"}, "", "x"))
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": schema,
        "example": example,
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.text,
        "schema": parameter.schema,
        "example": parameter.example,
    }


def _replies(described: Operation, components: Components) -> dict[str, Any]:
    content: dict[str, Any] = {
        media: {"schema": {"type": "string"}, "example": text}
        for media, text in described.texts.items()
    }
    if described.reply is not None:
        content[_JSON] = {
            "schema": components.reference(described.reply),
            "example": described.reply_example,
        }
    elif not content:
        content[_JSON] = {"schema": {"type": "object"}}
    if described.switches:
        return {"101": {"description": "The connection is switched over", "content": content}}
    replies = {"200": {"description": "Done", "content": content}}
    if described.creates:
        replies["201"] = {"description": "Done, and the topic was created", "content": content}
    for status, text in described.statuses.items():
        replies[status] = {"description": text, "content": {}}
    return replies


def _refusals(route: Route, components: Components) -> dict[str, Any]:
    """Every error the route may answer, grouped by status."""
    by_status: dict[int, list[str]] = {}
    for code in error_codes(route):
        by_status.setdefault(STATUS[code], []).append(code)
    return {
        str(status): _refusal(status, codes, components)
        for status, codes in sorted(by_status.items())
    }


def error_codes(route: Route) -> list[str]:
    """The codes a route may answer: its own, and those of every route of its kind."""
    codes = [*route.operation.errors, *_ANY_REQUEST]
    if route.scope not in _KEYLESS:
        codes += _ANY_GUARDED
    elif route.scope == OPEN:
        # With TOPICS_PROBE_AUTH, which also counts them among a key's requests in flight.
        codes += ("unauthorized", "throttled")
    if route.method in _WITH_BODY:
        codes += _ANY_BODY
    return list(dict.fromkeys(codes))


def _refusal(status: int, codes: list[str], components: Components) -> dict[str, Any]:
    content: dict[str, Any] = {
        "description": f"{_PHRASES[status]}: {', '.join(f'`{code}`' for code in codes)}",
        "content": {
            _JSON: {
                "schema": {
                    "allOf": [
                        components.reference(shapes.Error),
                        {"properties": {"error": {"properties": {"code": {"enum": codes}}}}},
                    ]
                },
                "examples": {code: {"value": _example(code)} for code in codes},
            }
        },
    }
    if status in _HEADERS:
        content["headers"] = _HEADERS[status]
    return content


def _example(code: str) -> dict[str, Any]:
    return {
        "error": {"code": code, "message": code.replace("_", " ")},
        "performance": {"server_total_ms": 0.05},
    }

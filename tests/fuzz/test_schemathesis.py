"""The server keeps what its OpenAPI document promises, whatever is sent within and around it."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.harness.server import Server
from topicsd.web.openapi import build
from topicsd.web.routes import ROUTES

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# A stream answers in the content type it was created with; a listing of them is an array.
STREAM_CHECKS = [not_a_server_error, status_code_conformance]
EXAMPLES = 60
WAIT_MS_MAX = 20
DEADLINE_S = 5
NAMES = 3


# What the server serves (tests/contract/v0/test_docs.py), known before one runs.
schema = schemathesis.openapi.from_dict(build(ROUTES))


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_server_keeps_its_document(case: Any, server: Server) -> None:
    """No 5xx; status, content type, headers and body are what the document says."""
    _meet(case)
    _hurry(case.body)
    _hurry(case.query)
    checks = STREAM_CHECKS if _is_stream(case.path) else CHECKS
    case.call_and_validate(base_url=server.url, checks=checks, timeout=DEADLINE_S)


def _is_stream(path: str) -> bool:
    return "/stream" in path or "{stream}" in path or "__ds" in path


def _meet(case: Any) -> None:
    """Let most requests meet in a few topics, so that some of them exist."""
    name = (case.path_parameters or {}).get("topic")
    if isinstance(name, str) and name.isalnum():
        case.path_parameters["topic"] = f"fuzz{len(name) % NAMES}"


def _hurry(fields: Any) -> None:
    """Shorten a wait that the server would be right to make."""
    if isinstance(fields, dict) and isinstance(fields.get("wait_ms"), int):
        fields["wait_ms"] = min(fields["wait_ms"], WAIT_MS_MAX)
    if isinstance(fields, dict) and "live" in fields:
        # An event stream is right to stay open, a long poll to wait.
        fields |= {"live": "long-poll", "timeout_ms": str(WAIT_MS_MAX)}

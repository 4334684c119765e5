"""Instance-wide caps (API 11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.server import Server


def throttled(answer: httpx.Response, limit: str, maximum: int) -> dict[str, Any]:
    error = refused(answer, 429, "throttled")
    assert (error["detail"]["limit"], error["detail"]["max"]) == (limit, maximum)
    assert int(answer.headers["retry-after"]) >= 1
    return error


def test_topics_and_bytes_are_capped(launch: Callable[..., Server]) -> None:
    """API 11: 429 names the cap; what exists can still be configured, written and deleted."""
    server = launch(TOPICS_MAX_TOPICS="2", TOPICS_MAX_TOTAL_BYTES="1000")
    api = Api(server)
    good(api.put("a"), 201)
    good(api.append("b", 1), 201)
    throttled(api.put("c"), "max_topics", 2)
    throttled(api.append("c", 1), "max_topics", 2)
    refused(api.state("c"), 404, "topic_not_found")
    good(api.put("a", {"ttl_ms": 5_000_000}))
    good(api.append("a", 2))
    good(api.delete("b"))
    good(api.append("c", 1), 201)
    throttled(api.append("a", "x" * 1000), "max_total_bytes", 1000)
    assert good(api.state("a"))["head_seq"] == 1
    good(api.append("a", "x" * 500))
    throttled(api.append("c", "x" * 600), "max_total_bytes", 1000)
    good(api.delete("a"))
    good(api.append("c", "x" * 600))
    api.close()

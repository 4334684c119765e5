"""A write that is refused creates no topic (API 2: all or nothing)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.server import Server

TOO_LARGE = [
    {"cap_records": 1, "discard": "reject"},
    {"cap_bytes": 3, "discard": "reject"},
    {"cap_records": 1, "cap_bytes": 1, "discard": "reject", "durability": "fsync"},
    {"cap_records": 1, "discard": "reject", "durability": "ephemeral"},
]


@pytest.mark.parametrize("config", TOO_LARGE)
@pytest.mark.parametrize("create", [{}, {"create": True}])
def test_a_write_larger_than_its_topic_would_be_creates_none(
    api: Api, topic: str, config: dict[str, Any], create: dict[str, bool]
) -> None:
    """It could never fit, so 400 `record_too_large`, and the name stays free."""
    for _ in range(2):
        answer = api.append(topic, 10, 20, config=config, idempotency_key="k", **create)
        refused(answer, 400, "record_too_large")
        refused(api.state(topic), 404, "topic_not_found")
        refused(api.diff(topic), 404, "topic_not_found")
    assert topic not in [each["topic"] for each in good(api.list(prefix=topic))["topics"]]
    written = good(api.append(topic, 10, 20, idempotency_key="k"), 201)
    assert (written["first_seq"], written["created"], written["deduped"]) == (1, True, False)
    assert good(api.state(topic))["config"]["cap_records"] == 0


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"records": []}, 400, "invalid_request"),
        ({"records": [{}]}, 400, "invalid_request"),
        ({"records": [{"data": 1}], "config": {"ttl_ms": -1}}, 400, "invalid_request"),
        ({"records": [{"data": 1}], "config": {"auto_create": False}}, 404, "topic_not_found"),
        ({"records": [{"data": 1}], "create": False}, 404, "topic_not_found"),
    ],
)
def test_a_write_refused_for_another_reason_creates_none(
    api: Api, topic: str, fields: dict[str, Any], status: int, code: str
) -> None:
    """Whatever is wrong with it."""
    refused(api.request("POST", f"/v0/topics/{topic}", json=fields), status, code)
    refused(api.state(topic), 404, "topic_not_found")


def test_a_part_of_an_atomic_write_that_does_not_fit_creates_none(api: Api, topic: str) -> None:
    """Neither its own topic nor those of the parts before it."""
    fits = {"topic": f"{topic}-a", "records": [{"data": 1}]}
    large = {"topic": f"{topic}-b", "records": [{"data": 1}, {"data": 2}], "config": TOO_LARGE[0]}
    answer = api.request("POST", "/v0/write", json={"writes": [fits, large]})
    refused(answer, 400, "record_too_large")
    for name in ("a", "b"):
        refused(api.state(f"{topic}-{name}"), 404, "topic_not_found")


def test_a_write_beyond_a_limit_of_the_server_creates_none(launch: Callable[..., Server]) -> None:
    """API 11: 429 for the total of bytes and for the number of topics."""
    api = Api(launch(TOPICS_MAX_TOTAL_BYTES="100", TOPICS_MAX_TOPICS="1"))
    refused(api.append("large", "x" * 200), 429, "throttled")
    refused(api.state("large"), 404, "topic_not_found")
    good(api.append("first", 1), 201)
    refused(api.append("second", 1), 429, "throttled")
    refused(api.state("second"), 404, "topic_not_found")
    api.close()

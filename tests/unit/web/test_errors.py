"""The envelope and the headers that go with a code."""

from __future__ import annotations

import json

import pytest
from sanic import exceptions

from topicsd.model import errors
from topicsd.model.errors import STATUS, TopicsError
from topicsd.web.errors import from_sanic, refusal


def test_the_envelope_has_code_message_detail_and_performance() -> None:
    """API 0.5 and 0.9."""
    reply = refusal(errors.topic_not_found("jobs"), 1500)
    expected = {
        "error": {
            "code": "topic_not_found",
            "message": 'topic "jobs" does not exist',
            "detail": {"topic": "jobs"},
        },
        "performance": {"server_total_ms": 1.5},
    }
    assert (404, expected) == (reply.status, json.loads(reply.body))


def test_an_absent_detail_is_absent() -> None:
    """Absence, not null."""
    assert "detail" not in json.loads(refusal(errors.internal(), 0).body)["error"]


@pytest.mark.parametrize(("delay_ms", "seconds"), [(1, "1"), (1000, "1"), (1001, "2"), (0, "1")])
def test_retry_after_is_rounded_up_to_whole_seconds(delay_ms: int, seconds: str) -> None:
    """Never 0, which would mean at once."""
    error = TopicsError("throttled", "", None, delay_ms)
    assert (("retry-after", seconds),) == refusal(error, 0).headers


def test_every_code_renders() -> None:
    """No code of the table lacks a status line."""
    for code, status in STATUS.items():
        assert status == refusal(TopicsError(code, "x"), 0).status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.BadRequest("x"), "invalid_request"),
        (exceptions.BadURL("x"), "invalid_request"),
        (exceptions.ExpectationFailed("x"), "invalid_request"),
        (exceptions.RequestTimeout("x"), "request_timeout"),
        (exceptions.PayloadTooLarge("Request body exceeds"), "payload_too_large"),
        (exceptions.PayloadTooLarge("Request header exceeds"), "payload_too_large"),
        (exceptions.ServiceUnavailable("Response Timeout"), "not_ready"),
        (exceptions.ServerError("x"), "internal"),
    ],
)
def test_what_sanic_refuses_gets_our_code(error: exceptions.SanicException, code: str) -> None:
    """Clients branch on codes, whoever refused."""
    assert code == from_sanic(error, 10).code

"""Refusals on the wire: the envelope of API 0.5 and the headers that go with a code."""

from __future__ import annotations

from typing import Any

from sanic.exceptions import PayloadTooLarge, RequestTimeout, SanicException, ServiceUnavailable

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.web.reply import Reply, json_reply


def refusal(error: TopicsError, elapsed_us: int) -> Reply:
    """Render an expected refusal."""
    envelope: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.detail is not None and error.code == "ALREADY_CLAIMED":
        # The protocol of subscriptions has the holder beside the code.
        envelope |= error.detail
    elif error.detail is not None:
        envelope["detail"] = error.detail
    reply = json_reply(error.status, {"error": envelope}, elapsed_us, error.throttle_wait_ms)
    return reply._replace(headers=(*_headers(error), *error.headers))


def _headers(error: TopicsError) -> list[tuple[str, str]]:
    if error.retry_after_ms is not None:
        # Whole seconds, rounded up, and never "at once".
        return [("retry-after", str(max(1, -(-error.retry_after_ms // 1000))))]
    if error.code == "method_not_allowed" and error.detail:
        return [("allow", ", ".join(error.detail["allow"]))]
    if error.code == "unauthorized":
        return [("www-authenticate", "Bearer")]
    return []


def from_sanic(error: SanicException, max_body_bytes: int) -> TopicsError:
    """Say in our words what Sanic refused before or while a handler ran."""
    if isinstance(error, PayloadTooLarge):
        if "header" in str(error):
            return TopicsError("payload_too_large", "the request header is too large")
        return errors.payload_too_large(max_body_bytes)
    if isinstance(error, RequestTimeout):
        return errors.request_timeout("the request did not arrive in time")
    if isinstance(error, ServiceUnavailable):
        return TopicsError("not_ready", "the request was not answered in time", None, 1000)
    if error.status_code < 500:
        return errors.invalid_request(f"malformed HTTP request: {error}")
    return errors.internal()

"""The one error type, and the table from its code to an HTTP status (API 0.5, 0.6).

Every expected refusal in the product is a `TopicsError` built by the constructor named
after its code, so that the code, the message and the detail are decided in one place and
survive a process hop. Anything else that is raised is a bug and answers `internal`.
"""

from __future__ import annotations

from typing import Any

STATUS: dict[str, int] = {
    "invalid_request": 400,
    # These two only on a WebSocket, where a code has no status.
    "invalid_json": 400,
    "unsupported_message": 400,
    "batch_too_large": 400,
    "record_too_large": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "producer_fenced": 403,
    "not_found": 404,
    "topic_not_found": 404,
    "router_not_found": 404,
    "stream_not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "request_timeout": 408,
    "append_timeout": 408,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "router_cycle": 409,
    "not_a_queue": 409,
    "stream_conflict": 409,
    "stream_closed": 409,
    "stream_seq_conflict": 409,
    "producer_gap": 409,
    "content_type_mismatch": 409,
    "stream_gone": 410,
    "offset_gone": 410,
    "precondition_failed": 412,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "throttled": 429,
    "internal": 500,
    "storage_corrupt": 500,
    "not_ready": 503,
    "shutting_down": 503,
    "storage_full": 507,
    # Those of subscriptions, which their protocol spells in capitals.
    "INVALID_REQUEST": 400,
    "WEBHOOK_URL_REJECTED": 400,
    "TOKEN_INVALID": 401,
    "SUBSCRIPTION_NOT_FOUND": 404,
    "SUBSCRIPTION_ALREADY_EXISTS": 409,
    "FENCED": 409,
    "ALREADY_CLAIMED": 409,
    "NO_PENDING_WORK": 409,
    "INVALID_OFFSET": 409,
}


class TopicsError(Exception):
    """A refusal with a stable code; `detail` is optional structured context."""

    def __init__(
        self,
        code: str,
        message: str,
        detail: dict[str, Any] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.detail = detail
        self.retry_after_ms = retry_after_ms
        # How long the request stood in line, when that is why it was refused.
        self.throttle_wait_ms: float | None = None
        # Header lines that one door adds to the refusal.
        self.headers: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> int:
        return STATUS[self.code]


def invalid_request(message: str, **detail: Any) -> TopicsError:
    return TopicsError("invalid_request", message, detail or None)


def invalid_json(message: str) -> TopicsError:
    return TopicsError("invalid_json", message)


def unsupported_message() -> TopicsError:
    return TopicsError("unsupported_message", "messages are JSON text, not binary")


def batch_too_large(count: int, limit: int) -> TopicsError:
    return TopicsError(
        "batch_too_large",
        f"a write takes at most {limit} records, not {count}",
        {"count": count, "max": limit},
    )


def record_too_large(message: str, **detail: Any) -> TopicsError:
    return TopicsError("record_too_large", message, detail or None)


def unauthorized(message: str = "missing or unknown bearer token") -> TopicsError:
    return TopicsError("unauthorized", message)


def forbidden(message: str, **detail: Any) -> TopicsError:
    return TopicsError("forbidden", message, detail or None)


def not_found(path: str) -> TopicsError:
    return TopicsError("not_found", f'there is nothing at "{path}"', {"path": path})


def topic_not_found(topic: str) -> TopicsError:
    return TopicsError("topic_not_found", f'topic "{topic}" does not exist', {"topic": topic})


def router_not_found(router: str) -> TopicsError:
    return TopicsError("router_not_found", f'router "{router}" does not exist', {"router": router})


def router_cycle(cycle: list[str]) -> TopicsError:
    return TopicsError(
        "router_cycle", f"the routers would form a cycle: {' -> '.join(cycle)}", {"cycle": cycle}
    )


def method_not_allowed(method: str, allowed: list[str]) -> TopicsError:
    return TopicsError(
        "method_not_allowed",
        f"{method} is not allowed here; use {', '.join(allowed)}",
        {"allow": allowed},
    )


def request_timeout(message: str) -> TopicsError:
    return TopicsError("request_timeout", message)


def append_timeout() -> TopicsError:
    return TopicsError(
        "append_timeout",
        "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying",
    )


def topic_exists_incompatible(topic: str, message: str, **detail: Any) -> TopicsError:
    return TopicsError("topic_exists_incompatible", message, {"topic": topic, **detail})


def topic_not_empty(topic: str, count: int) -> TopicsError:
    return TopicsError(
        "topic_not_empty",
        f'topic "{topic}" still holds {count} records',
        {"topic": topic, "count": count},
    )


def not_a_queue(topic: str) -> TopicsError:
    return TopicsError("not_a_queue", f'topic "{topic}" is not a queue', {"topic": topic})


def too_many_jobs(count: int, limit: int) -> TopicsError:
    return TopicsError(
        "batch_too_large",
        f"at most {limit} jobs can be named at once, not {count}",
        {"count": count, "max": limit},
    )


def stream_not_found(name: str) -> TopicsError:
    return TopicsError("stream_not_found", f'stream "{name}" does not exist', {"stream": name})


def stream_gone(name: str) -> TopicsError:
    return TopicsError("stream_gone", f'stream "{name}" is deleted', {"stream": name})


def stream_conflict(name: str, message: str) -> TopicsError:
    return TopicsError("stream_conflict", f'stream "{name}": {message}', {"stream": name})


def stream_closed(epoch: int, entries: int) -> TopicsError:
    return TopicsError(
        "stream_closed", "the stream is closed", {"epoch": epoch, "entries": entries}
    )


def stream_seq_conflict(seq: str, last: str) -> TopicsError:
    return TopicsError(
        "stream_seq_conflict",
        "Stream-Seq must be greater than the last one",
        {"received": seq, "last": last},
    )


def producer_fenced(epoch: int) -> TopicsError:
    return TopicsError(
        "producer_fenced", "a later epoch of this producer has written", {"epoch": epoch}
    )


def producer_gap(expected: int, received: int) -> TopicsError:
    return TopicsError(
        "producer_gap",
        f"Producer-Seq {expected} was expected, not {received}",
        {"expected": expected, "received": received},
    )


def content_type_mismatch(expected: str) -> TopicsError:
    return TopicsError(
        "content_type_mismatch",
        f"the stream's content type is {expected}",
        {"content_type": expected},
    )


def offset_gone(message: str, **detail: Any) -> TopicsError:
    return TopicsError("offset_gone", message, detail or None)


def precondition_failed(epoch: int, entries: int) -> TopicsError:
    return TopicsError(
        "precondition_failed",
        "the stream's tail is not where If-Match says",
        {"epoch": epoch, "entries": entries},
    )


def payload_too_large(limit: int) -> TopicsError:
    return TopicsError("payload_too_large", f"the body exceeds {limit} bytes", {"max_bytes": limit})


def unsupported_media_type(found: str) -> TopicsError:
    return TopicsError(
        "unsupported_media_type",
        "a request body needs Content-Type: application/json",
        {"content_type": found},
    )


def topic_full(topic: str, **detail: Any) -> TopicsError:
    return TopicsError(
        "topic_full", f'topic "{topic}" is full and discards nothing', {"topic": topic, **detail}
    )


def throttled(limit: str, maximum: int, retry_after_ms: int = 1000) -> TopicsError:
    return TopicsError(
        "throttled",
        f"the limit {limit} ({maximum}) is reached",
        {"limit": limit, "max": maximum},
        retry_after_ms,
    )


def under_pressure(retry_after_ms: int, waited_ms: float) -> TopicsError:
    error = TopicsError(
        "throttled",
        "the server is busy and this request has waited for too long",
        {"retry_after_ms": retry_after_ms},
        retry_after_ms,
    )
    error.throttle_wait_ms = waited_ms
    return error


def internal() -> TopicsError:
    return TopicsError("internal", "internal error; the server's log has the cause")


def storage_corrupt(file: str, position: int, problem: str) -> TopicsError:
    return TopicsError(
        "storage_corrupt",
        f"{file} at {position}: {problem}",
        {"file": file, "position": position},
    )


def storage_full(message: str) -> TopicsError:
    return TopicsError("storage_full", message, None, 1000)


def not_ready(replay_progress: float) -> TopicsError:
    return TopicsError(
        "not_ready",
        "the engine is not ready yet",
        {"replay_progress": round(replay_progress, 4)},
        1000,
    )


def shutting_down() -> TopicsError:
    return TopicsError("shutting_down", "the server is shutting down", None, 1000)


def invalid_subscription(message: str, **detail: Any) -> TopicsError:
    return TopicsError("INVALID_REQUEST", message, detail or None)


def webhook_url_rejected(url: str) -> TopicsError:
    return TopicsError(
        "WEBHOOK_URL_REJECTED",
        "a webhook goes to an https URL on the internet, or to localhost",
        {"url": url[:300]},
    )


def token_invalid() -> TopicsError:
    return TopicsError("TOKEN_INVALID", "the bearer token is not the one of this wake")


def subscription_not_found(name: str) -> TopicsError:
    return TopicsError("SUBSCRIPTION_NOT_FOUND", f'subscription "{name[:300]}" does not exist')


def subscription_exists(name: str) -> TopicsError:
    return TopicsError(
        "SUBSCRIPTION_ALREADY_EXISTS",
        f'subscription "{name[:300]}" exists with another configuration',
    )


def fenced(generation: int) -> TopicsError:
    return TopicsError("FENCED", "this wake is over", {"generation": generation})


def already_claimed(holder: str, generation: int) -> TopicsError:
    return TopicsError(
        "ALREADY_CLAIMED",
        "somebody else holds the lease",
        {"current_holder": holder, "generation": generation},
    )


def no_pending_work() -> TopicsError:
    return TopicsError("NO_PENDING_WORK", "all entries are acknowledged")


def invalid_offset(path: str) -> TopicsError:
    return TopicsError(
        "INVALID_OFFSET", "the offset cannot be acknowledged", {"stream": path[:300]}
    )

"""Reading answers: what every success and every refusal of the API has in common."""

from __future__ import annotations

from typing import Any, Protocol


class Answer(Protocol):
    """A response of either client."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Any: ...
    @property
    def content(self) -> bytes: ...
    def json(self) -> Any: ...


def good(answer: Answer, status: int = 200) -> dict[str, Any]:
    """The body of a success: bare JSON with a measured performance block (API 0.5, 0.9)."""
    assert answer.status_code == status, (answer.status_code, answer.content[:2000])
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert "error" not in body
    assert_performance(body)
    return body


def refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The `error` object of a refusal in the canonical envelope (API 0.5)."""
    assert answer.status_code == status, (answer.status_code, answer.content[:2000])
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert set(body) == {"error", "performance"}
    assert_performance(body)
    error = body["error"]
    assert error["code"] == code, error
    assert isinstance(error["message"], str) and error["message"]
    assert set(error) <= {"code", "message", "detail"}
    assert isinstance(error.get("detail", {}), dict)
    return error


def assert_performance(body: dict[str, Any]) -> None:
    """Every JSON body says how long it took (API 0.9)."""
    total = body["performance"]["server_total_ms"]
    assert isinstance(total, int | float) and not isinstance(total, bool)
    assert 0 <= total < 60_000


def seqs(page: dict[str, Any]) -> list[int]:
    return [record["$seq"] for record in page["records"]]


def payloads(page: dict[str, Any]) -> list[Any]:
    return [record["data"] for record in page["records"]]

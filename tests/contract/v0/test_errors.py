"""The error envelope (API 0.5) and status codes (API 0.6) on every kind of refusal."""

from __future__ import annotations

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api

BODY = b'{"records":[{"data":1}]}'


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v0",
        "/v0/",
        "/v0/nothing",
        "/v0/topics/a/b",
        "/v0/topics/a/diff/c",
        "/v0/Topics",
        "/favicon.ico",
        "/v0/health/x",
        "//v0/topics",
    ],
)
def test_unknown_paths_are_not_found(api: Api, path: str) -> None:
    """API 0.6: 404 in the envelope."""
    refused(api.request("GET", path), 404, "not_found")


@pytest.mark.parametrize("path", ["/v2/topics", "/V0/topics", "/%00", "/nowhere"])
def test_other_paths_are_streams_that_are_not_there(api: Api, path: str) -> None:
    """Streams spec 2: an unreserved first segment is a stream's name."""
    refused(api.request("GET", path), 404, "stream_not_found")


@pytest.mark.parametrize(
    "method, path, allowed",
    [
        ("PATCH", "/v0/topics/x", {"PUT", "GET", "DELETE", "POST"}),
        ("POST", "/v0/topics", {"GET"}),
        ("PUT", "/v0/topics", {"GET"}),
        ("DELETE", "/v0/topics", {"GET"}),
        ("PUT", "/v0/topics/x/diff", {"GET", "POST"}),
        ("DELETE", "/v0/topics/x/diff", {"GET", "POST"}),
        ("POST", "/v0/health", {"GET"}),
        ("PUT", "/readyz", {"GET"}),
        ("DELETE", "/healthz", {"GET"}),
        ("TRACE", "/v0/topics", {"GET"}),
        ("BREW", "/v0/topics", {"GET"}),
    ],
)
def test_a_wrong_method_names_the_right_ones(
    api: Api, method: str, path: str, allowed: set[str]
) -> None:
    """API 0.6: 405 method_not_allowed, with the Allow header that HTTP demands."""
    answer = api.request(method, path)
    refused(answer, 405, "method_not_allowed")
    named = {name.strip() for name in answer.headers["allow"].split(",")}
    assert named - {"HEAD", "OPTIONS"} == allowed


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "json",
        "",
        "application/xml",
        "text/json; application/json",
        "application/x-ndjson",
    ],
)
@pytest.mark.parametrize("method, suffix", [("POST", ""), ("POST", "/diff"), ("PUT", "")])
def test_a_body_needs_the_json_content_type(
    api: Api, topic: str, method: str, suffix: str, content_type: str | None
) -> None:
    """API 0.3: application/json is required on every POST and PUT with a body."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = api.request(method, f"/v0/topics/{topic}{suffix}", content=BODY, headers=headers)
    refused(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json ; charset=utf-8",
        "application/json;",
    ],
)
def test_the_content_type_is_compared_without_case_and_parameters(
    api: Api, topic: str, content_type: str
) -> None:
    """Decision 2.9: parameters and case do not matter."""
    headers = {"Content-Type": content_type}
    good(api.request("POST", f"/v0/topics/{topic}", content=BODY, headers=headers), 201)


def test_a_write_without_body_is_a_bad_request(api: Api, topic: str) -> None:
    """Decision 2.9: no body needs no content type; records are then missing."""
    refused(api.request("POST", f"/v0/topics/{topic}"), 400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"}",
        b"nope",
        b'{"records":[{"data":1}]',
        b'{"records":[{"data":1}]}x',
        b"\x00",
        b"[1]",
        b"null",
        b'"x"',
        b"5",
        b"\xef\xbb\xbf",
        b'{"records":[{"data":1}],}',
        b" ",
    ],
    ids=repr,
)
def test_bad_json_is_a_bad_request(api: Api, topic: str, body: bytes) -> None:
    """API 0.6: malformed bodies are 400 invalid_request."""
    refused(api.write_bytes(topic, body), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


def test_an_error_names_what_is_missing(api: Api, topic: str) -> None:
    """API 0.5: the example of the envelope, field by field."""
    error = refused(api.state(topic), 404, "topic_not_found")
    assert error["detail"] == {"topic": topic}
    assert topic in error["message"]


def test_an_error_names_the_field(api: Api, topic: str) -> None:
    """API 0.5: the message of a mistyped field says which one it is."""
    error = refused(api.put(topic, {"ttl_ms": "soon"}), 400, "invalid_request")
    assert "ttl_ms" in error["message"]
    error = refused(api.append(topic, 1, create="yes"), 400, "invalid_request")
    assert "create" in error["message"]
    good(api.put(topic), 201)
    error = refused(api.diff(topic, limit="all"), 400, "invalid_request")
    assert "limit" in error["message"]


def test_a_long_query_is_answered(api: Api) -> None:
    """API 0.5: an absurd cursor is an ordinary refusal."""
    refused(api.list(cursor="A" * 4000), 400, "invalid_request")


def test_refusals_keep_the_connection(api: Api, topic: str) -> None:
    """API 0.5: after a refusal the same connection serves the next request."""
    for _ in range(12):
        refused(api.write_bytes(topic, b"{"), 400, "invalid_request")
        refused(api.state(topic), 404, "topic_not_found")
    good(api.append(topic, 1), 201)


def test_an_answer_has_no_status_envelope(api: Api, topic: str) -> None:
    """API 0.5: success is bare data; only a top-level error key tells failure."""
    body = good(api.append(topic, 1), 201)
    assert "status" not in body and "error" not in body


def test_answers_are_json_with_a_length(api: Api, topic: str) -> None:
    """API 0.3: response bodies are application/json."""
    answers = [api.put(topic), api.append(topic, 1), api.diff(topic), api.state(topic), api.list()]
    for answer in answers:
        assert answer.headers["content-type"].partition(";")[0] == "application/json"
        assert "content-length" in answer.headers

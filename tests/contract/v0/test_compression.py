"""gzip in both directions (API 0.3)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.raw import build_request, exchange
from tests.harness.server import Server

GZIP = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


def test_a_gzip_body_is_written(api: Api, topic: str) -> None:
    """API 0.3: Content-Encoding gzip is honored and the payload stays verbatim."""
    body = b'{"records":[{"data":1.10},{"data":"' + b"x" * 10_000 + b'"}]}'
    answer = api.request("POST", f"/v0/topics/{topic}", content=gzip.compress(body), headers=GZIP)
    assert good(answer, 201)["count"] == 2
    assert b'"data":1.10' in api.diff(topic).content


def test_large_answers_are_compressed_on_request(server: Server, api: Api, topic: str) -> None:
    """API 0.3: Accept-Encoding gzip is honored, and only then."""
    good(api.append(topic, "x" * 50_000), 201)
    path = f"/v0/topics/{topic}/diff"
    plain = exchange(server.address, build_request("POST", path, b"{}"))
    assert "content-encoding" not in plain.headers
    headers = {"Accept-Encoding": "deflate, gzip;q=0.8"}
    packed = exchange(server.address, build_request("POST", path, b"{}", headers))
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.content) < 5_000
    page = json.loads(gzip.decompress(packed.content))
    assert payloads(page) == ["x" * 50_000]


def test_gzip_may_be_declined(server: Server, api: Api, topic: str) -> None:
    """RFC 9110 12.5.3: a weight of zero means not acceptable."""
    good(api.append(topic, "x" * 50_000), 201)
    headers = {"Accept-Encoding": "gzip;q=0, identity"}
    request = build_request("POST", f"/v0/topics/{topic}/diff", b"{}", headers)
    assert "content-encoding" not in exchange(server.address, request).headers


def test_a_bomb_is_refused(as_key: Callable[[str], Api], topic: str) -> None:
    """API 0.6: the body limit holds for the unpacked body."""
    bomb = gzip.compress(b" " * 5_000_000)
    assert len(bomb) < 100_000
    answer = as_key("full").request("POST", f"/v0/topics/{topic}", content=bomb, headers=GZIP)
    refused(answer, 413, "payload_too_large")


@pytest.mark.parametrize(
    "body", [b"not gzip", gzip.compress(b'{"records":[{"data":1}]}')[:-6], b"\x1f\x8b\x08"]
)
def test_broken_gzip_is_a_bad_request(api: Api, topic: str, body: bytes) -> None:
    """API 0.6: a body that does not unpack is 400."""
    answer = api.request("POST", f"/v0/topics/{topic}", content=body, headers=GZIP)
    refused(answer, 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


def test_other_encodings_are_unsupported(api: Api, topic: str) -> None:
    """API 0.6: a content coding the server does not know is 415."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "br"}
    answer = api.request("POST", f"/v0/topics/{topic}", content=b"xx", headers=headers)
    refused(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_body_that_nobody_reads_may_have_any_encoding(api: Api, topic: str, method: str) -> None:
    """API 0.6: 415 is for bodies that matter."""
    good(api.put(topic), 201)
    headers = {"Content-Encoding": "br"}
    good(api.request(method, f"/v0/topics/{topic}", content=b"x", headers=headers))

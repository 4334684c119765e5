"""HTTP itself (API 0.3, 0.6): framing, hostile requests, limits before the body is read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.raw import ConnectionEnded, RawConnection, build_request, exchange
from tests.harness.server import Server

BODY = b'{"records":[{"data":1}]}'
FULL_KEY = {"Authorization": "Bearer full-key"}


def post(topic: str, body: bytes = BODY, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return build_request("POST", f"/v0/topics/{topic}", body, named)


@pytest.fixture
def strict(guarded: Server) -> Iterator[RawConnection]:
    """A raw connection to the server with small limits."""
    with RawConnection(guarded.address) as connection:
        yield connection


def test_a_body_announced_too_large_is_refused_before_it_is_sent(
    raw: RawConnection, topic: str
) -> None:
    """API 0.6: 413 pre-parse: from Content-Length alone, no byte of the body needed."""
    head = build_request("POST", f"/v0/topics/{topic}", b"", {"Content-Length": "67108865"})
    raw.send(head)
    refused(raw.receive(), 413, "payload_too_large")


@pytest.mark.parametrize("path", ["/v0/topics/{}", "/v0/topics/{}/diff"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_every_route_with_a_body_has_the_limit(
    strict: RawConnection, topic: str, method: str, path: str
) -> None:
    """API 2: TOPICS_MAX_BODY_BYTES bounds any body."""
    if (method, path) == ("PUT", "/v0/topics/{}/diff"):
        path = "/v0/topics/{}"
    headers = {"Content-Length": "100001", **FULL_KEY}
    strict.send(build_request(method, path.format(topic), b"", headers))
    refused(strict.receive(), 413, "payload_too_large")


def test_a_chunked_body_is_refused_when_it_grows_too_large(
    strict: RawConnection, topic: str
) -> None:
    """API 0.6: without a length the limit applies while the body arrives."""
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked", **FULL_KEY}
    strict.send(build_request("POST", f"/v0/topics/{topic}", None, headers))
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    for _ in range(12):
        strict.send_tolerant(chunk)
    refused(strict.receive(), 413, "payload_too_large")


def test_a_chunked_body_is_read(raw: RawConnection, topic: str) -> None:
    """RFC 9112: a body in chunks, in pieces of any size, is the same body."""
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    raw.send(build_request("POST", f"/v0/topics/{topic}", None, headers))
    for start in range(0, len(BODY), 5):
        piece = BODY[start : start + 5]
        raw.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    raw.send(b"0\r\n\r\n")
    assert good(raw.receive(), 201)["seqs"] == [1]


def test_an_expected_continue_is_sent(raw: RawConnection, topic: str) -> None:
    """RFC 9110: curl waits for 100 Continue before it sends a large body."""
    raw.send(build_request("POST", f"/v0/topics/{topic}", b"", _expecting(len(BODY))))
    assert raw.receive().status == 100
    raw.send(BODY)
    good(raw.receive(), 201)


def test_an_expected_continue_for_too_much_is_refused(raw: RawConnection, topic: str) -> None:
    """API 0.6: the final 413 comes instead of 100 Continue."""
    raw.send(build_request("POST", f"/v0/topics/{topic}", b"", _expecting(67_108_865)))
    refused(raw.receive(), 413, "payload_too_large")


def _expecting(length: int) -> dict[str, str]:
    return {"Expect": "100-continue", "Content-Length": str(length)}


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 24\r\nContent-Length: 25\r\n",
        b"Content-Length: 24, 25\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: +24\r\n",
        b"Content-Length: 0x18\r\n",
        b"Content-Length: abc\r\n",
        b"Content-Length: 24\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
    ],
    ids=repr,
)
def test_an_ambiguous_length_is_refused(
    server: Server, api: Api, topic: str, headers: bytes
) -> None:
    """RFC 9112 6.3: conflicting or unreadable framing is an error and writes nothing."""
    head = f"POST /v0/topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    answer = exchange(server.address, head.encode() + headers + b"\r\n" + BODY)
    assert answer.status in (400, 413), answer
    assert answer.json()["error"]["code"] in ("invalid_request", "payload_too_large")
    refused(api.state(topic), 404, "topic_not_found")


def test_a_length_with_a_space_before_the_colon_is_refused(server: Server) -> None:
    """RFC 9112 5.1: it must be 400 and end there, or two servers disagree about the body."""
    head = "POST /v0/topics/x HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    inner = build_request("GET", "/healthz")
    request = head.encode() + b"Content-Length : %d\r\n\r\n" % len(inner) + inner
    with RawConnection(server.address) as connection:
        connection.send(request)
        refused(connection.receive(), 400, "invalid_request")
        assert connection.is_closed(), "the body was taken for a request"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_refused_body_is_never_taken_for_a_request(
    strict: RawConnection, topic: str, method: str
) -> None:
    """RFC 9112 9.3: after a refusal the rest of the body is skipped or the connection ends."""
    body = (build_request("GET", "/v0/health") * 3000)[:150_000]
    strict.send_tolerant(build_request(method, f"/v0/topics/{topic}", body, FULL_KEY))
    refused(strict.receive(), 413, "payload_too_large")
    strict.send_tolerant(build_request("GET", "/v0/topics?page_size=1", None, FULL_KEY))
    try:
        answer = strict.receive()
    except ConnectionEnded:
        return
    assert "topics" in good(answer)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n\r\nnonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v0/topics\r\n\r\n",
        b"GET /v0/topics HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /v0/topics HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /v0/topics HTTP/1.1\r\nHost : x\r\n\r\n",
        b"G\x00T /v0/topics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"POST /v0/topics/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/json\r\n\r\nZZZ\r\n",
    ],
    ids=lambda request: repr(request[:30]),
)
def test_what_is_not_http_is_refused_or_hung_up_on(
    server: Server, api: Api, request_bytes: bytes
) -> None:
    """API 0.5: a malformed request is answered 4xx in the envelope or its connection ends."""
    with RawConnection(server.address) as connection:
        connection.send_tolerant(request_bytes)
        connection.socket.shutdown(1)
        try:
            answer = connection.receive()
        except ConnectionEnded:
            answer = None
    if answer is not None:
        assert 400 <= answer.status < 500 or answer.status == 505, answer
        assert "error" in answer.json()
    good(api.list(page_size=1))


@pytest.mark.parametrize(
    "target", [b"/v0/topics/a\x00b", b"/v0/topics?prefix=\x01", b"/\x7f", b"topics", b"http://"]
)
def test_a_target_that_is_no_url_is_refused(server: Server, target: bytes) -> None:
    """API 0.5: every refusal has the envelope, also of what cannot be read."""
    request = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target
    refused(exchange(server.address, request), 400, "invalid_request")


def test_huge_headers_are_refused(server: Server, api: Api) -> None:
    """API 12: header bytes are bounded."""
    with RawConnection(server.address) as connection:
        connection.send(b"GET /v0/topics HTTP/1.1\r\nHost: x\r\n")
        for number in range(64):
            connection.send_tolerant(b"X-Pad-%d: %s\r\n" % (number, b"p" * 16_384))
        connection.send_tolerant(b"\r\n")
        try:
            status = connection.receive().status
        except ConnectionEnded:
            status = 431
    assert 400 <= status < 500
    good(api.list(page_size=1))


@pytest.mark.parametrize(
    "target",
    [
        "/v0/topics/a%2Fb",
        "/v0/topics/a%2fb",
        "/v0/topics/%2e%2e",
        "/v0/topics/..",
        "/v0/topics/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/v0/topics/%",
        "/v0/topics/a%zz",
        "/v0/topics/a%f",
        "/v0/topics/%C3%A9",
        "/v0/topics/a%C3",
        "/v0/topics/a%ED%A0%80",
        "/v0/topics/a%00b",
        "/v0/topics/a%0d%0aX-Injected:1",
        "/v0/topics/" + "a" * 256,
        "/v0/topics/" + "a" * 4000,
    ],
    ids=lambda target: target[:40],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_odd_names_on_the_wire_are_bad_requests(server: Server, target: str, method: str) -> None:
    """API 1.1, 12: a name is validated after decoding, never routed, never a path."""
    body = BODY if method == "POST" else None
    answer = exchange(server.address, build_request(method, target, body))
    refused(answer, 400, "invalid_request")
    assert "x-injected" not in answer.headers


def test_a_name_in_raw_bytes_is_refused(server: Server) -> None:
    """API 1.1: unescaped bytes outside ASCII are no name either."""
    answer = exchange(server.address, b"GET /v0/topics/caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n")
    refused(answer, 400, "invalid_request")


def test_a_name_of_255_bytes_works_on_the_wire(raw: RawConnection, topic: str) -> None:
    """API 1.1: the longest name, also fully percent-encoded."""
    name = (topic + "x" * 255)[:255]
    good(raw.request("PUT", f"/v0/topics/{name}", b"{}"), 201)
    encoded = "".join(f"%{byte:02X}" for byte in name.encode())
    assert good(raw.request("GET", f"/v0/topics/{encoded}"))["topic"] == name


def test_head_has_no_body_and_keeps_the_framing(raw: RawConnection, topic: str) -> None:
    """RFC 9110: HEAD answers like GET without content; the connection stays in step."""
    good(raw.request("PUT", f"/v0/topics/{topic}", b"{}"), 201)
    for target in ("/healthz", "/v0/topics", f"/v0/topics/{topic}"):
        head = raw.request("HEAD", target)
        assert head.status in (200, 405)
        assert good(raw.request("GET", f"/v0/topics/{topic}"))["topic"] == topic


def test_options_is_answered(raw: RawConnection) -> None:
    """RFC 9110: OPTIONS tells the methods, or is refused with them."""
    answer = raw.request("OPTIONS", "/v0/topics")
    assert answer.status in (200, 204, 405)
    assert "GET" in answer.headers["allow"]


def test_pipelined_requests_are_answered_in_order(raw: RawConnection, topic: str) -> None:
    """RFC 9112 9.3.2: several requests in one packet, of all kinds, answers in order."""
    requests = [post(topic, b'{"records":[{"data":%d}]}' % number) for number in range(5)]
    requests.insert(2, build_request("GET", "/healthz"))
    requests.insert(4, post(topic, b"{"))
    requests.append(build_request("POST", f"/v0/topics/{topic}/diff", b"{}"))
    raw.send(b"".join(requests))
    statuses = [raw.receive() for _ in range(8)]
    assert [answer.status for answer in statuses] == [201, 200, 200, 200, 400, 200, 200, 200]
    assert payloads(good(statuses[-1])) == [0, 1, 2, 3, 4]


def test_a_request_behind_a_long_poll_waits_its_turn(
    raw: RawConnection, api: Api, topic: str
) -> None:
    """RFC 9112 9.3.2: a pipelined request is answered after the one that waits."""
    good(api.put(topic), 201)
    wait = build_request("POST", f"/v0/topics/{topic}/diff", b'{"wait_ms":20000}')
    raw.send(wait + build_request("GET", "/healthz"))
    assert raw.is_silent(0.15)
    good(api.append(topic, "now"))
    assert payloads(good(raw.receive())) == ["now"]
    assert raw.receive().json()["status"] == "ok"


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_request_may_arrive_in_pieces(raw: RawConnection, topic: str, size: int) -> None:
    """RFC 9112: packets are not messages."""
    raw.socket.setsockopt(6, 1, 1)
    request = post(topic) + post(topic)
    for start in range(0, len(request), size):
        raw.send(request[start : start + size])
    assert good(raw.receive(), 201)["seqs"] == [1]
    assert good(raw.receive())["seqs"] == [2]


def test_a_large_body_in_many_packets(raw: RawConnection, topic: str) -> None:
    """API 2: bodies of megabytes are read whole."""
    records = [{"data": "x" * 100_000} for _ in range(80)]
    body = json.dumps({"records": records}).encode()
    raw.send(post(topic, body))
    assert good(raw.receive(), 201)["count"] == 80


def test_connection_close_is_honoured(raw: RawConnection, topic: str) -> None:
    """RFC 9112 9.6: the server answers, then closes."""
    raw.send(post(topic, Connection="close"))
    good(raw.receive(), 201)
    assert raw.is_closed()


def test_http_1_0_is_answered_and_closed(raw: RawConnection, topic: str) -> None:
    """RFC 9112: an old client without keep-alive gets its answer and a closed connection."""
    head = f"POST /v0/topics/{topic} HTTP/1.0\r\nContent-Type: application/json\r\n"
    raw.send(head.encode() + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    good(raw.receive(), 201)
    assert raw.is_closed()


def test_an_absolute_target_is_understood_or_refused(raw: RawConnection) -> None:
    """RFC 9112 3.2.2: absolute-form must not crash anything."""
    answer = raw.request("GET", "http://localhost/healthz")
    assert answer.status in (200, 400, 404)


@pytest.mark.parametrize("cut", [10, 60, 150])
def test_a_client_that_hangs_up_in_the_middle_writes_nothing(
    server: Server, api: Api, topic: str, cut: int
) -> None:
    """API 2: an incomplete request is no request."""
    good(api.put(topic), 201)
    body = json.dumps({"records": [{"data": "x" * 200}]}).encode()
    for _ in range(5):
        with RawConnection(server.address) as connection:
            connection.send(post(topic, body)[:cut])
    assert good(api.state(topic))["head_seq"] == 0


def test_lower_case_headers_are_headers(server: Server, topic: str) -> None:
    """RFC 9110 5.1: header names are case-insensitive."""
    head = f"POST /v0/topics/{topic} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request = head.encode() + b"idempotency-key: k\r\ncontent-LENGTH: %d\r\n\r\n" % len(BODY) + BODY
    good(exchange(server.address, request), 201)
    assert good(exchange(server.address, request))["deduped"] is True

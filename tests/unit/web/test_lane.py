"""The fast lane and Sanic answer the same bytes."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Iterator

import pytest

from tests.unit.web.fakes import World
from tests.unit.web.running import Running, head, post, read_all, read_response, running
from topicsd.web.lane import answer as lane_answer
from topicsd.web.lane import parse_head

ONE = b'{"records":[{"data":1}]}'
CLOSE = "Connection: close"
_TIMES = re.compile(rb'"[a-z_]+_ms":[0-9.e-]+')
_LENGTH = re.compile(rb"content-length: \d+")


def settings() -> World:
    world = World(max_body_bytes=100_000, keys="key,reader:read")
    world.store.create("full")
    return world


KEY = "Authorization: Bearer key"


def plain(target: str, body: bytes = ONE, *lines: str) -> bytes:
    return post(target, body, KEY, CLOSE, *lines)


LARGE = b'{"records":[' + b",".join([b'{"data":"%b"}' % (b"x" * 1000)] * 80) + b"]}"
DIFF = "/v0/topics/full/diff"

CORPUS: dict[str, bytes] = {
    "append": plain("/v0/topics/full"),
    "append to a new topic": plain("/v0/topics/new"),
    "append without seqs": plain("/v0/topics/full?return_seqs=false"),
    "odd query": plain("/v0/topics/full?return_seqs=maybe&x=%ff"),
    "query with a plus": plain("/v0/topics/full?a=b+c"),
    "large append": plain("/v0/topics/full", LARGE),
    "diff": plain(DIFF, b"{}"),
    "diff of nothing": plain("/v0/topics/none/diff", b"{}"),
    "diff compressed": plain(DIFF, b"{}", "Accept-Encoding: gzip"),
    "empty body": plain("/v0/topics/full", b""),
    "empty diff": plain(DIFF, b""),
    "bad json": plain("/v0/topics/full", b"{"),
    "bad utf-8": plain("/v0/topics/full", b'{"records":[{"data":"\xff"}]}'),
    "deep": plain("/v0/topics/full", b'{"records":[{"data":' + b"[" * 50_000),
    "bad name": plain("/v0/topics/a%2Fb"),
    "bad name encoding": plain("/v0/topics/%ff"),
    "long name": plain("/v0/topics/" + "a" * 256),
    "trailing slash": plain("/v0/topics/"),
    "unknown below": plain("/v0/topics/full/nothing"),
    "no key": post("/v0/topics/full", ONE, CLOSE),
    "wrong key": post("/v0/topics/full", ONE, CLOSE, "Authorization: Bearer x"),
    "no scope": post("/v0/topics/full", ONE, CLOSE, "Authorization: bearer reader"),
    "no content type": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, f"Content-Length: {len(ONE)}"
    ) + ONE,
    "content type in capitals": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, f"Content-Length: {len(ONE)}",
        "CONTENT-TYPE: Application/JSON; Charset=UTF-8",
    ) + ONE,
    "http 1.0": plain("/v0/topics/full").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "http 2.0": plain("/v0/topics/full").replace(b"HTTP/1.1", b"HTTP/2.0"),
    "lower-case method": plain("/v0/topics/full").replace(b"POST", b"post"),
    "absolute target": plain("http://test/v0/topics/full"),
    "fragment": plain("/v0/topics/full#x"),
    "no header colon": plain("/v0/topics/full", ONE, "Nonsense"),
    "two lengths": plain("/v0/topics/full", ONE, "Content-Length: 3"),
    "length is no number": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        "Content-Length: x",
    ) + ONE,
    "negative length": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        "Content-Length: -1",
    ),
    "too long by its length": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        "Content-Length: 100001",
    ),
    "chunked": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    ) + b"5\r\n" + ONE[:5] + b"\r\n%x\r\n" % (len(ONE) - 5) + ONE[5:] + b"\r\n0\r\n\r\n",
    "chunked too long": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    ) + b"30d42\r\nxyz",
    "bad chunk": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    ) + b"zz\r\n\r\n",
    "length and chunked": plain("/v0/topics/full", ONE, "Transfer-Encoding: chunked"),
    "gzip body": plain("/v0/topics/full", gzip.compress(ONE), "Content-Encoding: gzip"),
    "gzip bomb": plain("/v0/topics/full", gzip.compress(bytes(10**7)), "Content-Encoding: gzip"),
    "brotli body": plain("/v0/topics/full", ONE, "Content-Encoding: br"),
    "expect": plain("/v0/topics/full", ONE, "Expect: 100-continue"),
    "expect nonsense": plain("/v0/topics/full", ONE, "Expect: nonsense"),
    "blank in a header name": plain("/v0/topics/full", ONE, "X-A : 1"),
    "blank before the length": head(
        "POST /v0/topics/full HTTP/1.1", KEY, CLOSE, "Content-Type: application/json",
        f"Content-Length : {len(ONE)}",
    ) + ONE,
    "folded header": plain("/v0/topics/full", ONE, "X-A: 1", " more: 2"),
    "bare line feed": plain("/v0/topics/full", ONE, "X-A: 1\nContent-Length: 0"),
    "bare carriage return": plain("/v0/topics/full", ONE, "X-A: 1\rX-B: 2"),
    "nul in a header": plain("/v0/topics/full", ONE, "X-A: \0"),
    "tab in a header": plain("/v0/topics/full", ONE, "X-A: a\tb"),
    "repeated header": plain("/v0/topics/full", ONE, "X-A: 1", "X-A: 2"),
    "header not ascii": plain("/v0/topics/full", ONE, "X-A: é"),
    "idempotency header": plain("/v0/topics/full", ONE, "Idempotency-Key: abc"),
    "connection upgrade": post("/v0/topics/full", ONE, KEY, "Connection: Upgrade"),
    "huge header": plain("/v0/topics/full", ONE, "X-A: " + "a" * 20_000),
    "pipelined": post("/v0/topics/full", ONE, KEY) * 3 + plain(DIFF, b"{}"),
    "pipelined with others": post("/v0/topics/full", ONE, KEY)
    + head("GET /healthz HTTP/1.1")
    + post(DIFF, b"{}", KEY)
    + head("PUT /v0/topics/full HTTP/1.1", KEY)
    + plain("/v0/topics/full"),
    "get": head("GET /v0/topics/full HTTP/1.1", KEY, CLOSE),
    "head": head("HEAD /v0/topics/full HTTP/1.1", KEY, CLOSE),
    "options": head("OPTIONS /v0/topics/full HTTP/1.1", KEY, CLOSE),
    "unknown method": head("BREW /v0/topics/full HTTP/1.1", KEY, CLOSE),
    "garbage": b"\x16\x03\x01garbage\r\n\r\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def doors() -> Iterator[tuple[Running, Running]]:
    with running(settings()) as lane, running(settings(), lane=False) as stock:
        yield lane, stock


def stable(response: bytes) -> bytes:
    """A response without what differs from run to run: measured times and compressed bodies."""
    response = _LENGTH.sub(b"content-length: N", _TIMES.sub(b"TIME", response))
    if b"content-encoding: gzip" in response:
        return response.partition(b"\r\n\r\n")[0]
    return response


@pytest.mark.parametrize("name", CORPUS)
def test_both_doors_answer_the_same(doors: tuple[Running, Running], name: str) -> None:
    """Whatever comes in, the lane's answer is Sanic's answer."""
    lane, stock = doors
    data = CORPUS[name]
    expected, actual = stable(stock.exchange(data)), stable(lane.exchange(data))
    assert expected == actual
    assert actual.startswith(b"HTTP/1.1 ")


# Requests that are refused while they arrive end the connection before the second piece.
CUT_SHORT = {"no header colon", "blank in a header name", "blank before the length",
             "folded header", "bare line feed", "bare carriage return", "nul in a header",
             "two lengths", "length is no number", "negative length", "fragment",
             "length and chunked", "garbage", "http 2.0", "huge header", "bad chunk",
             "chunked too long", "expect nonsense", "pipelined", "pipelined with others",
             "large append"}  # fmt: skip
SPLIT = sorted(CORPUS.keys() - CUT_SHORT)


@pytest.mark.parametrize("name", SPLIT)
def test_split_requests_get_the_same_answer(doors: tuple[Running, Running], name: str) -> None:
    """A request in two pieces is the same request."""
    data = CORPUS[name]
    for server in doors:
        # The first of all may create its topic, and says so.
        server.exchange(data)
        whole = stable(server.exchange(data))
        end = data.find(b"\r\n\r\n") + 4
        for cut in {10, end, min(end + 3, len(data) - 1)}:
            with server.connect() as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(data[:cut])
                connection.sendall(data[cut:])
                assert _without_seqs(whole) == _without_seqs(stable(read_all(connection)))


def _without_seqs(response: bytes) -> bytes:
    return re.sub(rb"\d+|true|false|201 Created|200 OK|\[[^]]*\]", b"", response)


AMBIGUOUS = ["blank in a header name", "blank before the length", "folded header",
             "bare line feed", "bare carriage return", "nul in a header"]  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_heads_are_refused_once(doors: tuple[Running, Running], name: str) -> None:
    """400 and the end: the body is never taken for a second request."""
    for server in doors:
        response = server.exchange(CORPUS[name].replace(b"Connection: close\r\n", b""))
        assert response.startswith(b"HTTP/1.1 400 ")
        assert response.count(b"HTTP/1.1 ") == 1


def test_every_error_is_an_envelope(doors: tuple[Running, Running]) -> None:
    """No answer of Sanic's own gets out."""
    for name, data in CORPUS.items():
        response = doors[1].exchange(data)
        status = int(response.split(b" ", 2)[1])
        if status >= 400 and name != "head":
            content = json.loads(response.rpartition(b"\r\n\r\n")[2])
            assert {"error", "performance"} == set(content), name


def test_plain_posts_take_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above compares two different things."""
    taken: list[str] = []

    def spy(request: object, context: object) -> object:
        taken.append(request.path)  # type: ignore[attr-defined]
        return lane_answer(request, context)  # type: ignore[arg-type]

    monkeypatch.setattr("topicsd.web.lane.answer", spy)
    with running(World()) as server, server.connect() as connection:
        for _ in range(3):
            connection.sendall(post("/v0/topics/a", ONE))
            read_response(connection)
        connection.sendall(head("GET /healthz HTTP/1.1"))
        read_response(connection)
        connection.sendall(post("/v0/topics/b", ONE))
        read_response(connection)
    assert taken == ["/v0/topics/a"] * 3 + ["/v0/topics/b"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /v0/topics/a HTTP/1.1\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\n\r\n",
        b"GET /v0/topics/a HTTP/1.1\r\ncontent-length: 1\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\ncontent-length: 1 \r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\ncontent-length: \xb2\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\ncontent-length: 1\r\nte: x\r\nte: y\r\n\r\n",
        b"POST /v0/topics/a  HTTP/1.1\r\ncontent-length: 1\r\n\r\n",
        b"POST /v0/topics/a HTTP/1.1\r\ncontent-length : 1\r\n\r\n",
    ],
)
def test_heads_that_are_not_plain_are_left_to_sanic(data: bytes) -> None:
    """The lane takes only what it fully understands."""
    assert parse_head(data) is None

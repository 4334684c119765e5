"""Durable Streams as a test calls them: one method a verb, answers returned untouched.

`put`, `post` and `delete` take headers as keywords (`stream_ttl="60"`), `get` takes the query.
Requests rotate over several connections, so that two workers have to agree in every test.
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import httpx

from tests.harness.raw import RawConnection
from tests.harness.server import Server
from tests.harness.sse import EventStream, Frame

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NUMBER_MAX = 2**53 - 1
START = "0000000000000000_0000000000000000"
PAST_EVERYTHING = "9999999999999999_9999999999999999"
TEXT = "text/plain"
JSON = "application/json"
BYTES = "application/octet-stream"
Headers = dict[str, str]


class Streams:
    """A client of one mount of one server; `root` stands before every name."""

    def __init__(
        self, server: Server, token: str = "", root: str = "/v1/stream/", connections: int = 4
    ) -> None:
        self.server = server
        self.root = root
        self.credentials = {"Authorization": f"Bearer {token}"} if token else {}
        self._clients = [
            httpx.Client(headers=self.credentials, timeout=15, trust_env=False)
            for _ in range(connections)
        ]
        self._next = itertools.cycle(self._clients)
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(16)

    def close(self) -> None:
        self._stack.close()
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return next(self._next).request(method, self.server.url + path, **options)

    def path(self, name: str) -> str:
        return self.root + name

    def put(self, name: str, body: Any = b"", **headers: str | None) -> httpx.Response:
        """Create; text unless `content_type` says otherwise, None sends no such header."""
        sent = wire_headers({"content_type": TEXT, **headers})
        return self.request("PUT", self.path(name), content=body, headers=sent)

    def post(self, name: str, body: Any = b"", **headers: str | None) -> httpx.Response:
        """Append; a body is text unless `content_type` says otherwise, None sends no header."""
        default: dict[str, str | None] = {"content_type": TEXT} if body else {}
        sent = wire_headers(default | headers)
        return self.request("POST", self.path(name), content=body, headers=sent)

    def get(self, name: str, headers: Headers | None = None, **query: Any) -> httpx.Response:
        return self.request("GET", self.path(name), params=query, headers=headers)

    def head(self, name: str) -> httpx.Response:
        return self.request("HEAD", self.path(name))

    def delete(self, name: str, **headers: str | None) -> httpx.Response:
        return self.request("DELETE", self.path(name), headers=wire_headers(headers))

    def create(self, name: str, *appends: bytes, **headers: str | None) -> str:
        """A new stream with these appends, one POST each; the tail."""
        answer = self.put(name, **headers)
        assert answer.status_code == 201, answer.content
        kind = headers.get("content_type", TEXT) or BYTES
        for body in appends:
            answer = self.post(name, body, content_type=kind)
            assert answer.status_code == 204, answer.content
        return offset_of(answer)

    def json(self, name: str, *appends: bytes, **headers: str | None) -> str:
        """A new JSON stream with these appends; the tail."""
        return self.create(name, *appends, content_type=JSON, **headers)

    def fork(self, name: str, source: str, body: bytes = b"", **headers: Any) -> httpx.Response:
        """PUT a fork; the content type is inherited unless given."""
        named: dict[str, str | None] = {"content_type": None, **headers}
        return self.put(name, body, stream_forked_from=self.path(source), **named)

    def produce(
        self, name: str, body: bytes, epoch: Any, seq: Any, producer: str = "p", **headers: Any
    ) -> httpx.Response:
        triple = {"producer_id": producer, "producer_epoch": str(epoch), "producer_seq": str(seq)}
        return self.post(name, body, **triple, **headers)

    def read(self, name: str, offset: str = "-1") -> bytes:
        """Everything from an offset to the tail, page by page."""
        content = b""
        while True:
            answer = self.get(name, offset=offset)
            assert answer.status_code == 200, (answer.status_code, answer.content[:500])
            content += answer.content
            offset = offset_of(answer)
            if answer.headers.get("stream-up-to-date") == "true":
                return content

    def waiting(self, name: str, offset: str, **query: Any) -> Future[httpx.Response]:
        """A long-poll under way on a thread of its own."""
        asked = {"live": "long-poll", "timeout": "5s", **query}
        return self._pool.submit(self._poll, name, {"offset": offset, **asked})

    def _poll(self, name: str, query: dict[str, Any]) -> httpx.Response:
        url = self.server.url + self.path(name)
        return httpx.get(url, params=query, headers=self.credentials, timeout=15, trust_env=False)

    def together(self, calls: list[Any]) -> list[Any]:
        """The results of calls made at the same time."""
        return [future.result(30) for future in [self._pool.submit(call) for call in calls]]

    def events(
        self, name: str, offset: str = "-1", headers: Headers | None = None, **query: Any
    ) -> EventStream:
        """The answer to an SSE read, stream or refusal; it is closed with this client."""
        connection = RawConnection(self.server.address)
        self._stack.callback(connection.close)
        target = self.path(name) + "?" + urlencode({"offset": offset, "live": "sse", **query})
        return EventStream(connection, target, {**self.credentials, **(headers or {})})


def wire_headers(headers: dict[str, str | None]) -> Headers:
    return {name.replace("_", "-"): value for name, value in headers.items() if value is not None}


def offset_of(answer: Any) -> str:
    """The `Stream-Next-Offset` of a success."""
    assert answer.status_code < 300, (answer.status_code, answer.content[:500])
    return str(answer.headers["stream-next-offset"])


def decode_offset(offset: str) -> tuple[int, int]:
    """The epoch and the entry number in either spelling."""
    if len(offset) == 33:
        epoch, _, number = offset.partition("_")
        return int(epoch), int(number)
    assert len(offset) == 26, offset
    value = 0
    for letter in offset:
        value = value * 32 + CROCKFORD.index(letter)
    assert value & 0xFFFFFFFF == 0, f"in_block of {offset} is reserved"
    return value >> 96, (value >> 32) & (2**64 - 1)


def encode_base32(epoch: int, number: int) -> str:
    value = (epoch << 96) | (number << 32)
    return "".join(CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def encode_padded(epoch: int, number: int) -> str:
    return f"{epoch:016d}_{number:016d}"


def failed(answer: Any, status: int, code: str = "") -> dict[str, Any]:
    """The `error` object of a refusal (spec 2, item 15)."""
    assert answer.status_code == status, (answer.status_code, answer.content[:500])
    assert answer.headers["content-type"].startswith("application/json")
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "detail"}, error
    assert error["code"] and isinstance(error["code"], str)
    assert error["message"] and isinstance(error["message"], str)
    assert not code or error["code"] == code, error
    return dict(error)


def is_closed(answer: Any) -> bool:
    return bool(answer.headers.get("stream-closed") == "true")


def is_up_to_date(answer: Any) -> bool:
    return bool(answer.headers.get("stream-up-to-date") == "true")


def data_of(stream: EventStream) -> tuple[bytes, dict[str, Any]]:
    """The next data event and its control event, which comes right after it (spec 1.10)."""
    frame = stream.until("data")
    control = stream.next()
    assert control.event == "control", control
    assert frame.data is not None
    return frame.data, control.body


def controls(frames: list[Frame]) -> list[dict[str, Any]]:
    return [frame.body for frame in frames if frame.event == "control"]

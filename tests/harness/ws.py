"""A WebSocket client for tests of /v0/ws: the `websockets` package, frames as dictionaries."""

from __future__ import annotations

import json
import time
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.harness.client import Client
from tests.harness.raw import RawConnection, RawResponse

FRAME_S = 5.0
QUIET_S = 0.15

Message = dict[str, Any]


class SocketTimeout(AssertionError):
    """No frame came in time."""


class SocketClosed(AssertionError):
    """The server closed the socket while a frame was waited for."""


class Socket:
    """One open socket. `seen` are all frames so far."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[Message] = []

    def close(self) -> None:
        self.connection.close()

    def send(self, op: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"op": op, **fields}))

    def send_text(self, text: str) -> None:
        self.connection.send(text)

    def send_bytes(self, data: bytes) -> None:
        self.connection.send(data)

    def next(self, timeout: float = FRAME_S) -> Message:
        """The next frame, which is a JSON object in a text message."""
        try:
            text = self.connection.recv(max(timeout, 0.001))
        except TimeoutError:
            raise SocketTimeout(f"no frame in {timeout} s after {self.seen[-3:]}") from None
        except ConnectionClosed as closed:
            raise SocketClosed(f"{closed} after {self.seen[-3:]}") from None
        assert isinstance(text, str), "a binary message"
        frame = json.loads(text)
        assert isinstance(frame, dict) and isinstance(frame.get("op"), str), text
        self.seen.append(frame)
        return frame

    def until(self, op: str, timeout: float = FRAME_S, **fields: Any) -> Message:
        """The next frame of that op with these fields, reading over all others."""
        deadline = time.monotonic() + timeout
        while True:
            frame = self.next(deadline - time.monotonic())
            if frame["op"] == op and all(frame.get(k) == v for k, v in fields.items()):
                return frame

    def ask(self, op: str, **fields: Any) -> Message:
        """Send a command and return the next frame."""
        self.send(op, **fields)
        return self.next()

    def subscribe(self, topic: str, **fields: Any) -> Message:
        """Follow a topic until it says that it is caught up; the `subscribed` frame."""
        self.send("subscribe", topic=topic, **fields)
        subscribed = self.until("subscribed")
        self.until("caught_up", topic=topic)
        return subscribed

    def payloads(self, topic: str, count: int, timeout: float = FRAME_S) -> list[Any]:
        """The payloads of the next `count` records of a topic."""
        found: list[Any] = []
        while len(found) < count:
            frame = self.until("record", timeout, topic=topic)
            found += [record["data"] for record in frame["records"]]
        assert len(found) == count, found
        return found

    def fence(self) -> list[Message]:
        """Every frame up to the answer of a ping that is sent now."""
        start = len(self.seen)
        self.send("ping", request_id="fence")
        self.until("pong", request_id="fence")
        return self.seen[start:-1]

    def is_quiet(self, seconds: float = QUIET_S) -> bool:
        """True when no frame comes for `seconds` and the socket stays open."""
        try:
            self.next(seconds)
        except SocketTimeout:
            return True
        except SocketClosed:
            return False
        return False

    def wait_closed(self, timeout: float = FRAME_S) -> int:
        """Read to the end; the code with which the server closed."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.next(deadline - time.monotonic())
            except SocketClosed:
                code = self.connection.close_code
                assert code is not None
                return code


class Sockets(Client):
    """Opens sockets to a server."""

    def open(self, path: str = "/v0/ws", receive_bytes: int = 0, **headers: str) -> Socket:
        """A socket; with `receive_bytes` one that soon stalls when it is not read."""
        raw = RawConnection(self.server.address, receive_bytes=receive_bytes)
        self.stack.callback(raw.close)
        opening = connect(
            f"ws://{self.server.host}:{self.server.port}{path}",
            additional_headers={**self.credentials, **headers},
            open_timeout=5,
            close_timeout=1,
            max_size=None,
            max_queue=1 if receive_bytes else None,
            sock=raw.socket,
            compression=None,
            proxy=None,
        )
        return Socket(self.stack.enter_context(opening))

    def refusal(self, path: str = "/v0/ws", **headers: str) -> RawResponse:
        """The answer to an upgrade that is refused."""
        try:
            self.open(path, **headers)
        except InvalidStatus as refused:
            response = refused.response
            found = {name.lower(): value for name, value in response.headers.raw_items()}
            return RawResponse(response.status_code, found, bytes(response.body or b""))
        raise AssertionError("the socket opened")

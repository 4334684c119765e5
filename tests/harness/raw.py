"""HTTP/1.1 by hand over a socket, for requests that no well-behaved client would send."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

_HEAD_END = b"\r\n\r\n"


class ConnectionEnded(AssertionError):
    """The peer closed the connection before a whole response arrived."""


@dataclass(frozen=True)
class RawResponse:
    """One response: header names in lower case, repeated headers joined by a comma."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def status_code(self) -> int:
        return self.status

    def json(self) -> Any:
        return json.loads(self.content)


def build_request(
    method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> bytes:
    """A request with Host, and with Content-Length and JSON content type when it has a body."""
    lines = {"Host": "localhost", **(headers or {})}
    if body is not None:
        lines.setdefault("Content-Type", "application/json")
        lines.setdefault("Content-Length", str(len(body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b"")


class RawConnection:
    """One connection; bytes go out untouched, responses are read one at a time."""

    def __init__(
        self, address: tuple[str, int], timeout: float = 10.0, receive_bytes: int = 0
    ) -> None:
        """Connect; `receive_bytes` bounds what the kernel takes for a client that does not read."""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes:
            # The window is agreed upon in the handshake, so this comes before it.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.timeout = timeout
        self._buffer = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_tolerant(self, data: bytes) -> None:
        """Send, accepting that the peer may answer and close before it read everything."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> RawResponse:
        self.send(build_request(method, target, body, headers))
        return self.receive(head_only=method == "HEAD")

    def is_silent(self, seconds: float) -> bool:
        """True when the peer sends nothing, and does not hang up, for `seconds`."""
        if self._buffer:
            return False
        self.socket.settimeout(seconds)
        try:
            self._buffer += self.socket.recv(65536)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(self.timeout)
        return False

    def is_closed(self) -> bool:
        """True when the peer hung up and every response was read."""
        if self._buffer:
            return False
        try:
            self._buffer += self.socket.recv(65536)
        except ConnectionResetError:
            return True
        return not self._buffer

    def receive(self, head_only: bool = False) -> RawResponse:
        """Read one whole response; 1xx responses are returned like any other."""
        status, headers = self.receive_head()
        if head_only or status < 200 or status in (204, 304):
            return RawResponse(status, headers, b"")
        return RawResponse(status, headers, self.receive_body(headers))

    def receive_body(self, headers: dict[str, str]) -> bytes:
        """Read the body that goes with a head."""
        if "chunked" in headers.get("transfer-encoding", ""):
            return self._read_chunks()
        if "content-length" in headers:
            return self._read(int(headers["content-length"]))
        return self._read_all()

    def receive_some(self, seconds: float) -> bytes:
        """Whatever arrives next, b"" when the peer hung up; TimeoutError after `seconds`."""
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        self.socket.settimeout(max(seconds, 0.001))
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""
        finally:
            self.socket.settimeout(self.timeout)

    def receive_head(self) -> tuple[int, dict[str, str]]:
        """Read the head of a response, leaving its body."""
        lines = self._read_until(_HEAD_END).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            joined = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
            headers[key] = joined
        return int(lines[0].split()[1]), headers

    def _read_chunks(self) -> bytes:
        chunks = b""
        while True:
            size = int(self._read_until(b"\r\n").partition(b";")[0], 16)
            chunk = self._read(size + 2)[:size]
            if not size:
                return chunks
            chunks += chunk

    def _read_until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._fill()
        data, _, self._buffer = self._buffer.partition(end)
        return data

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _read_all(self) -> bytes:
        while True:
            try:
                self._fill()
            except ConnectionEnded:
                data, self._buffer = self._buffer, b""
                return data

    def _fill(self) -> None:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ConnectionEnded(f"connection ended after {self._buffer[:200]!r}")
        self._buffer += data


def exchange(address: tuple[str, int], request: bytes) -> RawResponse:
    """Send the bytes on a fresh connection and read one response."""
    with RawConnection(address) as connection:
        connection.send_tolerant(request)
        return connection.receive()

"""A WebSocket client that may break the rules: frames are built and read by hand."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.unit.web.running import Running, head

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
HANDSHAKE = (
    "GET /v0/ws HTTP/1.1",
    "Host: test",
    "Upgrade: websocket",
    "Connection: keep-alive, Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


class Sent(NamedTuple):
    """One frame of the server."""

    opcode: int
    payload: bytes

    @property
    def code(self) -> int:
        assert self.opcode == CLOSE, self
        return int.from_bytes(self.payload[:2], "big")


def build(
    opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """A client's frame."""
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    size = len(payload)
    if size < 126:
        length = bytes([size])
    elif size < 65_536:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    if not masked:
        return bytes([first]) + length + payload
    mask = os.urandom(4)
    hidden = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([first, length[0] | 0x80]) + length[1:] + mask + hidden


def command(op: str, **fields: Any) -> bytes:
    return build(TEXT, json.dumps({"op": op, **fields}).encode())


def publish(topic: str, data: Any, **fields: Any) -> bytes:
    return command("publish", topic=topic, records=[{"data": data}], **fields)


class RawSocket:
    """An open socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")

    def close(self) -> None:
        """Hang up without a Close frame; both must go, or the connection stays."""
        self._file.close()
        self.connection.close()

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def next(self) -> Sent:
        first, second = self._file.read(2)
        assert first & 0x80 and not second & 0x80, "a fragment, or masked"
        size = second
        if size == 126:
            size = int.from_bytes(self._file.read(2), "big")
        elif size == 127:
            size = int.from_bytes(self._file.read(8), "big")
        return Sent(first & 0x0F, self._file.read(size))

    def message(self) -> Any:
        frame = self.next()
        assert frame.opcode == TEXT, frame
        return json.loads(frame.payload)

    def ask(self, data: bytes) -> Any:
        self.send(data)
        return self.message()

    def is_over(self) -> bool:
        """Whether the server hangs up without another word."""
        return self._file.read(1) == b""

    def read_head(self) -> bytes:
        lines = b""
        while not lines.endswith(b"\r\n\r\n"):
            line = self._file.readline()
            assert line, lines
            lines += line
        return lines


@contextmanager
def opened(served: Running, early: bytes = b"") -> Iterator[RawSocket]:
    """A socket after its handshake; `early` is sent in one piece with it."""
    with served.connect() as connection:
        raw = RawSocket(connection)
        try:
            raw.send(head(*HANDSHAKE) + early)
            assert raw.read_head().startswith(b"HTTP/1.1 101 ")
            yield raw
        finally:
            raw.close()

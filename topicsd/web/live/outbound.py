"""One HTTP request to somebody else: a POST, to an address that was judged (spec 1.16).

The name is resolved once and the connection goes to the address that was looked at, so that
a name cannot change its mind in between. Redirects are answers like any other.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import cache
from typing import Final

import httptools

from topicsd.rules.webhooks import Target, may_connect

RESPONSE_BYTES_MAX: Final = 64 * 1024
TIMEOUT_S: Final = 10.0
_READ_BYTES: Final = 16_384


class Refused(Exception):
    """The address, or the answer, is not one that is taken."""


class _Answer:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def post(target: Target, content: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """Status and body of the answer; OSError, TimeoutError or Refused when there is none."""
    async with asyncio.timeout(TIMEOUT_S):
        address = await _resolve(target)
        reader, writer = await asyncio.open_connection(
            address,
            target.port,
            ssl=_tls() if target.secure else None,
            server_hostname=target.host if target.secure else None,
        )
        try:
            writer.write(_build_request(target, content, headers))
            await writer.drain()
            return await _read(reader)
        finally:
            writer.close()


async def _resolve(target: Target) -> str:
    """The address to connect to; a name with any address that is not allowed is refused."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    if not addresses or not all(may_connect(target.host, each) for each in addresses):
        raise Refused(f"{target.host} is not on the internet")
    return addresses[0]


def _build_request(target: Target, content: bytes, headers: dict[str, str]) -> bytes:
    lines = {
        "Host": target.authority,
        "Content-Length": str(len(content)),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode() + content


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    answer, size = _Answer(), 0
    parser = httptools.HttpResponseParser(answer)
    while not answer.complete:
        part = await reader.read(_READ_BYTES)
        size += len(part)
        if size > RESPONSE_BYTES_MAX:
            raise Refused("the answer is too long")
        try:
            parser.feed_data(part)
        except httptools.HttpParserError as error:
            raise Refused("the answer is not HTTP") from error
        if not part:
            break
    status = parser.get_status_code()
    if not status:
        raise Refused("there was no answer")
    return status, answer.body

"""A reply as handlers make it, and the bytes both doors send for it.

The order of header lines is the order Sanic writes them in, so that the fast lane's answer
to a request is the same bytes as Sanic's.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import msgspec
from sanic.helpers import STATUS_CODES

from topicsd.web.offers import read_offers

CONTENT_TYPE = "application/json"
COMPRESS_MIN_BYTES = 1024
_GZIP_WBITS = 31
_LEVEL = 1

_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, phrase) for status, phrase in STATUS_CODES.items()
}
_CONNECTION = {True: b"keep-alive", False: b"close"}

encode = msgspec.json.encode


class Reply(NamedTuple):
    """Status, body (JSON unless it says otherwise), and header lines beyond the usual ones."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = CONTENT_TYPE


def json_reply(
    status: int,
    content: dict[str, Any],
    elapsed_us: int,
    throttle_wait_ms: float | None = None,
    **measured: float,
) -> Reply:
    """Answer `content` with its performance block (API 0.9)."""
    performance = {"server_total_ms": elapsed_us / 1000, **measured}
    if throttle_wait_ms is not None:
        performance["throttle_wait_ms"] = throttle_wait_ms
    content["performance"] = performance
    return Reply(status, encode(content))


def compress(reply: Reply, accept_encoding: str | None) -> Reply:
    """Gzip a large body for a client that asked for it (API 0.3)."""
    if accept_encoding is None or len(reply.body) <= COMPRESS_MIN_BYTES:
        return reply
    if read_offers(accept_encoding).get("gzip", 0) <= 0:
        return reply
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    body = packer.compress(reply.body) + packer.flush()
    added = (("content-encoding", "gzip"), ("vary", "accept-encoding"))
    return reply._replace(body=body, headers=reply.headers + added)


def build_response(reply: Reply, *, keep_alive: bool) -> bytes:
    """The whole HTTP/1.1 response in one piece."""
    lines = b"".join(b"%b: %b\r\n" % (n.encode(), v.encode()) for n, v in reply.headers)
    return b"%b%bcontent-length: %d\r\nconnection: %b\r\ncontent-type: %b\r\n\r\n%b" % (
        _STATUS_LINES[reply.status],
        lines,
        len(reply.body),
        _CONNECTION[keep_alive],
        reply.content_type.encode(),
        reply.body,
    )

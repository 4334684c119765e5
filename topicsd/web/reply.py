"""A reply as handlers make it, and the bytes both doors send for it.

The order of header lines is the order Sanic writes them in, so that the fast lane's answer
to a request is the same bytes as Sanic's.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import brotli
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

# On every response outside /v0, refusals included (streams spec 1.18).
SHARED_HEADERS = (
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "cross-origin"),
    ("access-control-allow-origin", "*"),
    (
        "access-control-expose-headers",
        "Stream-Next-Offset, Stream-End-Offset, Stream-Earliest-Offset, Stream-Cursor, "
        "Stream-Up-To-Date, Stream-Closed, Stream-TTL, Stream-Expires-At, Producer-Epoch, "
        "Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, ETag, Location, "
        "Retry-After, Stream-SSE-Data-Encoding, Stream-List-After",
    ),
)
PREFLIGHT_HEADERS = (
    (
        "access-control-allow-headers",
        "authorization, content-type, content-encoding, if-match, if-none-match, last-event-id, "
        "producer-id, producer-epoch, producer-seq, stream-closed, stream-expires-at, "
        "stream-fork-offset, stream-fork-sub-offset, stream-forked-from, stream-key, "
        "stream-retention-age, stream-retention-bytes, stream-seq, stream-timestamp, stream-ttl",
    ),
    ("access-control-max-age", "86400"),
)
_BROTLI_QUALITY = 3

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


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    return packer.compress(body) + packer.flush()


def _deflate(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def _brotli(body: bytes) -> bytes:
    packed: bytes = brotli.compress(body, quality=_BROTLI_QUALITY)
    return packed


# What the doors speak; of equal weights the first one wins.
Codings = dict[str, Callable[[bytes], bytes]]
TOPIC_CODINGS: Codings = {"gzip": _gzip}
STREAM_CODINGS: Codings = {"gzip": _gzip, "br": _brotli, "deflate": _deflate}


def compress(reply: Reply, accept_encoding: str | None, codings: Codings = TOPIC_CODINGS) -> Reply:
    """Compress a large body in the way its client likes best (API 0.3)."""
    if accept_encoding is None or len(reply.body) <= COMPRESS_MIN_BYTES:
        return reply
    offers = read_offers(accept_encoding)
    coding = max(codings, key=lambda name: offers.get(name, 0))
    if offers.get(coding, 0) <= 0:
        return reply
    added = (("content-encoding", coding), ("vary", "accept-encoding"))
    return reply._replace(body=codings[coding](reply.body), headers=reply.headers + added)


def build_response(reply: Reply, *, keep_alive: bool) -> bytes:
    """The whole HTTP/1.1 response in one piece."""
    lines = b"".join(b"%b: %b\r\n" % (n.encode(), v.encode()) for n, v in reply.headers)
    if reply.status in (204, 304):
        return b"%b%bconnection: %b\r\n\r\n" % (
            _STATUS_LINES[reply.status],
            lines,
            _CONNECTION[keep_alive],
        )
    return b"%b%bcontent-length: %d\r\nconnection: %b\r\ncontent-type: %b\r\n\r\n%b" % (
        _STATUS_LINES[reply.status],
        lines,
        len(reply.body),
        _CONNECTION[keep_alive],
        reply.content_type.encode(),
        reply.body,
    )

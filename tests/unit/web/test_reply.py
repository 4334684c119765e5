"""Replies: compression, and the bytes of a response."""

from __future__ import annotations

import gzip

import pytest

from topicsd.web.reply import COMPRESS_MIN_BYTES, Reply, build_response, compress

LARGE = Reply(200, b"x" * (COMPRESS_MIN_BYTES + 1), (("allow", "GET"),))


@pytest.mark.parametrize("accept", ["gzip", "br, GZIP", "gzip;q=0.5", " gzip "])
def test_large_replies_are_compressed_on_request(accept: str) -> None:
    """API 0.3: Accept-Encoding with gzip is honoured."""
    reply = compress(LARGE, accept)
    assert LARGE.body == gzip.decompress(reply.body)
    assert dict(reply.headers) == {
        "allow": "GET",
        "content-encoding": "gzip",
        "vary": "accept-encoding",
    }


@pytest.mark.parametrize("accept", [None, "", "br", "gzip;q=0", "gzip; q=0.0", "xgzip"])
def test_replies_are_not_compressed_unasked(accept: str | None) -> None:
    """Absent, other or refused encodings leave the reply alone."""
    assert LARGE is compress(LARGE, accept)


def test_small_replies_are_not_compressed() -> None:
    """A kibibyte is not worth it."""
    small = Reply(200, b"x" * COMPRESS_MIN_BYTES)
    assert small is compress(small, "gzip")


def test_a_response_is_one_piece() -> None:
    """Status line, our headers, the fixed ones, body."""
    expected = (
        b"HTTP/1.1 405 Method Not Allowed\r\nallow: GET\r\ncontent-length: 2\r\n"
        b"connection: close\r\ncontent-type: application/json\r\n\r\n{}"
    )
    assert expected == build_response(Reply(405, b"{}", (("allow", "GET"),)), keep_alive=False)

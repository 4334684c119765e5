"""The bodies and requests the measurements send: 256-byte payloads, prepared once."""

from __future__ import annotations

from collections.abc import Iterable

from topicsd.model.commands import Append
from topicsd.model.record import pack_record
from topicsd.model.topic import TopicConfig

PAYLOAD_BYTES = 256
_FIELDS = b'{"id":%d,"type":"resize","url":"s3://bucket/%08d.png","note":"'


def payload(number: int) -> bytes:
    """One JSON object of exactly `PAYLOAD_BYTES`, different for every number."""
    start = _FIELDS % (number, number)
    return start + b"x" * (PAYLOAD_BYTES - len(start) - 2) + b'"}'


def envelope(count: int, first: int = 0) -> bytes:
    """The body of a write of `count` records."""
    records = b",".join(b'{"data":%b}' % payload(first + at) for at in range(count))
    return b'{"records":[%b]}' % records


def post(path: str, body: bytes) -> bytes:
    """A complete POST request."""
    return post_head(len(body), path) + body


def post_head(body_bytes: int, path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {body_bytes}\r\n\r\n"
    ).encode()


def numbered_post(path: str, body: bytes) -> tuple[bytes, bytes]:
    """The request in two halves; the number between them ends the path."""
    before, after = post_head(len(body), path + "\n").split(b"\n", 1)
    return before, after + body


def append_requests(topic: str, count: int) -> list[bytes]:
    """Sixteen different writes of `count` records each, to be sent in turn."""
    bodies = (envelope(count, at * count) for at in range(16))
    return [post(f"/v0/topics/{topic}", body) for body in bodies]


def page_requests(topic: str, from_seqs: Iterable[int], limit: int = 1000) -> list[bytes]:
    """One read of `limit` records for every cursor."""
    bodies = (b'{"from_seq":%d,"limit":%d}' % (seq, limit) for seq in from_seqs)
    return [post(f"/v0/topics/{topic}/diff", body) for body in bodies]


def append_command(
    topic: str, count: int, config: TopicConfig | None = None, first: int = 0
) -> Append:
    """The engine's form of the same write, rendered as a worker would."""
    packed = [pack_record(payload(first + at), None, None, None) for at in range(count)]
    return Append(
        topic=topic,
        count=count,
        forms=b"".join(form for form, _ in packed),
        rows=b"".join(row for _, row in packed),
        payload_bytes=count * PAYLOAD_BYTES,
        create=True,
        config=config,
    )

"""What those who are woken ask: claim, acknowledge, release, call back (spec 1.16).

A callback, an ack and a release are allowed by the token of the wake, not by an API key.
"""

from __future__ import annotations

import msgspec

from topicsd.model import errors
from topicsd.model.offset import NOW, parse_offset
from topicsd.model.subscription import (
    Ack,
    AckWake,
    ClaimWake,
    ReleaseWake,
    WakeAcked,
    WakeClaimed,
)
from topicsd.web import body
from topicsd.web.context import Context
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.v1.door import spelling_of
from topicsd.web.v1.subscriptions import STREAMS_MAX, allow_of, describe_link, id_of, in_capitals

WORKER_BYTES_MAX = 255


class AskedAck(msgspec.Struct):
    stream: str
    offset: str


class AskedAcks(msgspec.Struct):
    """The body of a callback, an ack or a release."""

    wake_id: str
    generation: int
    acks: list[AskedAck] = []
    done: bool = False


class AskedClaim(msgspec.Struct):
    worker: str


_ACKS = msgspec.json.Decoder(AskedAcks)
_CLAIM = msgspec.json.Decoder(AskedClaim)


def _token_of(request: Request) -> str:
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise errors.token_invalid()
    return token.strip()


@in_capitals
async def post_claim(request: Request, context: Context) -> Reply:
    asked = body.decode_text(_CLAIM, request.body, ("worker",))
    if not 1 <= len(asked.worker.encode()) <= WORKER_BYTES_MAX:
        raise errors.invalid_request(f"worker has 1 to {WORKER_BYTES_MAX} bytes", field="worker")
    context.check_writable()
    command = ClaimWake(id_of(request), asked.worker, allow_of(request))
    claimed = await context.port.submit(command)
    assert isinstance(claimed, WakeClaimed)
    spelling = spelling_of(request, context)
    content = {
        "wake_id": claimed.wake_id,
        "generation": claimed.generation,
        "token": claimed.token,
        "streams": [describe_link(each, spelling) for each in claimed.links],
        "lease_ttl_ms": claimed.lease_ttl_ms,
    }
    return Reply(200, encode(content), (("cache-control", "no-store"),))


@in_capitals
async def post_ack(request: Request, context: Context) -> Reply:
    """Callbacks of webhooks and acks of pull-wake workers are one thing."""
    token = _token_of(request)
    asked = body.decode_text(_ACKS, request.body, ("wake_id",))
    if len(asked.acks) > STREAMS_MAX:
        raise errors.invalid_request(f"at most {STREAMS_MAX} acks at once", field="acks")
    command = AckWake(
        id=id_of(request),
        token=token,
        wake_id=asked.wake_id,
        generation=asked.generation,
        acks=tuple(map(_parse_ack, asked.acks)),
        done=asked.done,
    )
    context.check_writable()
    acked = await context.port.submit(command)
    assert isinstance(acked, WakeAcked)
    return Reply(200, encode({"ok": True, "next_wake": acked.next_wake}))


@in_capitals
async def post_release(request: Request, context: Context) -> Reply:
    token = _token_of(request)
    asked = body.decode_text(_ACKS, request.body, ("wake_id",))
    context.check_writable()
    command = ReleaseWake(id_of(request), token, asked.wake_id, asked.generation)
    await context.port.submit(command)
    return Reply(204, b"")


def _parse_ack(ack: AskedAck) -> Ack:
    position = parse_offset(ack.offset)
    path = ack.stream.removeprefix("/")
    if position == NOW:
        raise errors.invalid_offset(path)
    return Ack(path, position.epoch, position.entries)

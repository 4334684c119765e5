"""Claim, ack, nack, extend: the lease lifecycle of a queue (API 10.2 to 10.6)."""

from __future__ import annotations

import msgspec

from topicsd.model import errors
from topicsd.model.jobs import (
    AckJobs,
    ClaimJobs,
    ExtendJobs,
    JobsAcked,
    JobsClaimed,
    JobsExtended,
    JobsNacked,
    NackJobs,
)
from topicsd.model.lease import parse_lease
from topicsd.model.topic import DELAY_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, U64_MAX
from topicsd.web import body
from topicsd.web.context import Context
from topicsd.web.live.jobs import read_jobs
from topicsd.web.reply import Reply, json_reply
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle

U32_MAX = 2**32 - 1


class ClaimBody(msgspec.Struct):
    """Who claims, how many, and for how long."""

    node: str
    max: int = 1
    lease_ms: int | msgspec.UnsetType = msgspec.UNSET


class AckBody(msgspec.Struct):
    """Which jobs are done; `lease_ids` has one lease for each, or is left out."""

    node: str
    seqs: list[int]
    lease_ids: list[str] = []


class NackBody(AckBody):
    """Which jobs to give back, and how long they stay hidden."""

    delay_ms: int = 0


class ExtendBody(AckBody, kw_only=True):
    """Which leases to prolong, to how long from now."""

    lease_ms: int


_CLAIM = msgspec.json.Decoder(ClaimBody)
_ACK = msgspec.json.Decoder(AckBody)
_NACK = msgspec.json.Decoder(NackBody)
_EXTEND = msgspec.json.Decoder(ExtendBody)


async def post_claim(request: Request, context: Context) -> Reply:
    """Lease jobs to a node; the answer holds them."""
    asked = body.decode_text(_CLAIM, request.body, ("node",))
    check_node(asked.node, context)
    wanted = clamp_max(asked.max, context)
    lease_ms = 0 if asked.lease_ms is msgspec.UNSET else clamp_lease(asked.lease_ms)
    if context.throttle.pressed:
        await pass_throttle(request, context, [request.name])
    context.check_writable()
    command = ClaimJobs(request.name, asked.node, wanted, lease_ms, context.port.worker)
    reply = await context.port.submit(command)
    assert isinstance(reply, JobsClaimed)
    jobs = read_jobs(context, request.name, reply)
    times = (context.elapsed_us(request) / 1000, request.throttle_wait_us / 1000)
    content = (
        b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d,'
        b'"performance":{"server_total_ms":%.3f,"throttle_wait_ms":%.3f}}'
    ) % (
        request.name.encode(),
        b",".join(b"{%b" % job for _, job in jobs),
        len(jobs),
        reply.ready,
        *times,
    )
    return Reply(200, content)


async def post_ack(request: Request, context: Context) -> Reply:
    """Complete jobs: they are deleted for good."""
    asked = body.decode_text(_ACK, request.body, ("node", "lease_ids"))
    leases = _check(asked, context)
    context.check_writable()
    reply = await context.port.submit(AckJobs(request.name, asked.node, asked.seqs, leases))
    assert isinstance(reply, JobsAcked)
    content = {
        "topic": request.name,
        "acked": reply.acked,
        "skipped": reply.skipped,
        "ready": reply.ready,
        "in_flight": reply.in_flight,
    }
    return json_reply(200, content, context.elapsed_us(request), fsync_ms=reply.fsync_us / 1000)


async def post_nack(request: Request, context: Context) -> Reply:
    """Give jobs back, at once or after a delay."""
    asked = body.decode_text(_NACK, request.body, ("node", "lease_ids"))
    leases = _check(asked, context)
    delay_ms = min(_unsigned(asked.delay_ms, "delay_ms"), DELAY_MS_MAX)
    context.check_writable()
    command = NackJobs(request.name, asked.node, asked.seqs, leases, delay_ms)
    reply = await context.port.submit(command)
    assert isinstance(reply, JobsNacked)
    content = {
        "topic": request.name,
        "nacked": reply.nacked,
        "skipped": reply.skipped,
        "ready": reply.ready,
        "in_flight": reply.in_flight,
    }
    return json_reply(200, content, context.elapsed_us(request))


async def post_extend(request: Request, context: Context) -> Reply:
    """Set new deadlines for jobs that are held."""
    asked = body.decode_text(_EXTEND, request.body, ("node", "lease_ids"))
    leases = _check(asked, context)
    lease_ms = clamp_lease(asked.lease_ms)
    context.check_writable()
    command = ExtendJobs(request.name, asked.node, asked.seqs, leases, lease_ms)
    reply = await context.port.submit(command)
    assert isinstance(reply, JobsExtended)
    content = {
        "topic": request.name,
        "extended": len(reply.extended),
        "skipped": reply.skipped,
        "deadlines": {str(seq): reply.deadline for seq in reply.extended},
    }
    return json_reply(200, content, context.elapsed_us(request))


def check_node(node: str, context: Context) -> None:
    """A node must have a name, and not too long a one."""
    limit = context.settings.max_node_bytes
    if not node or len(node.encode()) > limit:
        raise errors.invalid_request(
            f"node must have 1 to {limit} bytes", field="node", max_bytes=limit
        )


def clamp_max(wanted: int, context: Context) -> int:
    """How many jobs one claim may take; 0 stands for 1 (decision 2.7)."""
    if not 0 <= wanted <= U32_MAX:
        raise errors.invalid_request("max must be an unsigned 32-bit integer", field="max")
    return min(wanted or 1, context.settings.max_claim)


def clamp_lease(lease_ms: int) -> int:
    return min(max(_unsigned(lease_ms, "lease_ms"), LEASE_MS_MIN), LEASE_MS_MAX)


def _unsigned(value: int, field: str) -> int:
    if not 0 <= value <= U64_MAX:
        raise errors.invalid_request(f"{field} must be an unsigned 64-bit integer", field=field)
    return value


def _check(asked: AckBody, context: Context) -> list[int]:
    """Check what names jobs; the numbers of their leases, if they were given."""
    check_node(asked.node, context)
    limit = context.settings.max_claim
    if not asked.seqs:
        raise errors.invalid_request("seqs must not be empty", field="seqs")
    if len(asked.seqs) > limit:
        raise errors.too_many_jobs(len(asked.seqs), limit)
    for seq in asked.seqs:
        _unsigned(seq, "seqs")
    if asked.lease_ids and len(asked.lease_ids) != len(asked.seqs):
        raise errors.invalid_request("lease_ids must have one for each seq", field="lease_ids")
    leases = []
    for place, text in enumerate(asked.lease_ids):
        lease = parse_lease(text)
        if lease is None:
            field = f"lease_ids[{place}]"
            raise errors.invalid_request(f"{field} is not a lease id", field=field)
        leases.append(lease)
    return leases

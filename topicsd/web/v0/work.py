"""`GET /v0/topics/:topic/work`: open a stream that jobs are pushed to (API 10.8)."""

from __future__ import annotations

import itertools

from topicsd.model import errors
from topicsd.model.jobs import CloseWork, OpenWork
from topicsd.model.watch import HEARTBEAT_MS_DEFAULT, HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN
from topicsd.web.context import Context
from topicsd.web.live import sse
from topicsd.web.live.tunnel import Opening
from topicsd.web.live.work import WorkStream
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.throttle import pass_throttle
from topicsd.web.v0.leases import check_node, clamp_lease, clamp_max

_numbers = itertools.count(1)


async def get_work(request: Request, context: Context) -> Reply | Opening:
    """Check everything that can be answered with a status, then begin to stream."""
    node = request.query.get("node")
    if node is None:
        raise errors.invalid_request("node is missing", field="node")
    check_node(node, context)
    wanted = clamp_max(request.query_number("max"), context)
    lease_ms = 0
    if "lease_ms" in request.query:
        lease_ms = clamp_lease(request.query_number("lease_ms"))
    heartbeat_ms = _heartbeat(request, context)
    sse.check_accept(request.header("accept"))
    if request.method == "HEAD":
        return Reply(200, b"", sse.HEADERS, sse.CONTENT_TYPE)
    context.check_writable()
    if context.throttle.pressed:
        await pass_throttle(request, context, [request.name])
    number = (context.port.worker, next(_numbers))
    context.gate.open_stream(request.key)
    try:
        await context.port.submit(OpenWork(request.name, *number, node, wanted, lease_ms))
    except BaseException:
        context.gate.close_stream(request.key)
        # The client may have left while the engine opened the stream.
        closing = context.port.submit(CloseWork(*number))
        closing.add_done_callback(lambda late: late.exception())
        raise
    stream = WorkStream(context, request.name, number, heartbeat_ms)
    stream.closed.add_done_callback(lambda done: context.gate.close_stream(request.key))
    return Opening(stream)


def _heartbeat(request: Request, context: Context) -> int:
    """How often silence is broken; a parameter of ours."""
    if "heartbeat_ms" not in request.query:
        return HEARTBEAT_MS_DEFAULT
    least = context.settings.test_min_heartbeat_ms or HEARTBEAT_MS_MIN
    return min(max(request.query_number("heartbeat_ms"), least), HEARTBEAT_MS_MAX)

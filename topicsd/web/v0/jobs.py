"""Looking at the jobs of a queue by state, and moving dead ones back; extensions of ours.

Which jobs are in a state is the engine's knowledge; dead ones are found in the dead-letter
topic by what their meta says. Either way the worker reads the records itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from topicsd.model import errors
from topicsd.model.jobs import JobsListed, ListedJob, ListJobs, Redrive, Redriven
from topicsd.model.provenance import Origin, find_origin
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.find import get_topic_view
from topicsd.web.paging import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, decode_cursor, encode_cursor
from topicsd.web.reply import Reply, encode, json_reply
from topicsd.web.request import Request

if TYPE_CHECKING:
    from topicsd.reader import TopicView
    from topicsd.storage.pick import Picked

REDRIVE_DEFAULT = 100
# Records looked at before others get their turn.
WINDOW_RECORDS = 500
SEQ_DIGITS = 18
STATES = ("ready", "in_flight", "delayed", "dead")


class RedriveBody(msgspec.Struct):
    """How many dead jobs to move back, at most."""

    max: int = REDRIVE_DEFAULT


_REDRIVE = msgspec.json.Decoder(RedriveBody)


class Dead(NamedTuple):
    """A dead job and where it came from."""

    picked: Picked
    origin: Origin


async def get_jobs(request: Request, context: Context) -> Reply:
    """One page of the jobs in a state, by ascending seq."""
    state = request.query.get("state", "ready")
    if state not in STATES:
        raise errors.invalid_request(f"state must be one of {', '.join(STATES)}", field="state")
    size = request.query_size("page_size", PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    after = int(decode_cursor(request.query.get("cursor"), _is_seq) or 0)
    queue = await _get_queue(request, context)
    if state == "dead":
        page, last = await _list_dead(request, context, queue, (after, size))
    else:
        page, last = await _list_state(context, queue, state, (after, size))
    cursor = b"" if last is None else b',"next_cursor":"%b"' % encode_cursor(str(last)).encode()
    content = (
        b'{"topic":"%b","state":"%b","jobs":[%b]%b,"performance":{"server_total_ms":%.3f}}'
    ) % (
        request.name.encode(),
        state.encode(),
        b",".join(page),
        cursor,
        context.elapsed_us(request) / 1000,
    )
    return Reply(200, content)


async def post_redrive(request: Request, context: Context) -> Reply:
    """Move dead jobs back into their queue, the oldest first."""
    asked = body.decode_text(_REDRIVE, request.body or b"{}", ())
    if asked.max < 0:
        raise errors.invalid_request("max must not be negative", field="max")
    limit = min(asked.max or REDRIVE_DEFAULT, context.settings.max_claim)
    context.check_writable()
    queue = await _get_queue(request, context)
    dead = [found.picked.seq async for found in _find_dead(request, context, queue, 0, limit)]
    reply = await context.port.submit(Redrive(request.name, dead))
    assert isinstance(reply, Redriven)
    content = {"topic": request.name, "redriven": reply.moved, "ready": reply.ready}
    return json_reply(200, content, context.elapsed_us(request))


async def _get_queue(request: Request, context: Context) -> TopicView:
    queue = await get_topic_view(context, request.name)
    if queue.config.type != "queue":
        raise errors.not_a_queue(request.name)
    return queue


async def _list_state(
    context: Context, queue: TopicView, state: str, page: tuple[int, int]
) -> tuple[list[bytes], int | None]:
    """Jobs the engine names; those that are gone by the time they are read are left out."""
    after, size = page
    # One more than asked for tells whether there is a next page.
    reply = await context.port.submit(ListJobs(queue.name, state, after, size + 1))
    assert isinstance(reply, JobsListed)
    listed = {job.seq: job for job in reply.jobs[:size]}
    found = context.reader.pick(queue, list(listed))
    jobs = [_render(picked, _describe(listed[picked.seq], state)) for picked in found]
    return jobs, max(listed) if len(reply.jobs) > size else None


async def _list_dead(
    request: Request, context: Context, queue: TopicView, page: tuple[int, int]
) -> tuple[list[bytes], int | None]:
    after, size = page
    found = [dead async for dead in _find_dead(request, context, queue, after, size + 1)]
    jobs = [
        _render(dead.picked, b'"deliveries":%d' % dead.origin.deliveries) for dead in found[:size]
    ]
    return jobs, found[size - 1].picked.seq if len(found) > size else None


async def _find_dead(
    request: Request, context: Context, queue: TopicView, after: int, limit: int
) -> AsyncIterator[Dead]:
    """Jobs of a queue in its dead-letter topic, which others may use, too."""
    name = queue.config.dead_letter
    auth.require_name(request.key, name)
    topic = None if name is None else context.reader.find_topic(name)
    while topic is not None and limit > 0:
        window = context.reader.pick_after(topic, after, WINDOW_RECORDS)
        if not window:
            return
        for picked in window:
            origin = find_origin(picked.meta)
            if origin is not None and origin.topic == queue.name and limit > 0:
                limit -= 1
                yield Dead(picked, origin)
        after = window[-1].seq
        await _let_others()


async def _let_others() -> None:
    """Give the loop a turn, by a future: whatever a handler awaits must be one."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(lambda: None if turn.done() else turn.set_result(None))
    await turn


def _describe(job: ListedJob, state: str) -> bytes:
    members = b'"deliveries":%d' % job.deliveries
    if state == "in_flight":
        return b'%b,"node":%b,"deadline":%d' % (members, encode(job.node), job.at)
    return b'%b,"due":%d' % (members, job.at) if state == "delayed" else members


def _render(picked: Picked, members: bytes) -> bytes:
    opening = b'{"$seq":%d,' % picked.seq
    return opening + members + b"," + picked.record[len(opening) :]


def _is_seq(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= SEQ_DIGITS

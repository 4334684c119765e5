"""What the handlers of streams share: finding one, spelling its offsets, refusing (spec 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.offset import BASE32, PADDED, Position, build_offset
from topicsd.reader import StreamStatus, StreamView
from topicsd.rules.lifetime import is_expired
from topicsd.web.context import Context
from topicsd.web.find import find_view
from topicsd.web.live.tunnel import Opening
from topicsd.web.reply import Reply
from topicsd.web.request import Request

V1_MOUNT: Final = "/v1/stream/"
CLOSED: Final = ("stream-closed", "true")

Answer = Callable[[Request, Context], Awaitable[Any]]


def spelling_of(request: Request, context: Context) -> str:
    """How offsets are written at the path of a request."""
    chosen = context.settings.stream_offsets
    if chosen != "auto":
        return chosen
    return BASE32 if request.path.startswith(V1_MOUNT) else PADDED


def is_v1(request: Request) -> bool:
    return request.path.startswith(V1_MOUNT)


def public_url(request: Request, context: Context) -> str:
    """Where the client reaches this server, without a slash at the end."""
    configured = context.settings.public_url.rstrip("/")
    if configured:
        return configured
    settings = context.settings
    return f"http://{request.header('host') or f'{settings.host}:{settings.port}'}"


async def get_stream(request: Request, context: Context) -> tuple[StreamView, StreamStatus]:
    """The stream of a request, or a refusal by what became of it."""
    return await get_named(request.name, context)


async def get_named(name: str, context: Context) -> tuple[StreamView, StreamStatus]:
    """A stream, or log topic, by its name."""
    topic = await find_view(context, name)
    status = None if topic is None else context.reader.stream_status(topic)
    if topic is None or status is None:
        raise errors.stream_not_found(name)
    if topic.config.type == "queue":
        raise errors.topic_exists_incompatible(name, f'"{name}" is a queue, not a stream')
    view = StreamView(context.reader, topic)
    check_alive(view, status, context)
    return view, status


def check_alive(view: StreamView, status: StreamStatus, context: Context) -> None:
    """Refuse a stream that is deleted or whose time is over."""
    if status.gone:
        raise errors.stream_gone(view.topic.name)
    if is_expired(view.config, status.accessed_ms, context.clock.now_ms()):
        raise errors.stream_not_found(view.topic.name)


def refusing(handler: Answer) -> Answer:
    """Give refusals the headers that clients of the protocol look for."""

    @wraps(handler)
    async def answer(request: Request, context: Context) -> Reply | Opening:
        try:
            reply: Reply | Opening = await handler(request, context)
        except TopicsError as error:
            error.headers = tuple(_headers(error, spelling_of(request, context)))
            raise
        return reply

    return answer


def _headers(error: TopicsError, spelling: str) -> list[tuple[str, str]]:
    detail = error.detail or {}
    headers: list[tuple[str, str]] = []
    if error.code in ("stream_closed", "precondition_failed", "offset_gone") and "epoch" in detail:
        offset = build_offset(Position(detail["epoch"], detail["entries"]), spelling)
        name = "stream-earliest-offset" if error.code == "offset_gone" else "stream-next-offset"
        headers.append((name, offset))
        # People read the offset, not its parts.
        error.detail = {"offset": offset}
    if error.code == "stream_closed":
        headers.append(CLOSED)
    if error.code == "producer_fenced":
        headers.append(("producer-epoch", str(detail["epoch"])))
    if error.code == "producer_gap":
        headers.append(("producer-expected-seq", str(detail["expected"])))
        headers.append(("producer-received-seq", str(detail["received"])))
    return headers

"""The Sanic application: one catch-all route into `dispatch`, and our words for its refusals.

`create_app` expects the worker to set `app.ctx.port` and `app.ctx.reader` before it accepts
connections, and gives it `app.ctx.gate`. Paths, methods and errors are decided by our own
table, never by Sanic's router, so that both doors agree. `app.ctx.lane = False` sends every
request through Sanic.
"""

from __future__ import annotations

import asyncio
import logging
import re
from time import monotonic
from typing import Any, Protocol, cast

from sanic import HTTPResponse, Sanic
from sanic import Request as SanicRequest
from sanic.constants import HTTP_METHODS
from sanic.exceptions import BadRequest, MethodNotAllowed, NotFound, SanicException
from sanic.http import Http

from topicsd.model import errors
from topicsd.model.clock import Clock
from topicsd.model.settings import Settings
from topicsd.storage.fs import Files
from topicsd.storage.tally import Tally
from topicsd.web.context import Context
from topicsd.web.dispatch import Receive, answer
from topicsd.web.errors import from_sanic, refusal
from topicsd.web.gate import Gate
from topicsd.web.live.tunnel import Opening, Tunnel
from topicsd.web.reply import Reply
from topicsd.web.request import Request
from topicsd.web.routes import ROUTES

KEEP_ALIVE_TIMEOUT_S = 120
REQUEST_TIMEOUT_S = 60
# Longer than the longest wait a client may ask for.
RESPONSE_TIMEOUT_S = 90
HEADER_BYTES_MAX = 16_384
# The rest of a refused body may arrive for as long as it keeps arriving, within reason.
LINGER_S = 1.0
LINGER_CHECKS_MAX = 30

# Heads that another server may read in another way, which is how requests are smuggled past a
# proxy: a blank or control character in a header's name, a line break that is not CRLF, a NUL.
_AMBIGUOUS = re.compile(rb"\r\n[^:\r]*[\x00-\x20\x7f][^:\r]*:|(?<!\r)\n|\r(?!\n)|\x00")

_log = logging.getLogger("topicsd.web")


class Tunnelled(Protocol):
    """A connection that can be handed over."""

    def dig(self, tunnel: Tunnel) -> None: ...


class ReadRequest(SanicRequest):
    """Sanic's request; to refuse one that cannot be read, Sanic makes one without a head.

    What cannot be read may be the URL, which must not get in the way of the refusal.
    """

    def __init__(self, url_bytes: bytes, head: bytes = b"", **rest: Any) -> None:
        super().__init__(url_bytes=url_bytes if head else b"*", head=head, **rest)


def create_app(settings: Settings, files: Files, clock: Clock) -> Sanic:
    """Build the application; nothing is opened or started."""
    app: Sanic = Sanic("topicsd", configure_logging=False, request_class=ReadRequest)
    app.config.ACCESS_LOG = False
    app.config.KEEP_ALIVE_TIMEOUT = KEEP_ALIVE_TIMEOUT_S
    app.config.REQUEST_TIMEOUT = REQUEST_TIMEOUT_S
    app.config.RESPONSE_TIMEOUT = RESPONSE_TIMEOUT_S
    # How much of a refused body is read and dropped, so that the client can still read the
    # refusal; closing on a client that sends would reset the connection under it.
    largest = max(settings.max_body_bytes, settings.stream_max_body_bytes)
    app.config.REQUEST_MAX_SIZE = 2 * largest
    app.config.REQUEST_MAX_HEADER_SIZE = HEADER_BYTES_MAX
    app.ctx.settings = settings
    app.ctx.files = files
    app.ctx.clock = clock
    app.ctx.started_us = clock.monotonic_us()
    app.ctx.tally = Tally(
        files,
        columns=settings.workers,
        keys=len(settings.api_keys),
        series=len(ROUTES) + 1,
    )
    app.ctx.gate = Gate(
        app.ctx.tally,
        settings.api_keys,
        settings.max_inflight_per_key,
        settings.max_sse_connections,
        settings.max_sse_connections_per_key,
    )
    app.ctx.lane = True
    for number, path in enumerate(("/", "/<path:path>")):
        app.add_route(
            _enter,
            path,
            methods=HTTP_METHODS,
            name=f"entry{number}",
            stream=True,
            strict_slashes=False,
        )
    app.exception(Exception)(_refuse)
    return app


def get_context(app: Sanic) -> Context:
    """The worker's context, made on first use, when port and reader are there."""
    ctx = app.ctx
    if not hasattr(ctx, "context"):
        ctx.context = Context(ctx.settings, ctx.clock, ctx.gate, ctx.port, ctx.reader)
        ctx.context.started_us = ctx.started_us
        ctx.context.throttle.start(asyncio.get_running_loop())
    context: Context = ctx.context
    return context


async def _enter(sanic_request: SanicRequest, path: str = "") -> HTTPResponse | None:
    """Serve a request that Sanic parsed."""
    context = get_context(sanic_request.app)
    if _AMBIGUOUS.search(sanic_request.head):
        _abandon_body(cast(Http, sanic_request.stream))
        return await _refuse(sanic_request, BadRequest("ambiguous header line"))
    request = Request(
        sanic_request.method,
        (sanic_request._parsed_url.path or b"").decode("latin-1"),
        sanic_request.query_string,
        sanic_request.headers,
        context.clock.monotonic_us(),
    )
    reply = await answer(request, context, _receiver(sanic_request))
    if isinstance(reply, Opening):
        await _tunnel(sanic_request, reply.tunnel)
        return None
    _settle_connection(sanic_request, context)
    return _response(reply)


# Sanic takes it from a handler so marked that there is no response: see `_tunnel`.
_enter.is_websocket = True  # type: ignore[attr-defined]


async def _tunnel(sanic_request: SanicRequest, tunnel: Tunnel) -> None:
    """Hand the connection over, and keep Sanic's hands off it until it is gone."""
    stream = cast(Http, sanic_request.stream)
    protocol = cast("Tunnelled", stream.protocol)
    stream.upgrade_websocket = True
    stream.keep_alive = False
    try:
        protocol.dig(tunnel)
        await tunnel.closed
    except asyncio.CancelledError:
        # The client hung up. Sanic would log the URL, and a token may be in it.
        pass
    finally:
        tunnel.lost()


def _receiver(sanic_request: SanicRequest) -> Receive:
    """A function that reads the rest of the request, within a limit."""

    async def receive(limit: int) -> bytes:
        stream = cast(Http, sanic_request.stream)
        stream.request_max_size = limit
        try:
            return await _read_all(stream)
        except TimeoutError:
            _abandon_body(stream)
            raise errors.request_timeout("the body did not arrive in time") from None
        except SanicException as error:
            raise from_sanic(error, limit) from None

    return receive


async def _read_all(stream: Http) -> bytes:
    parts: list[bytes] = []
    while stream.request_body:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            part = await stream.read()
        if part:
            parts.append(part)
    return b"".join(parts)


def _settle_connection(sanic_request: SanicRequest, context: Context) -> None:
    """Decide what happens to the connection after the reply."""
    stream = cast(Http, sanic_request.stream)
    stream.request_max_size = sanic_request.app.config.REQUEST_MAX_SIZE
    if context.gate.draining:
        stream.keep_alive = False
    if stream.expecting_continue:
        # The client still holds its body back and was refused: it must not be told to go on.
        stream.expecting_continue = False
        _abandon_body(stream)
    if stream.request_body:
        _linger(stream, sanic_request, LINGER_CHECKS_MAX)


def _linger(stream: Http, sanic_request: SanicRequest, checks: int) -> None:
    """Give a client that was refused some time to finish its body, then hang up."""
    protocol = stream.protocol

    def check() -> None:
        if stream.request is not sanic_request or not stream.request_body:
            return
        if checks == 0 or monotonic() - protocol._time >= LINGER_S:
            protocol.close()
        else:
            _linger(stream, sanic_request, checks - 1)

    protocol.loop.call_later(LINGER_S, check)


def _abandon_body(stream: Http) -> None:
    """Close after the reply: what may still arrive cannot be told from a next request."""
    stream.keep_alive = False
    stream.request_body = None


def _response(reply: Reply) -> HTTPResponse:
    return HTTPResponse(reply.body, reply.status, dict(reply.headers), reply.content_type)


async def _refuse(sanic_request: SanicRequest, error: Exception) -> HTTPResponse | None:
    """What Sanic refuses by itself, in our envelope."""
    if isinstance(error, NotFound | MethodNotAllowed):
        # Sanic's router has no row for an unusual method; our table decides.
        return await _enter(sanic_request)
    context = get_context(sanic_request.app)
    started_us = context.clock.monotonic_us()
    if isinstance(error, SanicException):
        refused = from_sanic(error, context.settings.max_body_bytes)
    else:
        _log.error("connection failed", exc_info=error)
        refused = errors.internal()
    context.gate.column.observe_request(0, refused.status, 0)
    return _response(refusal(refused, context.clock.monotonic_us() - started_us))

"""From a request to a reply: the order of checks, and the end of every request.

Order (spec 2.8): 401, then 403 by scope and by name, then 404, 405 and 415, then the body.
`answer` never raises: this is the place where a bug becomes `internal`. Both doors call it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from topicsd.model import errors, names
from topicsd.model.errors import TopicsError
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.errors import refusal
from topicsd.web.live.tunnel import Opening
from topicsd.web.reply import PREFLIGHT_HEADERS, SHARED_HEADERS, STREAM_CODINGS, Reply, compress
from topicsd.web.request import Request
from topicsd.web.route import KEYED, OPEN, Route
from topicsd.web.routes import SERIES, Path, find_path, is_stream_door

_log = logging.getLogger("topicsd.web")

Receive = Callable[[int], Awaitable[bytes]]


async def answer(
    request: Request, context: Context, receive: Receive | None = None
) -> Reply | Opening:
    """Serve one request; `receive` reads a body that is not in `request.body` yet."""
    reply: Reply | Opening
    try:
        reply = await _serve(request, context, receive)
    except TopicsError as error:
        reply = refusal(error, context.elapsed_us(request))
    except Exception:
        _log.exception("request failed method=%s path=%s", request.method, request.path[:300])
        reply = refusal(errors.internal(), context.elapsed_us(request))
    _account(request, context, reply.status)
    if isinstance(reply, Opening):
        return reply
    if is_stream_door(request.path):
        reply = compress(reply, request.headers.get("accept-encoding"), STREAM_CODINGS)
        return reply._replace(headers=reply.headers + SHARED_HEADERS)
    return compress(reply, request.headers.get("accept-encoding"))


def _account(request: Request, context: Context, status: int) -> None:
    """Count a request that is answered; at debug level, also log it, without its query."""
    elapsed_us = context.elapsed_us(request)
    route = request.route
    series = 0 if route is None else SERIES[route.method, route.path]
    context.gate.column.observe_request(series, status, elapsed_us)
    if _log.isEnabledFor(logging.DEBUG):
        fields = {
            "method": request.method[:20],
            "route": "none" if route is None else route.path,
            "status": status,
            "ms": elapsed_us / 1000,
            "key": "none" if request.key is None else request.key.id,
        }
        _log.debug("request", extra=fields)


async def _serve(request: Request, context: Context, receive: Receive | None) -> Reply | Opening:
    route = admit(request, context)
    if route is None:
        return _options(request)
    gate = context.gate
    gate.enter(request.key)
    try:
        if receive is not None:
            limit = body_limit(route, context)
            content = await receive(limit)
            request.body = body.decode_content(request, content, limit)
        return await route.handler(request, context)
    finally:
        gate.leave(request.key)


def admit(request: Request, context: Context) -> Route | None:
    """Decide from the head alone who may do what; None answers OPTIONS."""
    settings = context.settings
    path = find_path(request.path)
    if path is not None:
        # Also for the count of those that are refused.
        request.route = path.find_route(request.method)
    if settings.api_keys and _needs_key(path, settings.probe_auth):
        in_query = request.route is not None and request.route.token_in_query
        request.key = auth.authenticate(request, settings.api_keys, in_query=in_query)
    if path is None:
        raise errors.not_found(request.path[:300])
    route = request.route
    if request.key is not None:
        _authorize(request, path, route)
    if route is None:
        if request.method == "OPTIONS":
            return None
        raise errors.method_not_allowed(request.method[:20], path.allowed)
    if context.gate.draining and route.scope != OPEN and not route.always:
        raise errors.shutting_down()
    body.check_head(request, body_limit(route, context), any_type=route.any_body)
    request.params = path.params
    if path.router is not None:
        request.name = names.check_router_name(path.router)
    elif path.stream is not None:
        request.name = _check_stream(request, path.stream)
    elif path.name is not None:
        request.name = names.check_topic_name(path.name)
    return route


def body_limit(route: Route, context: Context) -> int:
    settings = context.settings
    return settings.stream_max_body_bytes if route.any_body else settings.max_body_bytes


def _check_stream(request: Request, name: str) -> str:
    """A name that no stream can have is refused where one would get it, and else not found."""
    if request.method == "PUT" or names.is_stream_name(name):
        return names.check_stream_name(name)
    raise errors.stream_not_found(name[:300])


def _needs_key(path: Path | None, probe_auth: bool) -> bool:
    """Whether a server that has keys wants one here; an unknown path is nobody's business."""
    if path is None:
        return True
    return not path.is_public and (probe_auth or not path.is_open)


def _authorize(request: Request, path: Path, route: Route | None) -> None:
    if route is not None and route.scope not in (OPEN, KEYED):
        for scope in route.scope.split("+"):
            auth.require_scope(request.key, scope)
    auth.require_name(request.key, path.name)


def _options(request: Request) -> Reply:
    path = find_path(request.path)
    allowed = path.allowed if path is not None else []
    headers: tuple[tuple[str, str], ...] = (("allow", ", ".join(allowed)),)
    if path is not None and path.stream is not None:
        headers += (("access-control-allow-methods", ", ".join(allowed)), *PREFLIGHT_HEADERS)
    return Reply(204, b"", headers)

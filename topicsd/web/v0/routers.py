"""Routers as a resource: configure, look at, list, delete (API 6)."""

from __future__ import annotations

from typing import Any

import msgspec

from topicsd.model.commands import (
    DeleteRouter,
    GetRouter,
    ListRouters,
    PutRouter,
    RouterDeleted,
    RouterFound,
    RouterPut,
    RoutersListed,
)
from topicsd.model.names import is_router_name
from topicsd.model.router import RouterBody, build_config
from topicsd.web import auth, body
from topicsd.web.context import Context
from topicsd.web.paging import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, decode_cursor, encode_cursor
from topicsd.web.reply import Reply, json_reply
from topicsd.web.request import Request

_DECODER = msgspec.json.Decoder(RouterBody)


async def put_router(request: Request, context: Context) -> Reply:
    """Create the router, or replace its configuration; missing topics are created."""
    asked = body.decode_text(_DECODER, request.body, ("source", "dest", "filter"))
    config = build_config(asked)
    for name in (config.source, config.dest):
        auth.require_name(request.key, name)
    context.check_writable()
    reply = await context.port.submit(PutRouter(request.name, config, asked.create_dest))
    assert isinstance(reply, RouterPut)
    content = {"router": request.name, "created": reply.created, **config.echo()}
    return json_reply(201 if reply.created else 200, content, context.elapsed_us(request))


async def get_router(request: Request, context: Context) -> Reply:
    """One router, when it has forwarded what its source held at the request (spec 2.4)."""
    context.check_writable()
    found = await context.port.submit(GetRouter(request.name))
    assert isinstance(found, RouterFound)
    content = {
        "router": found.router,
        **found.config.echo(),
        "forwarded_total": found.forwarded_total,
    }
    return json_reply(200, content, context.elapsed_us(request))


async def list_routers(request: Request, context: Context) -> Reply:
    """One page of routers in byte order, only those the key may see (API 6.3)."""
    size = request.query_size("page_size", PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    after = decode_cursor(request.query.get("cursor"), is_router_name)
    context.check_writable()
    reply = await context.port.submit(
        ListRouters(
            request.query.get("prefix", ""),
            request.query.get("source"),
            request.query.get("dest"),
            after,
            # One more than asked for tells whether there is a next page.
            size + 1,
            request.key.prefixes if request.key is not None else (),
        )
    )
    assert isinstance(reply, RoutersListed)
    page = reply.routers[:size]
    content: dict[str, Any] = {
        "routers": [
            {
                "router": found.router,
                "source": found.config.source,
                "dest": found.config.dest,
                "guarantee": found.config.guarantee,
                "forwarded_total": found.forwarded_total,
            }
            for found in page
        ]
    }
    if len(reply.routers) > size:
        content["next_cursor"] = encode_cursor(page[-1].router)
    return json_reply(200, content, context.elapsed_us(request))


async def delete_router(request: Request, context: Context) -> Reply:
    """Stop forwarding; what was copied stays, and an absent router is fine (API 6.4)."""
    context.check_writable()
    reply = await context.port.submit(DeleteRouter(request.name))
    assert isinstance(reply, RouterDeleted)
    content = {"router": request.name, "deleted": reply.deleted}
    return json_reply(200, content, context.elapsed_us(request))

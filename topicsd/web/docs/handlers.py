"""`GET /docs` and `GET /docs/openapi.json`: the same for everybody, made on first use.

The table names these handlers and they show the table, so they get it as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from topicsd.web.context import Context
from topicsd.web.docs import page
from topicsd.web.openapi import build
from topicsd.web.reply import Reply, encode
from topicsd.web.request import Request
from topicsd.web.route import Handler, Route

Table = Callable[[], Sequence[Route]]

_HEADERS = (
    ("content-security-policy", page.POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
)


def get_document(table: Table) -> Handler:
    """A handler that answers the OpenAPI document."""
    return _constant(lambda: Reply(200, encode(build(table()))))


def get_page(table: Table) -> Handler:
    """A handler that answers a page of it; the page's policy forbids everything else."""
    return _constant(
        lambda: Reply(200, page.render(build(table())).encode(), _HEADERS, page.CONTENT_TYPE)
    )


def _constant(make: Callable[[], Reply]) -> Handler:
    once = cache(make)

    async def handle(request: Request, context: Context) -> Reply:
        return once()

    return handle

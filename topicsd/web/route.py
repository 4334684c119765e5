"""A row of the route table, and the words that stand where a scope would."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from topicsd.web.context import Context
from topicsd.web.docs.operation import Operation
from topicsd.web.live.tunnel import Opening
from topicsd.web.reply import Reply
from topicsd.web.request import Request

Handler = (
    Callable[[Request, Context], Awaitable[Reply]]
    | Callable[[Request, Context], Awaitable[Reply | Opening]]
)

OPEN = "open"
PUBLIC = "public"
# No key but the token that a claim or a webhook came with.
TOKEN = "token"
# Any key: what it may do is decided later.
KEYED = "key"


class Route(NamedTuple):
    """One row: what a method on a path does and what it takes to be allowed."""

    method: str
    path: str
    scope: str
    handler: Handler
    summary: str
    operation: Operation = Operation()
    # Answered also while the server drains, as probes are.
    always: bool = False
    # Whether a key may come as `?token=`, for clients that cannot send headers.
    token_in_query: bool = False
    # Whether a body may be of any type and as large as streams take it.
    any_body: bool = False

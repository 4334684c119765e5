"""What the document says of a route beyond its method, path, scope and summary.

Values only: `topicsd.web.openapi` turns them into OpenAPI, a row of the route table names
one. Errors that every route of a kind may answer (401, 415, 503 ...) are not listed here.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Parameter(NamedTuple):
    """A query parameter or header: its JSON schema, and what it does."""

    name: str
    schema: dict[str, Any]
    text: str
    example: Any
    place: str = "query"


class Operation(NamedTuple):
    """Request and reply types with an example each; `errors` are codes of `model.errors`."""

    text: str = ""
    parameters: tuple[Parameter, ...] = ()
    request: type | None = None
    request_required: bool = False
    request_example: Any = None
    reply: type | None = None
    reply_example: Any = None
    # The answer in another content type, by that type: an example of its text.
    texts: dict[str, str] = {}
    creates: bool = False
    # A body that is not one of our types: an example by content type.
    requests: dict[str, str] = {}
    # Answers without a body beside 200, and what they mean.
    statuses: dict[str, str] = {}
    # The connection then speaks another protocol; `texts` are its messages.
    switches: bool = False
    errors: tuple[str, ...] = ()

"""The rows of the route table that are about streams; every mount has the same ones."""

from __future__ import annotations

from topicsd.web.docs import stream_operations as described
from topicsd.web.route import Route
from topicsd.web.v1 import create, listing, reads, writes

_MOUNTS = (("/v1/stream/:stream", ""), ("/:stream", ", at a path of its own"))
_METHODS = (
    ("PUT", "write", create.put_stream, "create or fork a stream", described.PUT_STREAM),
    ("POST", "write", writes.post_stream, "append to a stream, or close it", described.POST_STREAM),
    ("GET", "read", reads.get_stream_entries, "read a stream", described.GET_STREAM),
    ("DELETE", "delete", writes.delete_stream, "remove a stream", described.DELETE_STREAM),
)

ROWS: tuple[Route, ...] = (
    *(
        Route(method, path, scope, handler, f"{summary}{where}", operation, any_body=True)
        for path, where in _MOUNTS
        for method, scope, handler, summary, operation in _METHODS
    ),
    Route(
        "GET",
        "/v1/stream/:stream/pk/:key",
        "read",
        reads.get_stream_entries,
        "read the entries of a stream that have a key",
        described.GET_BY_KEY,
    ),
    Route(
        "GET",
        "/v1/streams",
        "read",
        listing.list_streams,
        "list streams, page by page",
        described.LIST_STREAMS,
    ),
)

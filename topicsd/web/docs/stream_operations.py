"""The operations of durable streams; their answers are mostly headers."""

from __future__ import annotations

from typing import Any

from topicsd.web.docs.operation import Operation, Parameter

_TEXT = {"type": "string"}
_OFFSET = "00000020000000000008000000"
_STATUSES = ("stream_not_found", "stream_gone", "topic_exists_incompatible")


def _header(name: str, text: str, example: str) -> Parameter:
    return Parameter(name, _TEXT, text, example, "header")


def _query(name: str, text: str, example: str, schema: dict[str, Any] | None = None) -> Parameter:
    return Parameter(name, schema or _TEXT, text, example)


_OFFSET_PARAMETER = _query(
    "offset", "Read after this position: what the server said, `-1` or `now`.", _OFFSET
)

PUT_STREAM = Operation(
    "Creates a stream, with the body as its first entries. Repeating the request is 200, another "
    "configuration 409. `Location` and `Stream-Next-Offset` say where it is and where it ends.",
    parameters=(
        _header("Stream-TTL", "Lifetime without use: seconds, or a duration.", "24h"),
        _header("Stream-Expires-At", "End of the stream, RFC 3339.", "2030-01-01T00:00:00Z"),
        _header("Stream-Closed", "`true` creates it closed.", "true"),
        _header("Stream-Forked-From", "Path of the stream to fork.", "/v1/stream/chat"),
        _header("Stream-Fork-Offset", "Where to fork; the tail if left out.", _OFFSET),
        _header("Stream-Fork-Sub-Offset", "Messages or bytes beyond that.", "2"),
        _header("Stream-Retention-Age", "Entries older than this are dropped (ours).", "7d"),
        _header("Stream-Retention-Bytes", "Payload bytes that are kept (ours).", "1000000"),
    ),
    requests={"application/json": '[{"token":"Hel"},{"token":"lo"}]'},
    texts={"application/json": ""},
    statuses={"201": "The stream was created"},
    errors=(
        "stream_not_found",
        "topic_exists_incompatible",
        "stream_conflict",
        "content_type_mismatch",
        "append_timeout",
        "batch_too_large",
    ),
)

POST_STREAM = Operation(
    "Appends the body: one entry, or one for each element of a JSON array. With "
    "`Stream-Closed: true` the stream is closed in the same step, also without a body. "
    "`Producer-Id`, `-Epoch` and `-Seq` make a retry harmless.",
    parameters=(
        _header("Stream-Seq", "Must be greater than the last one, byte by byte.", "0007"),
        _header("Producer-Id", "Names an idempotent producer.", "writer-1"),
        _header("Producer-Epoch", "Its incarnation; an older one is fenced off.", "0"),
        _header("Producer-Seq", "Number of the request in its epoch, from 0.", "0"),
        _header("Stream-Closed", "`true` closes the stream.", "true"),
        _header("Stream-Key", "Routing key of the entries.", "user-42"),
        _header("Stream-Timestamp", "When they were written; time never runs back.", "1748467200"),
        _header("If-Match", "Append only if the tail is here (ours).", _OFFSET),
    ),
    requests={"application/json": '{"token":"!"}'},
    texts={"application/json": ""},
    statuses={"204": "Done, or done before"},
    errors=(
        *_STATUSES,
        "stream_closed",
        "stream_seq_conflict",
        "producer_gap",
        "producer_fenced",
        "content_type_mismatch",
        "precondition_failed",
        "append_timeout",
        "batch_too_large",
    ),
)

GET_STREAM = Operation(
    "Entries after a position: a JSON array, or bytes. `Stream-Next-Offset` is where to read on, "
    "`Stream-Up-To-Date` says that this is the tail. `live=long-poll` waits for entries, "
    "`live=sse` is an event stream of `data` and `control` events. HEAD describes the stream.",
    parameters=(
        _OFFSET_PARAMETER,
        _query("live", "Wait for more.", "long-poll", {"enum": ["long-poll", "true", "sse"]}),
        _query("timeout", "Longest wait: seconds, or a duration.", "500ms"),
        _query("timeout_ms", "The same in milliseconds.", "500"),
        _query("cursor", "The last `Stream-Cursor`, for caches.", "3328499"),
        _query("since", "Without an offset: begin at this time.", "2026-01-01T00:00:00Z"),
        _query("key", "Only entries with this routing key.", "user-42"),
        _query("format", "`raw` joins the entries of JSON.", "json", {"enum": ["json", "raw"]}),
        _header("If-None-Match", "The `ETag` of a page that is known: 304.", '"x"'),
    ),
    texts={"application/json": '[{"token":"Hel"},{"token":"lo"}]'},
    statuses={"204": "No entries in time", "304": "Nothing new"},
    errors=(*_STATUSES, "offset_gone"),
)

DELETE_STREAM = Operation(
    "Removes a stream with all its entries. One that others were forked from is kept for them "
    "and answers 410 until the last fork is gone. Live readers are told and hung up on.",
    texts={"application/json": ""},
    statuses={"204": "Gone"},
    errors=_STATUSES,
)

GET_BY_KEY = GET_STREAM._replace(
    text="The entries with one routing key, read like the stream itself: `key=` as a path.",
)

LIST_STREAMS = Operation(
    "Descriptors of streams in the order of their names. When there may be more, the header "
    "`Stream-List-After` has the `after` of the next page.",
    parameters=(
        _query("prefix", "Only names that start so.", "chat/"),
        _query("after", "Only names behind this one.", "chat/41"),
        Parameter("limit", {"type": "integer"}, "Streams on a page, at most 1000.", 100),
    ),
    texts={"application/json": "[]"},
)

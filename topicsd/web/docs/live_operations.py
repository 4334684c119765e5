"""The operations of connections that stay open: watch and WebSocket."""

from __future__ import annotations

from topicsd.model.watch import WatchBody
from topicsd.web.docs import live_shapes as shapes
from topicsd.web.docs.operation import Operation, Parameter

_WID = "wid_BuRguGorNdVFWNQULz-rrw"
_STREAM = """retry: 2000

id: eyJqb2JzIjo0MDk4fQ
event: record
data: {"topic":"jobs","records":[{"$seq":4097,"$ts":1748467200111,"data":{"id":42}}],\
"from_seq":4096,"to_seq":4097,"head_seq":4097}

id: eyJqb2JzIjo0MDk4fQ
event: caught-up
data: {"topic":"jobs","head_seq":4097}

"""

_SOCKET = """{"op":"record","topic":"jobs","records":[{"$seq":4097,"$ts":1748467200111,\
"data":{"id":42}}],"from_seq":4096,"to_seq":4097,"head_seq":4097}"""

POST_WATCH = Operation(
    "Creates a session that follows many topics, each from its own cursor. Open its stream with "
    "`stream_url`. `prefixes` (an extension) follows existing and future topics; `match` in a "
    "topic's options (an extension) delivers only records whose tag matches.",
    parameters=(
        Parameter(
            "lenient",
            {"type": "boolean", "default": False},
            "Leave unknown topics out instead of refusing.",
            True,
        ),
    ),
    request=WatchBody,
    request_required=True,
    request_example={
        "node": "worker-eu-1",
        "topics": {"jobs": {"from_seq": 4096}, "events": {"tail": True}},
        "heartbeat_ms": 15000,
    },
    reply=shapes.WatchReply,
    reply_example={
        "wid": _WID,
        "stream_url": f"/v0/watch/{_WID}",
        "session_ttl_ms": 300000,
        "topics": {
            "jobs": {"from_seq": 4096, "head_seq": 5210, "earliest_seq": 3001},
            "events": {"from_seq": 88123, "head_seq": 88123, "earliest_seq": 80000},
        },
        "performance": {"server_total_ms": 0.7},
    },
    errors=("topic_not_found",),
)

GET_WATCH = Operation(
    "An event stream of `record`, `tombstone`, `caught-up`, `topic-deleted` and `error` frames. "
    "It resumes where the session was, or earlier, where `Last-Event-ID` says. A second "
    "connection takes the session over. Needs the key that created the session.",
    parameters=(
        Parameter(
            "token",
            {"type": "string"},
            "The key, for a browser's EventSource, which cannot send headers.",
            "secret",
        ),
        Parameter(
            "Last-Event-ID",
            {"type": "string"},
            "The id of the last frame the client has seen.",
            "eyJqb2JzIjo0MDk4fQ",
            "header",
        ),
    ),
    texts={"text/event-stream": _STREAM},
    errors=("not_found", "not_acceptable"),
)

GET_WS = Operation(
    "One connection for reading and writing. The client sends `subscribe`, `unsubscribe`, "
    "`publish` and `ping`; the server answers with `subscribed`, `unsubscribed`, `ack`, `pong` or "
    "`error`, and sends `record`, `caught_up`, `tombstone` and `topic_deleted` for what is "
    "followed. A `request_id` is echoed. Subscribing needs the `read` scope, publishing `write`, "
    "and `admin` when it has a `config`. An ack comes before the records it is about.",
    texts={"application/json": _SOCKET},
    switches=True,
)

"""The operations of routers."""

from __future__ import annotations

from typing import Any

from topicsd.model.router import RouterBody
from topicsd.web.docs import router_shapes as shapes
from topicsd.web.docs.operation import Operation, Parameter

_QUICK = {"server_total_ms": 0.2}
_CONFIG: dict[str, Any] = {
    "source": "orders",
    "dest": "audit",
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
}
_TOTAL = 480231

PUT_ROUTER = Operation(
    "Copies every record that comes to `source` from now on to `dest`, after the write is "
    "answered and without writing it to the log again. A destination has one source. With other "
    "ends an existing router starts at the new source's head.",
    request=RouterBody,
    request_required=True,
    request_example={**_CONFIG, "filter": ["tag", "Glob", "public:*"], "create_dest": True},
    reply=shapes.RouterPutReply,
    reply_example={
        "router": "orders->audit",
        "created": True,
        **_CONFIG,
        "filter": ["tag", "Glob", "public:*"],
        "performance": _QUICK,
    },
    creates=True,
    errors=("topic_not_found", "router_cycle", "topic_exists_incompatible", "storage_full"),
)

GET_ROUTER = Operation(
    "The router, once it has forwarded what its source held at the request, or after a second.",
    reply=shapes.RouterReply,
    reply_example={
        "router": "orders->audit",
        **_CONFIG,
        "forwarded_total": _TOTAL,
        "performance": _QUICK,
    },
    errors=("router_not_found",),
)

DELETE_ROUTER = Operation(
    "Stops forwarding. What was copied stays; an absent router is fine.",
    reply=shapes.RouterDeletedReply,
    reply_example={"router": "orders->audit", "deleted": True, "performance": _QUICK},
)

LIST_ROUTERS = Operation(
    "Routers in byte order of their names, only those whose name and topics the key may touch.",
    parameters=(
        Parameter("prefix", {"type": "string"}, "Only names that start with this.", "orders"),
        Parameter("source", {"type": "string"}, "Only routers from this topic.", "orders"),
        Parameter("dest", {"type": "string"}, "Only routers to this topic.", "audit"),
        Parameter(
            "page_size",
            {"type": "integer", "minimum": 0, "default": 100},
            "Routers a page; 0 = 100; clamped to 1000.",
            100,
        ),
        Parameter(
            "cursor",
            {"type": "string"},
            "`next_cursor` of the page before.",
            "eyJhZnRlciI6Im9yZGVycy0+YXVkaXQifQ==",
        ),
    ),
    reply=shapes.RouterList,
    reply_example={
        "routers": [
            {
                "router": "orders->audit",
                "source": "orders",
                "dest": "audit",
                "guarantee": "at_least_once",
                "forwarded_total": _TOTAL,
            }
        ],
        "next_cursor": "eyJhZnRlciI6Im9yZGVycy0+YXVkaXQifQ==",
        "performance": _QUICK,
    },
)

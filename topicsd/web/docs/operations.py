"""The operations of the route table: types, parameters, errors, and an example of each."""

from __future__ import annotations

from typing import Any

import msgspec

import topicsd
from topicsd.model.topic import DEFAULT, TopicConfig
from topicsd.web.docs import shapes
from topicsd.web.docs.fields import TEXTS, U64
from topicsd.web.docs.metrics_example import METRICS_EXAMPLE
from topicsd.web.docs.operation import Operation, Parameter
from topicsd.web.v0.delete import DeleteBody
from topicsd.web.v0.diff import DiffBody
from topicsd.web.v0.records import IDEMPOTENCY_KEY_MAX, AppendBody
from topicsd.web.v0.write import WriteManyBody

_BOOLEAN = {"type": "boolean"}
_CONFIG: dict[str, Any] = msgspec.to_builtins(DEFAULT)
_QUICK = {"server_total_ms": 0.22}
_APPEND_ERRORS = (
    "batch_too_large",
    "record_too_large",
    "topic_not_found",
    "topic_full",
    "storage_full",
)
_RETURN_SEQS = Parameter(
    "return_seqs", {**_BOOLEAN, "default": True}, "Whether to list every seq.", False
)

PUT_TOPIC = Operation(
    "Creates the topic, or replaces its configuration: what is left out returns to its default, "
    "except `type`, which stays. Changes apply from now on and rewrite no record.",
    request=TopicConfig,
    request_example={"ttl_ms": 60000, "cap_records": 1000000, "durability": "fsync"},
    reply=shapes.TopicPutReply,
    reply_example={
        "topic": "jobs",
        "created": True,
        "config": {
            **_CONFIG,
            "ttl_ms": 60000,
            "cap_records": 1000000,
            "durable": True,
            "durability": "fsync",
        },
        "performance": _QUICK,
    },
    creates=True,
    errors=("topic_exists_incompatible", "storage_full"),
)

GET_TOPIC = Operation(
    "Where the log begins and ends, how much it holds, and how it is configured.",
    parameters=(
        Parameter("touch", {**_BOOLEAN, "default": True}, "Count as a read for priority.", False),
    ),
    reply=shapes.TopicState,
    reply_example={
        "topic": "jobs",
        "type": "log",
        "head_seq": 480231,
        "earliest_seq": 479101,
        "next_seq": 480232,
        "count": 1131,
        "bytes": 2310912,
        "config": _CONFIG,
        "effective_priority": 500,
        "last_write_ts": 1748450000123,
        "last_read_ts": 1748450009000,
        "performance": _QUICK,
    },
    errors=("topic_not_found",),
)

DELETE_TOPIC = Operation(
    "Removes the topic with its records, idempotency keys and routers. An absent topic is fine. "
    "A later topic of the same name starts at seq 1, and old cursors learn of it.",
    parameters=(
        Parameter(
            "if_empty", {**_BOOLEAN, "default": False}, "Refuse when records are left.", True
        ),
    ),
    reply=shapes.TopicDeletedReply,
    reply_example={
        "topic": "jobs",
        "deleted": True,
        "routers_removed": [],
        "performance": _QUICK,
    },
    errors=("topic_not_empty", "storage_full"),
)

LIST_TOPICS = Operation(
    "Topics in byte order of their names, only those the key may touch.",
    parameters=(
        Parameter("prefix", {"type": "string"}, "Only names that start with this.", "tenant42:"),
        Parameter(
            "page_size",
            {"type": "integer", "minimum": 0, "default": 100},
            "Topics a page; 0 = 100; clamped to 1000.",
            100,
        ),
        Parameter(
            "cursor",
            {"type": "string"},
            "`next_cursor` of the page before.",
            "eyJhZnRlciI6ImpvYnMifQ==",
        ),
        Parameter("touch", {**_BOOLEAN, "default": False}, "Count as a read for priority.", False),
    ),
    reply=shapes.TopicList,
    reply_example={
        "topics": [
            {
                "topic": "jobs",
                "head_seq": 99,
                "earliest_seq": 1,
                "count": 99,
                "bytes": 8112,
                "durable": False,
                "effective_priority": 3,
            }
        ],
        "next_cursor": "eyJhZnRlciI6ImpvYnMifQ==",
        "performance": _QUICK,
    },
)

POST_RECORDS = Operation(
    "Appends all records or none, with seqs in a row. The first write creates the topic unless "
    "`create` is false; `config` applies only then, and needs the admin scope too.",
    parameters=(
        _RETURN_SEQS,
        Parameter(
            "Idempotency-Key",
            {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX},
            "Same as `idempotency_key`, which wins.",
            "order-1-paid",
            place="header",
        ),
    ),
    request=AppendBody,
    request_required=True,
    request_example={
        "records": [
            {"data": {"id": 1, "total": 12.5}, "tag": "customer:7", "meta": {"trace": "abc"}},
            {"data": "any JSON", "node": "shop-eu"},
        ],
        "idempotency_key": "order-1-paid",
    },
    reply=shapes.AppendReply,
    reply_example={
        "topic": "jobs",
        "first_seq": 480232,
        "last_seq": 480233,
        "seqs": [480232, 480233],
        "head_seq": 480233,
        "count": 2,
        "created": False,
        "deduped": False,
        "performance": {"server_total_ms": 0.62, "wal_append_ms": 0.1, "fsync_ms": 0.39},
    },
    creates=True,
    errors=_APPEND_ERRORS,
)

POST_WRITE = Operation(
    "Appends to several topics, all or nothing: when one part is refused, no part was written "
    "and no topic created. Each part is what an append takes, plus its topic. Beyond API v0.",
    parameters=(_RETURN_SEQS,),
    request=WriteManyBody,
    request_required=True,
    request_example={
        "writes": [
            {"topic": "orders", "records": [{"data": {"id": 1}, "tag": "customer:7"}]},
            {"topic": "audit", "records": [{"data": "order 1"}], "idempotency_key": "order-1"},
        ]
    },
    reply=shapes.WriteReply,
    reply_example={
        "writes": [
            {
                "topic": "orders",
                "first_seq": 8,
                "last_seq": 8,
                "seqs": [8],
                "head_seq": 8,
                "count": 1,
                "created": False,
                "deduped": False,
            },
            {
                "topic": "audit",
                "first_seq": 1,
                "last_seq": 1,
                "seqs": [1],
                "head_seq": 1,
                "count": 1,
                "created": True,
                "deduped": False,
            },
        ],
        "performance": {"server_total_ms": 0.62, "wal_append_ms": 0.1, "fsync_ms": 0.39},
    },
    creates=True,
    errors=_APPEND_ERRORS,
)

_DIFF_REPLY = {
    "topic": "jobs",
    "records": [
        {
            "$seq": 479102,
            "$ts": 1748450001000,
            "$node": "worker-us-2",
            "data": {"type": "resize"},
            "meta": {"trace": "z9"},
        }
    ],
    "next_from_seq": 479102,
    "head_seq": 480234,
    "earliest_seq": 479101,
    "caught_up": False,
    "tombstone": None,
    "lag": 1132,
    "performance": {"server_total_ms": 0.3, "records_scanned": 1},
}

POST_DIFF = Operation(
    "The records after a cursor. Loss is never silent: a cursor that missed records gets one "
    "`tombstone`, in a 200. With `wait_ms` the answer waits for the next record.",
    request=DiffBody,
    request_example={"from_seq": 479101, "limit": 500, "node": "worker-eu-1", "wait_ms": 0},
    reply=shapes.DiffReply,
    reply_example=_DIFF_REPLY,
    errors=("topic_not_found", "storage_corrupt"),
)

GET_DIFF = Operation(
    "The same read, asked for with query parameters.",
    parameters=(
        Parameter("from_seq", {**U64, "default": 0}, TEXTS["from_seq"], 479101),
        Parameter("limit", {**U64, "default": 0}, TEXTS["limit"], 500),
        Parameter(
            "node",
            {"type": "array", "items": {"type": "string"}},
            "Origins whose records to leave out; may repeat.",
            ["worker-eu-1"],
        ),
        Parameter("include_tags", {**_BOOLEAN, "default": False}, TEXTS["include_tags"], True),
        Parameter("include_meta", {**_BOOLEAN, "default": True}, TEXTS["include_meta"], False),
        Parameter("wait_ms", {**U64, "default": 0}, TEXTS["wait_ms"], 1000),
        Parameter(
            "match",
            {"type": "string"},
            "Only records whose tag matches: a tag, or a predicate as JSON text.",
            '["tag","Glob","tenant42:*"]',
        ),
    ),
    reply=shapes.DiffReply,
    reply_example=_DIFF_REPLY,
    errors=("topic_not_found", "storage_corrupt"),
)

POST_DELETE = Operation(
    "Deletes what matches now, for every reader at once, without a tombstone. Both conditions "
    "together mean both must hold.",
    request=DeleteBody,
    request_required=True,
    request_example={"before_seq": 480000, "match": ["tag", "Glob", "tenant42:*"]},
    reply=shapes.RecordsDeletedReply,
    reply_example={
        "topic": "jobs",
        "deleted": 12,
        "earliest_seq": 479101,
        "head_seq": 480234,
        "count": 1118,
        "bytes": 2286000,
        "performance": _QUICK,
    },
    errors=("topic_not_found", "storage_full", "storage_corrupt"),
)

HEALTH = Operation(
    "Answers for as long as the process can.",
    reply=shapes.Health,
    reply_example={
        "status": "ok",
        "version": topicsd.__version__,
        "uptime_ms": 86400000,
        "performance": _QUICK,
    },
)

READY = Operation(
    "503 while the log is replayed and while the server stops.",
    reply=shapes.Ready,
    reply_example={
        "status": "ready",
        "wal_replay_complete": True,
        "topics": 12,
        "performance": _QUICK,
    },
    errors=("not_ready", "shutting_down"),
)

GET_METRICS = Operation(
    "Prometheus text, or with `Accept: application/json` the same numbers as JSON. Answered "
    "also while the server is not ready. A key bound to prefixes sees only its own topics.",
    reply=shapes.Metrics,
    reply_example=METRICS_EXAMPLE,
    texts={"text/plain": 'topics_topics 42\ntopics_topic_head_seq{topic="jobs"} 480231\n'},
)

PAGE = Operation(
    "A page that shows the document. It loads nothing from elsewhere.",
    texts={"text/html": "<!doctype html>..."},
)

DOCUMENT = Operation(
    "Generated from the table that serves the requests.",
    reply=shapes.OpenApiDocument,
    reply_example={"openapi": "3.1.0", "info": {}, "paths": {}, "components": {}},
)

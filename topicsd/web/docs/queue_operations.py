"""The operations of queues."""

from __future__ import annotations

from topicsd.web.docs import queue_shapes as shapes
from topicsd.web.docs.operation import Operation, Parameter
from topicsd.web.v0.jobs import RedriveBody
from topicsd.web.v0.leases import AckBody, ClaimBody, ExtendBody, NackBody

_QUICK = {"server_total_ms": 0.3}
_ERRORS = ("topic_not_found", "not_a_queue")
_LEASE = "lease_7f3a9c"
_JOB = {
    "$seq": 480101,
    "lease_id": _LEASE,
    "deadline": 1748450039000,
    "deliveries": 1,
    "$ts": 1748450001000,
    "$tag": "tenant42:job-8800",
    "data": {"type": "resize", "url": "s3://b/x.png"},
    "meta": {"trace": "z9"},
}
_STREAM = """retry: 2000

: hb 1748450009000

id: 480101
event: job
data: {"topic":"jobs","$seq":480101,"lease_id":"lease_7f3a9c","deadline":1748450039000,\
"deliveries":1,"$ts":1748450001000,"data":{"type":"resize"}}

"""

POST_CLAIM = Operation(
    "Leases up to `max` jobs to a node: those whose lease ran out or that were given back "
    "first, then new ones. With `claim_jitter_ms` a claim waits for the end of the window and "
    "shares what there is with the others in it. Fewer than `max` means that no more are ready.",
    request=ClaimBody,
    request_required=True,
    request_example={"node": "worker-1", "max": 16, "lease_ms": 30000},
    reply=shapes.ClaimReply,
    reply_example={
        "topic": "jobs",
        "claimed": [_JOB],
        "count": 1,
        "ready": 840,
        "performance": {"server_total_ms": 0.42, "throttle_wait_ms": 0.0},
    },
    errors=(*_ERRORS, "storage_full"),
)

POST_ACK = Operation(
    "Completes jobs: they are deleted for good. Seqs that the node does not hold, or not under "
    "the lease it names, are skipped.",
    request=AckBody,
    request_required=True,
    request_example={"node": "worker-1", "seqs": [480101], "lease_ids": [_LEASE]},
    reply=shapes.AckReply,
    reply_example={
        "topic": "jobs",
        "acked": 1,
        "skipped": [],
        "ready": 840,
        "in_flight": 286,
        "performance": {"server_total_ms": 0.3, "fsync_ms": 0.21},
    },
    errors=(*_ERRORS, "batch_too_large", "storage_full"),
)

POST_NACK = Operation(
    "Gives jobs back, to be claimed again at once or after `delay_ms`.",
    request=NackBody,
    request_required=True,
    request_example={"node": "worker-1", "seqs": [480104], "delay_ms": 5000},
    reply=shapes.NackReply,
    reply_example={
        "topic": "jobs",
        "nacked": 1,
        "skipped": [],
        "ready": 841,
        "in_flight": 285,
        "performance": _QUICK,
    },
    errors=(*_ERRORS, "batch_too_large", "storage_full"),
)

POST_EXTEND = Operation(
    "Sets the deadline of jobs that are held to `lease_ms` from now; the lease stays the same.",
    request=ExtendBody,
    request_required=True,
    request_example={"node": "worker-1", "seqs": [480101], "lease_ms": 30000},
    reply=shapes.ExtendReply,
    reply_example={
        "topic": "jobs",
        "extended": 1,
        "skipped": [],
        "deadlines": {"480101": 1748450069000},
        "performance": _QUICK,
    },
    errors=(*_ERRORS, "batch_too_large", "storage_full"),
)

GET_WORK = Operation(
    "An event stream that keeps up to `max` jobs leased to it: `job` frames, heartbeats, and "
    "`error` before it ends. Acks, nacks and extends go to their own endpoints. When the "
    "connection ends, whatever it still holds can be claimed at once.",
    parameters=(
        Parameter("node", {"type": "string"}, "Who the jobs are leased to.", "worker-1"),
        Parameter(
            "max",
            {"type": "integer", "minimum": 0, "default": 1},
            "Jobs held at once; clamped to TOPICS_MAX_CLAIM.",
            8,
        ),
        Parameter(
            "lease_ms",
            {"type": "integer", "minimum": 0},
            "Lease of each job; the queue's own when absent.",
            30000,
        ),
        Parameter(
            "heartbeat_ms",
            {"type": "integer", "minimum": 0, "default": 15000},
            "How often silence is broken (an extension).",
            15000,
        ),
        Parameter(
            "token",
            {"type": "string"},
            "The key, for a browser's EventSource, which cannot send headers.",
            "secret",
        ),
    ),
    texts={"text/event-stream": _STREAM},
    errors=(*_ERRORS, "not_acceptable"),
)

GET_JOBS = Operation(
    "The jobs of a queue in one state, page by page; dead ones are those in its dead-letter "
    "topic. Looking changes nothing. An extension.",
    parameters=(
        Parameter(
            "state",
            {"enum": ["ready", "in_flight", "delayed", "dead"], "default": "ready"},
            "Which jobs.",
            "in_flight",
        ),
        Parameter(
            "page_size",
            {"type": "integer", "minimum": 0, "default": 100},
            "Jobs a page; 0 = 100; clamped to 1000.",
            100,
        ),
        Parameter(
            "cursor",
            {"type": "string"},
            "`next_cursor` of the page before.",
            "eyJhZnRlcl9zZXEiOjEwMH0=",
        ),
    ),
    reply=shapes.JobsReply,
    reply_example={
        "topic": "jobs",
        "state": "in_flight",
        "jobs": [
            {
                "$seq": 480101,
                "deliveries": 1,
                "node": "worker-1",
                "deadline": 1748450039000,
                "$ts": 1748450001000,
                "data": {"type": "resize"},
            }
        ],
        "next_cursor": "eyJhZnRlcl9zZXEiOjQ4MDEwMX0=",
        "performance": _QUICK,
    },
    errors=_ERRORS,
)

POST_REDRIVE = Operation(
    "Moves jobs of this queue from its dead-letter topic back, the oldest first, as new jobs "
    "without what was added to their meta. All of them or none. An extension.",
    request=RedriveBody,
    request_example={"max": 100},
    reply=shapes.RedriveReply,
    reply_example={"topic": "jobs", "redriven": 4, "ready": 844, "performance": _QUICK},
    errors=(*_ERRORS, "topic_full", "storage_full"),
)

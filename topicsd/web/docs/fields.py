"""What every field of a request or reply means, and the bounds its type does not tell.

`TEXTS` is by name, since a name means the same everywhere; `OVERLAYS` is by `Type.field` and
is merged over the schema generated from the type. A field of a request that is clamped, not
refused, has its clamp in the text and no bound; its echo in a reply has the bound.
"""

from __future__ import annotations

from typing import Any

from topicsd.model.topic import (
    CLAIM_JITTER_MS_MAX,
    DELAY_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    PRIORITY_MAX,
    U64_MAX,
)

TOPIC_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
ROUTER_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}$"
U64 = {"type": "integer", "minimum": 0, "maximum": U64_MAX}
NAME = {"type": "string", "pattern": TOPIC_PATTERN}
MATCH: dict[str, Any] = {
    "description": 'A tag predicate: `["tag", "Eq", text]`, `["tag", "Glob", "prefix*"]`, '
    "or a bare string, which is short for Eq.",
    "oneOf": [
        {"type": "string"},
        {
            "type": "array",
            "prefixItems": [{"const": "tag"}, {"const": "Eq"}, {"type": "string"}],
            "minItems": 3,
            "maxItems": 3,
        },
        {
            "type": "array",
            "prefixItems": [
                {"const": "tag"},
                {"const": "Glob"},
                {"type": "string", "pattern": r"^[^*]*\*$"},
            ],
            "minItems": 3,
            "maxItems": 3,
        },
    ],
}
_PRIORITY_TEXT = (
    f"Higher is served first under pressure; clamped to {-PRIORITY_MAX} .. {PRIORITY_MAX}. "
    "null derives it from recency."
)
_LEASE_TEXT = f"Lease of a claimed job; clamped to {LEASE_MS_MIN} .. {LEASE_MS_MAX}."
_JITTER_TEXT = f"Width of the window that gathers claims; clamped to 0 .. {CLAIM_JITTER_MS_MAX}."

_QUEUE_TEXTS = {
    "acked": "Jobs that this call completed.",
    "claimed": "The leased jobs.",
    "deadline": "When the lease ends unless it is extended.",
    "deadlines": "New deadlines by seq.",
    "delay_ms": f"Hidden for so long; clamped to 0 .. {DELAY_MS_MAX}. In a record: queues only.",
    "deliveries": "How often the job was delivered.",
    "due": "When the job can be claimed. Only of a delayed one.",
    "extended": "Leases that this call prolonged.",
    "jobs": "Jobs of the page.",
    "lease_id": "Name of the lease, to be echoed in `lease_ids`.",
    "lease_ids": "One lease for each seq; a seq whose lease is another by now is skipped.",
    "max": "At most so many jobs; clamped to TOPICS_MAX_CLAIM.",
    "nacked": "Jobs that this call gave back.",
    "redriven": "Jobs that were moved.",
    "skipped": "Seqs that the node does not hold.",
    "state": "What the jobs have in common.",
}
TEXTS: dict[str, str] = {
    **_QUEUE_TEXTS,
    "$node": "Origin the writer named. Absent when there is none.",
    "$seq": "Number of the record in its topic, from 1, never used twice.",
    "$tag": "Tag the writer gave. Absent unless asked for.",
    "$ts": "Commit time, milliseconds since 1970.",
    "allow_cycle": "Let routers form a circle; a record goes around it eight times at most.",
    "auto_create": "Whether a write to this name may create the topic.",
    "auto_priority": "Derive the priority from recency when `priority` is null.",
    "before_seq": "Delete the records below this seq.",
    "bytes": "Bytes of data and meta retained.",
    "cap_bytes": "Most payload bytes retained; 0 = no cap.",
    "cap_records": "Most records retained; 0 = no cap.",
    "caught_up": "There is no more for now: `next_from_seq` equals `head_seq`.",
    "claim_jitter_ms": _JITTER_TEXT,
    "code": "Stable, machine-readable; branch on it.",
    "components": "Schemas and security schemes.",
    "config": "Configuration of the topic.",
    "count": "Number of records.",
    "create": "Override `auto_create` for this write: false refuses to create.",
    "create_dest": "Create a missing destination; false refuses instead.",
    "created": "This call made the topic or router.",
    "data": "The payload: any JSON, kept byte for byte.",
    "dead_letter": "Topic that takes jobs delivered too often. Must be another topic.",
    "dead_lettered": "Jobs moved to the dead-letter topic.",
    "dedupe_node": "Whether readers may filter records by their node.",
    "deduped": "The idempotency key was known: nothing was appended, the seqs are the first ones.",
    "deleted": "What was deleted: whether there was a topic or router, or how many records.",
    "dest": "Topic that gets the copies. Has one source.",
    "detail": "Structured context of the refusal; differs by code.",
    "disable_backpressure": "Queue this write under pressure instead of refusing it.",
    "discard": "What a full topic does: drop its oldest records, or refuse the write.",
    "durability": "Where a record is when its write is acknowledged. Wins over `durable`.",
    "durable": "Short for durability fsync (true) or disk (false).",
    "earliest_seq": "First live record; `head_seq + 1` when the topic is empty.",
    "effective_priority": "The priority in use now.",
    "error": "What was refused, and why.",
    "filter": "Which tags are forwarded; null forwards everything.",
    "forwarded_total": "Copies that the router ever made.",
    "from_seq": "Return records after this seq; 0 starts at the earliest.",
    "fsync_ms": "Time until the records were on the disk; 0 when the class does not wait.",
    "gap_from": "First seq missed.",
    "gap_to": "Last seq missed.",
    "guarantee": "`exactly_once` marks copies with a key in `meta._topics_router` and leaves "
    "out a copy whose key the destination still has.",
    "head_seq": "Highest seq assigned; 0 for a topic never written.",
    "idempotency_key": "A repeat within the window appends nothing. Wins over the header.",
    "idempotency_window_ms": "How long idempotency keys are remembered; 0 = never.",
    "in_flight": "Jobs leased to a worker.",
    "include_meta": "Include `meta` in each record.",
    "include_tags": "Include `$tag` in each record.",
    "info": "Title and version.",
    "lag": "Seqs between the cursor and the head.",
    "last_read_ts": "Last read, milliseconds since 1970; null if never.",
    "last_write_ts": "Last write, milliseconds since 1970; null if never.",
    "lease_ms": _LEASE_TEXT,
    "leases_durable": "Whether leases survive a crash.",
    "limit": "Most records to return; 0 = 256; clamped to `TOPICS_MAX_LIMIT`.",
    "match": "Which tags.",
    "max_deliveries": "Deliveries after which a job is dead-lettered; 0 = never.",
    "message": "For people; may change.",
    "meta": "Small object of headers, at most 64 keys, kept byte for byte.",
    "missed_estimate": "About how many records were missed.",
    "next_cursor": "Where the next page starts. Absent on the last page.",
    "next_from_seq": "Pass back as `from_seq`.",
    "next_seq": "Seq of the next record written.",
    "node": "Origin of the records; on a read, origins whose records to leave out.",
    "openapi": "Version of the specification.",
    "paths": "Every operation by path and method.",
    "performance": "Where the time went.",
    "preserve_node": "Keep `$node` on copies.",
    "preserve_tag": "Keep `$tag` on copies.",
    "priority": _PRIORITY_TEXT,
    "queue": "Jobs by state. Absent on a log.",
    "ready": "Jobs that can be claimed.",
    "reason": "Why: a cap, expiry, both, a topic made anew, a crash, or a router's source that "
    "lost records before they were forwarded.",
    "records": "Records, in order.",
    "records_scanned": "Records examined.",
    "router": "Name of the router.",
    "routers_removed": "Names of the routers that referred to the topic.",
    "seqs": "Seqs of the records, in order. Absent with `return_seqs=false`.",
    "server_total_ms": "Time in the server.",
    "first_seq": "Seq of the first record.",
    "last_seq": "Seq of the last record.",
    "source": "Topic whose records are forwarded.",
    "status": "A word for people and load balancers.",
    "tag": "Key by which records can be deleted.",
    "throttle_wait_ms": "Time parked under pressure.",
    "tombstone": "Records this cursor missed and can never get; null when there are none.",
    "topic": "Name of the topic.",
    "topics": "Topics: their summaries, or their number.",
    "ttl_ms": "Age after which records expire; 0 = never.",
    "type": "A plain log, or a queue. Cannot change.",
    "uptime_ms": "Time since the server started.",
    "version": "Version of the server.",
    "wait_ms": "Wait up to this long for a record; clamped to 30000.",
    "wal_append_ms": "Time to write the log.",
    "wal_replay_complete": "The log was replayed.",
    "writes": "One part a topic, in order; no topic twice.",
}

# Connections that stay open.
TEXTS |= {
    "consistency": "`strong` delivers a record only when it is synced.",
    "heartbeat_ms": "Longest silence on the stream; clamped to 1000 .. 60000.",
    "include_data": "false delivers only `$seq`, `$ts`, `$tag` and `$node`.",
    "max_batch_bytes": "Soft byte budget of a frame; 0 = 1 MiB; clamped to 8 MiB.",
    "prefix": "What the names of the topics start with.",
    "prefixes": "Follow every topic, also future ones, whose name starts so.",
    "session_ttl_ms": "How long the session is kept without a stream.",
    "stream_url": "Where the stream is opened.",
    "tail": "Start at the current head instead of `from_seq`.",
    "wid": "The session; unguessable.",
}

# The numbers of `/v0/metrics`.
TEXTS |= {
    "batches": "Group commits.",
    "buckets": "Observations up to each bound, cumulative.",
    "bytes_live": "Payload bytes of live records.",
    "bytes_written": "Bytes written.",
    "checkpoint_running": "A checkpoint is being taken.",
    "checkpoints": "Checkpoints taken.",
    "connections": "Open connections.",
    "frames": "Frames written.",
    "fsync_count": "Syncs measured.",
    "fsync_latency_us": "How long syncs took.",
    "fsync_micros_total": "Time spent in syncs, microseconds.",
    "fsyncs": "Syncs.",
    "latency_us": "How long they took.",
    "method": "HTTP method.",
    "open_files": "Open files by process.",
    "queue_depth": "Replies waiting for a sync.",
    "queue_depth_peak": "Most replies that ever waited.",
    "queue_in_flight": "Jobs leased to a worker. Absent on a log.",
    "queue_leases_in_flight": "Jobs leased and not acknowledged.",
    "queue_ready": "Jobs that can be claimed. Absent on a log.",
    "queue_topics": "Topics of type queue.",
    "read_only": "The log takes no writes.",
    "records_appended": "Records written.",
    "records_live": "Records that can be read.",
    "records_read": "Records delivered.",
    "replay_progress": "Replay of the log, 0 to 1.",
    "requests": "Latencies by route and class of status.",
    "requests_in_flight": "Requests being served.",
    "rotations": "Log files begun.",
    "route": "Path as in the route table.",
    "routers": "Routers.",
    "segments_sealed": "Segments sealed.",
    "sse_connections": "Open event streams.",
    "submit_full_total": "Writes that found the queue full.",
    "sum": "Sum of the observations.",
    "topic_metrics": "Numbers of single topics, up to `TOPICS_METRICS_TOPICS` of them.",
    "topic_metrics_truncated": "There are more topics than are listed.",
    "topics_disk": "Topics of class disk.",
    "topics_ephemeral": "Topics of class ephemeral.",
    "topics_fsync": "Topics of class fsync.",
    "topics_memory": "Topics of class memory.",
    "wakeup_lag_ms": "From commit to the wakeup of a waiting reader.",
    "wal": "The write-ahead log.",
    "watch_sessions": "Watch sessions.",
}

_SIGNED = {"minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX}
_NULLABLE_NAME = {"type": ["string", "null"], "pattern": TOPIC_PATTERN}

_RECORDS = {"minItems": 1}
_HOLDER = {"description": "The worker that holds the jobs.", "minLength": 1}
_HELD = {"description": "Seqs of jobs that the node holds.", "minItems": 1}
_IDEMPOTENCY_KEY = {"minLength": 1, "maxLength": 256}
_CONFIG = {"$ref": "#/components/schemas/TopicConfig"}

OVERLAYS: dict[str, dict[str, Any]] = {
    "AppendBody.records": _RECORDS,
    "AppendBody.idempotency_key": _IDEMPOTENCY_KEY,
    "AppendBody.config": _CONFIG,
    "WriteBody.records": _RECORDS,
    "WriteBody.idempotency_key": _IDEMPOTENCY_KEY,
    "WriteBody.config": _CONFIG,
    "WriteBody.topic": NAME,
    "WriteManyBody.writes": {"minItems": 1},
    "DeleteBody.match": MATCH,
    **{f"{name}.node": _HOLDER for name in ("ClaimBody", "AckBody", "NackBody", "ExtendBody")},
    **{f"{name}.seqs": _HELD for name in ("AckBody", "NackBody", "ExtendBody")},
    "QueuedJob.node": {"description": "Who holds the job. Only of one in flight."},
    "DiffBody.match": MATCH,
    "RouterBody.source": NAME,
    "RouterBody.dest": NAME,
    "RouterBody.filter": {"oneOf": [*MATCH["oneOf"], {"type": "null"}]},
    "RouterList.routers": {"description": "Routers, in byte order of their names."},
    "Metrics.ready": {"description": "Reads and writes are served."},
    "Histogram.count": {"description": "Number of observations."},
    "RequestMetrics.status": {"description": "Class of the status, such as 2xx."},
    "RecordBody.meta": {"type": "object", "maxProperties": 64},
    "TopicConfig.priority": {
        "type": ["integer", "null"],
        "minimum": -(2**31),
        "maximum": 2**31 - 1,
    },
    "TopicConfig.dead_letter": _NULLABLE_NAME,
    "TopicConfigEcho.dead_letter": _NULLABLE_NAME,
    "TopicConfigEcho.priority": {"type": ["integer", "null"], **_SIGNED},
    "TopicConfigEcho.lease_ms": {"minimum": LEASE_MS_MIN, "maximum": LEASE_MS_MAX},
    "TopicConfigEcho.claim_jitter_ms": {"maximum": CLAIM_JITTER_MS_MAX},
    "TopicState.effective_priority": _SIGNED,
    "TopicSummary.effective_priority": _SIGNED,
}

# Required by a handler although the decoder gives it a default, by type.
REQUIRED: dict[str, tuple[str, ...]] = {"RecordBody": ("data",)}
# At least one of these fields, by type.
ANY_OF: dict[str, tuple[str, ...]] = {"DeleteBody": ("before_seq", "match")}

"""The shapes of replies, as types: what the document promises and tests compare with.

Handlers render replies by hand where that is faster; these types are never encoded. A field
with `UNSET` as its default may be absent. Clients must ignore fields they do not know.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from topicsd.model.topic import TopicConfig


class Performance(msgspec.Struct):
    """Where the time went (API 0.9); any subset beside the total."""

    server_total_ms: float
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    records_scanned: int | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET


class ErrorBody(msgspec.Struct):
    """Branch on the code; the message is for people and may change."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class Error(msgspec.Struct):
    """Every refusal (API 0.5)."""

    error: ErrorBody
    performance: Performance


class TopicConfigEcho(TopicConfig, frozen=True, kw_only=True):
    """A configuration as it is in effect: complete and clamped."""


class TopicPutReply(msgspec.Struct):
    """The configuration in effect, and whether this call made the topic."""

    topic: str
    created: bool
    config: TopicConfigEcho
    performance: Performance


class QueueCounts(msgspec.Struct):
    """Jobs of a queue by state."""

    ready: int
    in_flight: int
    dead_lettered: int


class TopicState(msgspec.Struct):
    """Watermarks, size and configuration of a topic."""

    topic: str
    type: Literal["log", "queue"]
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfigEcho
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    performance: Performance
    queue: QueueCounts | UnsetType = UNSET


class TopicSummary(msgspec.Struct):
    """One topic of a listing."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicList(msgspec.Struct):
    """One page of topics in byte order of their names."""

    topics: list[TopicSummary]
    performance: Performance
    next_cursor: str | UnsetType = UNSET


class TopicDeletedReply(msgspec.Struct):
    """Whether there was a topic, and the routers that went with it."""

    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Performance


class AppendReply(msgspec.Struct):
    """The seqs the records got, in order and without holes."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    performance: Performance
    seqs: list[int] | UnsetType = UNSET


class WrittenPart(msgspec.Struct):
    """What one part of a write to several topics did."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | UnsetType = UNSET


class WriteReply(msgspec.Struct):
    """One object a part, in the order of the request."""

    writes: list[WrittenPart]
    performance: Performance


class Record(msgspec.Struct):
    """A record as readers get it: the payload is what the writer sent, byte for byte."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: Any
    node: str | UnsetType = msgspec.field(name="$node", default=UNSET)
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    meta: dict[str, Any] | UnsetType = UNSET


class Tombstone(msgspec.Struct):
    """Records that a cursor missed and can never get, inclusive at both ends (API 3.3)."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "recreated", "lost"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffReply(msgspec.Struct):
    """The records after the cursor, and where to go on."""

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: Performance


class RecordsDeletedReply(msgspec.Struct):
    """How many records went, and the topic after it."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance


class Histogram(msgspec.Struct):
    """Cumulative counts by upper bound; the last bound is `+Inf`."""

    buckets: dict[str, int]
    sum: int
    count: int


class WalMetrics(msgspec.Struct):
    """The write-ahead log since the engine started."""

    frames: int
    batches: int
    fsyncs: int
    fsync_count: int
    fsync_micros_total: int
    bytes_written: int
    rotations: int
    queue_depth: int
    queue_depth_peak: int
    submit_full_total: int
    read_only: bool
    fsync_latency_us: Histogram


class RequestMetrics(msgspec.Struct):
    """How long the requests of one route and status class took."""

    method: str
    route: str
    status: str
    latency_us: Histogram


class TopicMetrics(msgspec.Struct):
    """One topic; the last two are there for queues."""

    topic: str
    head_seq: int
    earliest_seq: int
    records_live: int
    bytes_live: int
    queue_ready: int | UnsetType = UNSET
    queue_in_flight: int | UnsetType = UNSET


class Metrics(msgspec.Struct):
    """Every number of `/v0/metrics`."""

    topics: int
    routers: int
    records_live: int
    bytes_live: int
    queue_topics: int
    queue_leases_in_flight: int
    sse_connections: int
    watch_sessions: int
    ready: bool
    replay_progress: float
    uptime_ms: int
    topics_ephemeral: int
    topics_memory: int
    topics_disk: int
    topics_fsync: int
    wal: WalMetrics
    records_appended: int
    records_read: int
    requests_in_flight: int
    connections: int
    checkpoints: int
    checkpoint_running: bool
    segments_sealed: int
    open_files: dict[str, int]
    wakeup_lag_ms: Histogram
    requests: list[RequestMetrics]
    topic_metrics: list[TopicMetrics]
    topic_metrics_truncated: bool
    performance: Performance


class Health(msgspec.Struct):
    """The process answers."""

    status: Literal["ok"]
    version: str
    uptime_ms: int
    performance: Performance


class Ready(msgspec.Struct):
    """Reads and writes are served."""

    status: Literal["ready"]
    wal_replay_complete: bool
    topics: int
    performance: Performance


class OpenApiDocument(msgspec.Struct):
    """The document of which this is a part."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]

"""The example of `GET /v0/metrics` as JSON, complete enough to be checked against its type."""

from __future__ import annotations

from typing import Any, Final

_FSYNC: Final = {
    "buckets": {"50": 0, "500": 84120, "+Inf": 88241},
    "sum": 19412044,
    "count": 88241,
}

METRICS_EXAMPLE: Final[dict[str, Any]] = {
    "topics": 42,
    "routers": 0,
    "records_live": 12043,
    "bytes_live": 2310912,
    "queue_topics": 0,
    "queue_leases_in_flight": 0,
    "sse_connections": 0,
    "watch_sessions": 0,
    "ready": True,
    "replay_progress": 1.0,
    "uptime_ms": 86400000,
    "topics_ephemeral": 1,
    "topics_memory": 2,
    "topics_disk": 36,
    "topics_fsync": 3,
    "wal": {
        "frames": 480231,
        "batches": 88241,
        "fsyncs": 88241,
        "fsync_count": 88241,
        "fsync_micros_total": 19412044,
        "bytes_written": 310912044,
        "rotations": 5,
        "queue_depth": 3,
        "queue_depth_peak": 64,
        "submit_full_total": 0,
        "read_only": False,
        "fsync_latency_us": _FSYNC,
    },
    "records_appended": 480231,
    "records_read": 960462,
    "requests_in_flight": 2,
    "connections": 8,
    "checkpoints": 17,
    "checkpoint_running": False,
    "segments_sealed": 12,
    "open_files": {"engine": 41, "workers": 60},
    "wakeup_lag_ms": {"buckets": {"1": 900, "+Inf": 1000}, "sum": 1100, "count": 1000},
    "requests": [
        {
            "method": "POST",
            "route": "/v0/topics/:topic",
            "status": "2xx",
            "latency_us": {"buckets": {"250": 100, "+Inf": 120}, "sum": 30000, "count": 120},
        }
    ],
    "topic_metrics": [
        {
            "topic": "jobs",
            "head_seq": 480231,
            "earliest_seq": 468188,
            "records_live": 12043,
            "bytes_live": 2310912,
        }
    ],
    "topic_metrics_truncated": False,
    "performance": {"server_total_ms": 0.22},
}

"""Metrics as Prometheus text, format 0.0.4 (API 8.3).

`FAMILIES` is the list of plain metrics: name, kind, help, and where the number stands in the
snapshot. Numbers are written as integers wherever they are integers, so that a count of
millions is not rounded to an exponent. Names ending in `_ms` and `_us` are the contract's;
ours use base units.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Plain(NamedTuple):
    """A metric with one number; `place` is its path in the snapshot, dotted."""

    name: str
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    text: str
    place: str


_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily

FAMILIES: Final = (
    Plain("topics_topics", _GAUGE, "Topics.", "topics"),
    Plain("topics_routers", _GAUGE, "Routers.", "routers"),
    Plain("topics_records_live", _GAUGE, "Records that can be read.", "records_live"),
    Plain("topics_bytes_live", _GAUGE, "Payload bytes of live records.", "bytes_live"),
    Plain("topics_queue_topics", _GAUGE, "Topics of type queue.", "queue_topics"),
    Plain(
        "topics_queue_leases_in_flight",
        _GAUGE,
        "Jobs leased and not acknowledged.",
        "queue_leases_in_flight",
    ),
    Plain("topics_sse_connections", _GAUGE, "Open event streams.", "sse_connections"),
    Plain("topics_watch_sessions", _GAUGE, "Watch sessions.", "watch_sessions"),
    Plain("topics_ready", _GAUGE, "1 while reads and writes are served.", "ready"),
    Plain("topics_recovery_progress", _GAUGE, "WAL replay, 0 to 1.", "replay_progress"),
    Plain("topics_uptime_ms", _GAUGE, "Time since the server started.", "uptime_ms"),
    Plain("topics_wal_frames", _COUNTER, "WAL frames written.", "wal.frames"),
    Plain("topics_wal_batches", _COUNTER, "Group commits.", "wal.batches"),
    Plain("topics_wal_fsyncs", _COUNTER, "WAL syncs.", "wal.fsyncs"),
    Plain("topics_wal_bytes_written", _COUNTER, "WAL bytes written.", "wal.bytes_written"),
    Plain("topics_wal_rotations", _COUNTER, "WAL files begun.", "wal.rotations"),
    Plain("topics_wal_queue_depth", _GAUGE, "Replies waiting for a sync.", "wal.queue_depth"),
    Plain(
        "topics_wal_queue_depth_peak",
        _GAUGE,
        "Most replies that ever waited.",
        "wal.queue_depth_peak",
    ),
    Plain(
        "topics_wal_submit_full",
        _COUNTER,
        "Commands refused because too many were in flight.",
        "wal.submit_full_total",
    ),
    Plain("topics_wal_read_only", _GAUGE, "1 while the WAL finds no space.", "wal.read_only"),
    Plain("topics_records_appended", _COUNTER, "Records appended.", "records_appended"),
    Plain("topics_records_read", _COUNTER, "Records returned by reads.", "records_read"),
    Plain("topics_requests_in_flight", _GAUGE, "Requests being served.", "requests_in_flight"),
    Plain("topics_connections", _GAUGE, "Open HTTP connections.", "connections"),
    Plain("topics_checkpoints", _COUNTER, "Checkpoints begun.", "checkpoints"),
    Plain(
        "topics_checkpoint_running",
        _GAUGE,
        "1 while a checkpoint is written.",
        "checkpoint_running",
    ),
    Plain("topics_segments_sealed", _GAUGE, "Segments sealed and catalogued.", "segments_sealed"),
    Plain(
        "topics_topic_metrics_truncated",
        _GAUGE,
        "1 when there are more topics than the per-topic block shows.",
        "topic_metrics_truncated",
    ),
)

PER_TOPIC: Final = {
    "head_seq": "Highest assigned seq per topic.",
    "earliest_seq": "Lowest seq that can be read per topic.",
    "records_live": "Live records per topic.",
    "bytes_live": "Payload bytes of live records per topic.",
    "queue_ready": "Claimable jobs per queue.",
    "queue_in_flight": "Leased jobs per queue.",
}


def render(snapshot: dict[str, Any]) -> bytes:
    """The text of a snapshot."""
    lines: list[str] = []
    for family in families(snapshot):
        suffix = "_total" if family.type == "counter" else ""
        lines.append(f"# HELP {family.name}{suffix} {family.documentation}")
        lines.append(f"# TYPE {family.name}{suffix} {family.type}")
        lines += [
            f"{sample.name}{_labels(sample.labels)} {_number(sample.value)}"
            for sample in family.samples
        ]
    return ("\n".join(lines) + "\n").encode()


def families(snapshot: dict[str, Any]) -> Iterator[Metric]:
    """Every metric of a snapshot."""
    for plain in FAMILIES:
        yield plain.kind(plain.name, plain.text, value=_find(snapshot, plain.place))
    by_class = GaugeMetricFamily(
        "topics_topics_by_class", "Topics by durability class.", labels=["class"]
    )
    for name in ("ephemeral", "memory", "disk", "fsync"):
        by_class.add_metric([name], snapshot[f"topics_{name}"])
    yield by_class
    files = GaugeMetricFamily("topics_open_files", "Open file descriptors.", labels=["process"])
    for process, count in snapshot["open_files"].items():
        files.add_metric([process], count)
    yield files
    yield from _histograms(snapshot)
    yield from _per_topic(snapshot["topic_metrics"])


def _histograms(snapshot: dict[str, Any]) -> Iterator[Metric]:
    fsync = HistogramMetricFamily("topics_wal_fsync_latency_us", "Duration of WAL syncs.")
    _observe(fsync, [], snapshot["wal"]["fsync_latency_us"], 1)
    yield fsync
    lag = HistogramMetricFamily(
        "topics_wakeup_lag_seconds", "From a record's time to the answer of the reader it woke."
    )
    _observe(lag, [], snapshot["wakeup_lag_ms"], 1e3)
    yield lag
    requests = HistogramMetricFamily(
        "topics_request_duration_seconds",
        "Duration of requests by route and status class.",
        labels=["method", "route", "status"],
    )
    for row in snapshot["requests"]:
        labels = [row["method"], row["route"], row["status"]]
        _observe(requests, labels, row["latency_us"], 1e6)
    yield requests


def _observe(
    family: HistogramMetricFamily, labels: list[str], found: dict[str, Any], scale: float
) -> None:
    """Add a histogram of the snapshot, its bounds divided by `scale`."""
    buckets = [(_bound(bound, scale), count) for bound, count in found["buckets"].items()]
    total = found["sum"] if scale == 1 else found["sum"] / scale
    family.add_metric(labels, buckets=buckets, sum_value=total)


def _bound(text: str, scale: float) -> str:
    return text if text == "+Inf" or scale == 1 else f"{int(text) / scale:g}"


def _per_topic(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    for field, text in PER_TOPIC.items():
        family = GaugeMetricFamily(f"topics_topic_{field}", text, labels=["topic"])
        for row in rows:
            if field in row:
                family.add_metric([row["topic"]], row[field])
        if family.samples:
            yield family


def _find(snapshot: dict[str, Any], place: str) -> int | float:
    found: Any = snapshot
    for step in place.split("."):
        found = found[step]
    return int(found) if isinstance(found, bool) else found


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    # Names of topics, routes and processes have no character that would need escaping.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)

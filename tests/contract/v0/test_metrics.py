"""`GET /v0/metrics` (API 8.3, spec 2.16)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.server import Server
from tests.harness.waiting import until

GAUGES = [
    "topics_topics",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
    "topics_topics_by_class",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_read_only",
    "topics_topic_metrics_truncated",
]
COUNTERS = [
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_submit_full_total",
]
NAMED = [
    "topics",
    "routers",
    "records_live",
    "bytes_live",
    "queue_topics",
    "queue_leases_in_flight",
    "sse_connections",
    "watch_sessions",
    "ready",
    "replay_progress",
    "uptime_ms",
    "topics_ephemeral",
    "topics_memory",
    "topics_disk",
    "topics_fsync",
    "wal",
]
WAL = [
    "frames",
    "batches",
    "fsyncs",
    "fsync_count",
    "fsync_micros_total",
    "bytes_written",
    "rotations",
    "queue_depth",
    "queue_depth_peak",
    "submit_full_total",
    "read_only",
]
BUCKETS = ["50", "100", "250", "500", "1000", "5000", "10000", "50000", "100000", "+Inf"]
# Names the contract prescribes and promtool's style guide dislikes.
DISLIKED = {"topics_uptime_ms", "topics_wal_fsync_latency_us"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def snapshot(api: Api) -> dict[str, Any]:
    return good(api.request("GET", "/v0/metrics", headers={"Accept": "application/json"}))


def text(api: Api) -> str:
    answer = api.request("GET", "/v0/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def samples(content: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(content)
        for sample in family.samples
    }


def latency(found: dict[str, Any], method: str, route: str, status: str) -> int:
    for row in found["requests"]:
        if (row["method"], row["route"], row["status"]) == (method, route, status):
            return int(row["latency_us"]["count"])
    return 0


def test_the_text_has_every_named_metric(api: Api, topic: str) -> None:
    """Each has a TYPE line of its kind and at least one sample."""
    good(api.append(topic, 1), 201)
    content = text(api)
    for kind, names in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name in names:
            assert f"# TYPE {name} {kind}\n" in content
            assert re.search(rf"^# HELP {name} \S", content, re.M)
            assert re.search(rf"^{name}(\{{.*\}})? [\d.]+$", content, re.M), name
    assert "# TYPE topics_wal_fsync_latency_us histogram\n" in content
    for bound in BUCKETS:
        assert f'topics_wal_fsync_latency_us_bucket{{le="{bound}"}} ' in content
    for durability in ("ephemeral", "memory", "disk", "fsync"):
        assert f'topics_topics_by_class{{class="{durability}"}} ' in content
    assert "topics_wal_fsync_latency_us_sum " in content
    assert "topics_wal_fsync_latency_us_count " in content


def test_json_has_every_named_number(api: Api) -> None:
    """`Accept: application/json` answers a snapshot with the names of spec 2.16."""
    found = snapshot(api)
    assert set(NAMED) <= set(found)
    assert set(WAL) <= set(found["wal"])
    assert found["ready"] is True and found["replay_progress"] == 1.0
    assert found["wal"]["read_only"] is False
    for accept in ("*/*", "text/plain", "application/json;q=0", "text/html, */*;q=0.1"):
        answer = api.request("GET", "/v0/metrics", headers={"Accept": accept})
        assert answer.headers["content-type"].startswith("text/plain"), accept


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("application/json;q=0.1, text/plain", "text/plain"),
        ("application/json; q=0.5 , */*;q=1", "text/plain"),
        ("text/plain;q=0.1, application/json", "application/json"),
        ("application/json, text/plain, */*", "application/json"),
        ("text/html, application/*", "application/json"),
    ],
)
def test_weights_decide_between_text_and_json(api: Api, accept: str, media: str) -> None:
    """API 8.3: text by default, JSON for those who prefer it (RFC 9110, 12.5.1)."""
    answer = api.request("GET", "/v0/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].partition(";")[0] == media


def test_both_forms_agree(launch: Callable[..., Server]) -> None:
    """What the text says and what JSON says are the same numbers."""
    api = Api(launch())
    for durability in ("ephemeral", "memory", "disk", "fsync"):
        good(api.append(durability, 1, 22, config={"durability": durability}), 201)

    def agree() -> bool:
        found, lines = snapshot(api), samples(text(api))
        flat = _flatten(found)
        return all(lines[key] == value for key, value in flat.items())

    # Frames of the disk class are synced a little later, perhaps between the two looks.
    until(agree, why="two looks at an idle server to agree")
    assert len(_flatten(snapshot(api))) > 40
    api.close()


def _flatten(found: dict[str, Any]) -> Samples:
    """The samples that a JSON snapshot stands for, without those that each look changes."""
    none: frozenset[tuple[str, str]] = frozenset()
    flat: Samples = {
        (f"topics_{name}", none): found[name]
        for name in NAMED
        if isinstance(found[name], int | bool) and not name.startswith(("topics_", "uptime"))
    }
    flat["topics_recovery_progress", none] = found["replay_progress"]
    wal = found["wal"]
    for name in ("frames", "batches", "fsyncs", "bytes_written", "rotations"):
        flat[f"topics_wal_{name}_total", none] = wal[name]
    flat["topics_wal_submit_full_total", none] = wal["submit_full_total"]
    for name in ("queue_depth", "queue_depth_peak", "read_only"):
        flat[f"topics_wal_{name}", none] = wal[name]
    flat["topics_wal_fsync_latency_us_count", none] = wal["fsync_count"]
    flat["topics_wal_fsync_latency_us_sum", none] = wal["fsync_micros_total"]
    for bound, count in wal["fsync_latency_us"]["buckets"].items():
        flat["topics_wal_fsync_latency_us_bucket", frozenset({("le", bound)})] = count
    for name in ("ephemeral", "memory", "disk", "fsync"):
        flat["topics_topics_by_class", frozenset({("class", name)})] = found[f"topics_{name}"]
    for name in ("records_appended", "records_read", "checkpoints"):
        flat[f"topics_{name}_total", none] = found[name]
    for row in found["topic_metrics"]:
        label = frozenset({("topic", row["topic"])})
        for name in ("head_seq", "earliest_seq", "records_live", "bytes_live"):
            flat[f"topics_topic_{name}", label] = row[name]
    return flat


def test_promtool_accepts_the_text(api: Api, topic: str) -> None:
    """`promtool check metrics` parses it and dislikes nothing but prescribed names."""
    good(api.append(topic, 1), 201)
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text(api),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    complaints = checked.stderr.splitlines()
    assert {line.split()[0] for line in complaints} == DISLIKED, checked.stderr
    assert all("abbreviated units" in line for line in complaints)


def test_the_wal_counts_frames_and_syncs(launch: Callable[..., Server]) -> None:
    """One fsync append is one frame and one sync; an ephemeral one is neither."""
    api = Api(launch())
    good(api.put("safe", {"durability": "fsync"}), 201)
    good(api.put("loose", {"durability": "ephemeral"}), 201)
    before = snapshot(api)["wal"]
    for _ in range(5):
        good(api.append("safe", 1))
        good(api.append("loose", 1))
    found = snapshot(api)
    after = found["wal"]
    assert after["frames"] - before["frames"] == 5
    assert after["fsyncs"] - before["fsyncs"] == 5
    assert after["bytes_written"] > before["bytes_written"]
    assert after["fsync_micros_total"] > before["fsync_micros_total"]
    assert after["fsync_count"] == after["fsyncs"] == after["fsync_latency_us"]["buckets"]["+Inf"]
    assert list(after["fsync_latency_us"]["buckets"]) == BUCKETS
    assert (after["queue_depth"], after["queue_depth_peak"]) == (0, 1)
    assert found["records_appended"] == 10
    api.close()


def test_classes_queues_and_live_records_survive_restart_and_crash(
    launch: Callable[..., Server],
) -> None:
    """Counts by class come from the board, also from one that recovery rebuilt."""
    server = launch()
    api = Api(server)
    for number, durability in enumerate(("memory", "disk", "fsync"), start=1):
        for place in range(number):
            good(api.append(f"{durability}{place}", "x", config={"durability": durability}), 201)
    good(api.put("jobs", {"type": "queue"}), 201)
    good(api.put("gone", {"durability": "ephemeral"}), 201)
    good(api.put("loose", {"durability": "ephemeral"}), 201)
    good(api.delete("gone"))
    expected = {
        "topics": 8,
        "topics_ephemeral": 1,
        "topics_memory": 1,
        "topics_disk": 3,
        "topics_fsync": 3,
        "queue_topics": 1,
        "records_live": 6,
        "bytes_live": 18,
    }
    for change in (None, server.restart, server.crash):
        if change is not None:
            change()
        found = snapshot(api)
        assert {name: found[name] for name in expected} == expected, change
    good(api.put("loose", {"durability": "memory"}))
    assert snapshot(api)["topics_memory"] == 2
    api.close()


def test_the_per_topic_block(launch: Callable[..., Server]) -> None:
    """Head, earliest, live records and bytes of each topic; queue numbers for queues."""
    api = Api(launch())
    good(api.append("a", 10, 11, 12, config={"cap_records": 2}), 201)
    good(api.put("q", {"type": "queue"}), 201)
    found = samples(text(api))

    def of(name: str, topic: str) -> float | None:
        return found.get((f"topics_topic_{name}", frozenset({("topic", topic)})))

    names = ("head_seq", "earliest_seq", "records_live", "bytes_live")
    assert [of(name, "a") for name in names] == [3, 2, 2, 4]
    assert (of("queue_ready", "a"), of("queue_in_flight", "a")) == (None, None)
    assert (of("queue_ready", "q"), of("queue_in_flight", "q")) == (0, 0)
    assert found["topics_topic_metrics_truncated", frozenset()] == 0
    api.close()


def test_the_per_topic_block_is_bounded(launch: Callable[..., Server]) -> None:
    """TOPICS_METRICS_TOPICS topics at most; the flag says when there are more."""
    api = Api(launch(TOPICS_METRICS_TOPICS="2"))
    for name in ("a", "b"):
        good(api.put(name), 201)
    assert snapshot(api)["topic_metrics_truncated"] is False
    good(api.put("c"), 201)
    found = snapshot(api)
    assert [row["topic"] for row in found["topic_metrics"]] == ["a", "b"]
    assert found["topic_metrics_truncated"] is True
    assert "topics_topic_metrics_truncated 1\n" in text(api)
    api.close()


def test_metrics_need_the_read_scope(as_key: Callable[[str], Api]) -> None:
    """With keys: 401 without one, 403 without `read`, 200 with it."""
    refused(as_key("").request("GET", "/v0/metrics"), 401, "unauthorized")
    for name in ("write", "delete", "admin"):
        refused(as_key(name).request("GET", "/v0/metrics"), 403, "forbidden")
    for name in ("full", "read", "rw", "tenant-reader"):
        assert as_key(name).request("GET", "/v0/metrics").status_code == 200
    refused(as_key("full").request("POST", "/v0/metrics"), 405, "method_not_allowed")


def test_a_bound_key_sees_only_its_own_names(as_key: Callable[[str], Api]) -> None:
    """A prefix-limited key cannot enumerate other tenants' topics (API 12)."""
    full = as_key("full")
    good(full.append("tenant42:metrics", 1), 201)
    good(full.append("tenant7:metrics", 1), 201)
    seen = {row["topic"] for row in snapshot(as_key("tenant-reader"))["topic_metrics"]}
    assert "tenant42:metrics" in seen
    assert all(name.startswith("tenant42:") for name in seen)
    assert "tenant7:" not in text(as_key("tenant-reader"))
    assert "tenant7:metrics" in text(full)


def test_every_request_and_record_is_counted_whichever_worker_served_it(api: Api) -> None:
    """Requests by route and status class, records appended and read."""
    before = snapshot(api)
    for number in range(8):
        good(api.append("counted", number, number), 200 if number else 201)
    page = good(api.diff("counted"))
    refused(api.state("absent-for-metrics"), 404, "topic_not_found")
    refused(api.request("GET", "/v0/nowhere"), 404, "not_found")
    after = snapshot(api)

    def grown(method: str, route: str, status: str) -> int:
        return latency(after, method, route, status) - latency(before, method, route, status)

    assert grown("POST", "/v0/topics/:topic", "2xx") == 8
    assert grown("POST", "/v0/topics/:topic/diff", "2xx") == 1
    assert grown("GET", "/v0/topics/:topic", "4xx") == 1
    assert grown("other", "other", "4xx") == 1
    assert after["records_appended"] - before["records_appended"] == 16
    assert after["records_read"] - before["records_read"] == len(page["records"]) == 16
    assert after["requests_in_flight"] == 1
    assert after["connections"] >= 1
    assert after["open_files"]["engine"] > 0


def test_a_woken_reader_is_measured(api: Api, server: Server, topic: str) -> None:
    """The lag from a record's time to the long poll it answers."""
    good(api.put(topic), 201)
    before = snapshot(api)["wakeup_lag_ms"]["count"]
    waiting = snapshot(api)["requests_in_flight"]
    with RawConnection(server.address) as connection:
        body = json.dumps({"wait_ms": 20000}).encode()
        connection.send(build_request("POST", f"/v0/topics/{topic}/diff", body))
        until(lambda: snapshot(api)["requests_in_flight"] > waiting, why="the poll to wait")
        good(api.append(topic, 1))
        assert len(connection.receive().json()["records"]) == 1
    assert snapshot(api)["wakeup_lag_ms"]["count"] == before + 1

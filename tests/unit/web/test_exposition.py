"""Prometheus text from a snapshot."""

from __future__ import annotations

import copy
import math

from prometheus_client.parser import text_string_to_metric_families

from topicsd.web.docs.metrics_example import METRICS_EXAMPLE
from topicsd.web.exposition import FAMILIES, render


def test_the_text_can_be_parsed() -> None:
    """A Prometheus parser reads every family back, each once."""
    names = [
        family.name for family in text_string_to_metric_families(render(METRICS_EXAMPLE).decode())
    ]
    assert len(names) == len(set(names))
    assert {plain.name for plain in FAMILIES} <= set(names)


def test_integers_are_written_in_full() -> None:
    """No exponent and no fraction, however large."""
    snapshot = copy.deepcopy(METRICS_EXAMPLE)
    snapshot["bytes_live"] = 2**60 + 1
    text = render(snapshot).decode()
    assert f"topics_bytes_live {2**60 + 1}\n" in text
    assert 'topics_topic_head_seq{topic="jobs"} 480231\n' in text
    assert "topics_ready 1\n" in text
    assert 'topics_wal_fsync_latency_us_bucket{le="500"} 84120\n' in text


def test_our_histograms_are_in_seconds() -> None:
    """Bounds and sums are scaled from the units they are counted in."""
    text = render(METRICS_EXAMPLE).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    requests = families["topics_request_duration_seconds"].samples
    assert [sample.labels["le"] for sample in requests[:2]] == ["0.00025", "+Inf"]
    assert [sample.value for sample in requests] == [100, 120, 120, 0.03]
    lag = {sample.name: sample.value for sample in families["topics_wakeup_lag_seconds"].samples}
    assert math.isclose(lag["topics_wakeup_lag_seconds_sum"], 1.1)


def test_queue_lines_are_for_queues() -> None:
    """A snapshot without queues has no queue families."""
    snapshot = copy.deepcopy(METRICS_EXAMPLE)
    assert b"topics_topic_queue" not in render(snapshot)
    snapshot["topic_metrics"][0] |= {"queue_ready": 4, "queue_in_flight": 2}
    assert b'topics_topic_queue_in_flight{topic="jobs"} 2\n' in render(snapshot)

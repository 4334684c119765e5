"""GET /v0/topics/:q/jobs: jobs by state, page by page (an extension), and what metrics say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.waiting import until


def pages(api: Api, topic: str, **query: Any) -> list[list[int]]:
    """The seqs of all pages."""
    found = []
    while True:
        body = good(api.jobs(topic, **query))
        found.append([job["$seq"] for job in body["jobs"]])
        if "next_cursor" not in body:
            return found
        query["cursor"] = body["next_cursor"]


def test_every_state_has_its_jobs(api: Api, topic: str) -> None:
    """Jobs in a state are their records plus what the state says."""
    api.queue(topic, *range(1, 7), lease_ms=60_000)
    good(api.claim(topic, "w9", max=4))
    good(api.nack(topic, [2], "w9", delay_ms=50_000))
    good(api.nack(topic, [3], "w9"))
    body = good(api.jobs(topic))
    assert set(body) == {"topic", "state", "jobs", "performance"}
    assert (body["topic"], body["state"]) == (topic, "ready")
    assert [(job["$seq"], job["deliveries"]) for job in body["jobs"]] == [(3, 1), (5, 0), (6, 0)]
    assert set(body["jobs"][0]) == {"$seq", "$ts", "deliveries", "data"}
    held = good(api.jobs(topic, state="in_flight"))["jobs"]
    assert [(job["$seq"], job["node"], job["data"]) for job in held] == [(1, "w9", 1), (4, "w9", 4)]
    assert all(job["deadline"] > job["$ts"] for job in held)
    delayed = good(api.jobs(topic, state="delayed"))["jobs"]
    assert [(job["$seq"], set(job)) for job in delayed] == [
        (2, {"$seq", "$ts", "deliveries", "due", "data"})
    ]
    assert api.counts(topic) == (3, 2, 0)


def test_listings_are_paged(api: Api, topic: str) -> None:
    """Pages of any size show every job once, in order."""
    api.queue(topic, *range(10))
    good(api.claim(topic, max=5))
    good(api.nack(topic, [2, 4]))
    assert pages(api, topic, page_size=2) == [[2, 4], [6, 7], [8, 9], [10]]
    assert pages(api, topic, state="in_flight", page_size=2) == [[1, 3], [5]]
    assert pages(api, topic, state="in_flight", page_size=3) == [[1, 3, 5]]


@pytest.mark.parametrize(
    ("query", "field"),
    [({"state": "x"}, "state"), ({"page_size": "x"}, "page_size"), ({"cursor": "x"}, "cursor")],
)
def test_a_malformed_listing_is_refused(
    api: Api, topic: str, query: dict[str, str], field: str
) -> None:
    """An unknown state, a page size that is no number and a foreign cursor are 400."""
    api.queue(topic)
    error = refused(api.jobs(topic, **query), 400, "invalid_request")
    assert error["detail"]["field"] == field


def test_only_queues_have_jobs(api: Api, topic: str) -> None:
    """404 for no topic, 409 for a log."""
    refused(api.jobs(topic), 404, "topic_not_found")
    good(api.put(topic), 201)
    refused(api.jobs(topic), 409, "not_a_queue")


def test_metrics_count_leases(api: Api, topic: str, clock: ServerClock) -> None:
    """API 8.3: leases in flight of all queues, and the counters of each queue."""
    before = api.metrics()["queue_leases_in_flight"]
    api.queue(topic, *range(5), lease_ms=3_600_000)
    good(api.claim(topic, max=3))
    assert api.metrics()["queue_leases_in_flight"] == before + 3
    rows = {row["topic"]: row for row in api.metrics()["topic_metrics"]}
    assert (rows[topic]["queue_ready"], rows[topic]["queue_in_flight"]) == (2, 3)
    good(api.ack(topic, [1]))
    assert api.metrics()["queue_leases_in_flight"] == before + 2
    clock.advance(3_700_000)
    # Leases of other queues may have run out as well.
    until(lambda: api.metrics()["queue_leases_in_flight"] <= before)
    rows = {row["topic"]: row for row in api.metrics()["topic_metrics"]}
    assert (rows[topic]["queue_ready"], rows[topic]["queue_in_flight"]) == (4, 0)

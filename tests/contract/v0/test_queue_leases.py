"""Ack, nack and extend (API 10.4 to 10.6): what holders may do, and what is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.answers import good, refused, seqs
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.server import Server


def leases(body: dict[str, Any]) -> list[str]:
    return [job["lease_id"] for job in body["claimed"]]


def test_an_ack_is_a_permanent_delete(api: Api, topic: str) -> None:
    """API 10.4: acked jobs are gone from the log; the answer counts what is left."""
    api.queue(topic, *range(5))
    good(api.claim(topic, max=3))
    body = good(api.ack(topic, [1, 3]))
    assert set(body) == {"topic", "acked", "skipped", "ready", "in_flight", "performance"}
    assert (body["acked"], body["skipped"], body["ready"], body["in_flight"]) == (2, [], 2, 1)
    assert body["performance"]["fsync_ms"] == 0
    assert seqs(good(api.diff(topic))) == [2, 4, 5]
    state = good(api.state(topic))
    assert (state["count"], state["earliest_seq"], state["queue"]["ready"]) == (3, 2, 2)


def test_a_durable_ack_reports_its_sync(api: Api, topic: str) -> None:
    """API 10.4: on a durable queue the delete is synced before the ack returns."""
    api.queue(topic, 1, durable=True)
    good(api.claim(topic))
    assert good(api.ack(topic, [1]))["performance"]["fsync_ms"] > 0


def test_a_repeated_ack_is_a_no_op(api: Api, topic: str) -> None:
    """API 10.4: ack is idempotent; what is not held is skipped, in the order of the request."""
    api.queue(topic, *range(4))
    good(api.claim(topic, max=2))
    assert good(api.ack(topic, [2, 2, 4, 9, 1]))["skipped"] == [2, 4, 9]
    again = good(api.ack(topic, [2, 1]))
    assert (again["acked"], again["skipped"], again["ready"]) == (0, [2, 1], 2)


def test_only_the_holder_may_settle_a_job(api: Api, topic: str) -> None:
    """API 10.4 to 10.6: another node's ack, nack and extend are skipped."""
    api.queue(topic, 1)
    good(api.claim(topic, "w1"))
    assert good(api.ack(topic, [1], "w2"))["skipped"] == [1]
    assert good(api.nack(topic, [1], "w2"))["skipped"] == [1]
    body = good(api.extend(topic, [1], "w2", lease_ms=1000))
    assert (body["extended"], body["skipped"], body["deadlines"]) == (0, [1], {})
    assert api.counts(topic) == (0, 1, 0)


def test_a_stale_lease_is_fenced(api: Api, topic: str, clock: ServerClock) -> None:
    """API 10.4: a token whose lease was superseded is skipped, even for the same node."""
    api.queue(topic, 1, 2, lease_ms=30_000)
    old = leases(good(api.claim(topic, max=2)))
    clock.advance(31_000)
    new = leases(good(api.claim(topic, max=2)))
    for verb in ("nack", "extend", "ack"):
        fields = {"node": "w1", "seqs": [1, 2], "lease_ids": old, "lease_ms": 1000}
        assert good(api.post_jobs(topic, verb, **fields))["skipped"] == [1, 2]
    assert good(api.ack(topic, [1, 2], lease_ids=[old[0], new[1]]))["skipped"] == [1]
    assert good(api.ack(topic, [1], lease_ids=[]))["acked"] == 1


def test_past_the_deadline_everything_is_skipped(api: Api, topic: str, clock: ServerClock) -> None:
    """Decision 7: an ack, nack or extend past the deadline is skipped though nobody reclaimed."""
    api.queue(topic, 1, lease_ms=30_000)
    good(api.claim(topic))
    clock.advance(31_000)
    assert good(api.ack(topic, [1]))["skipped"] == [1]
    assert good(api.nack(topic, [1]))["skipped"] == [1]
    assert good(api.extend(topic, [1], lease_ms=1000))["skipped"] == [1]
    assert api.counts(topic) == (1, 0, 0)


def test_a_nack_frees_a_job_at_once(api: Api, topic: str) -> None:
    """API 10.5: released jobs are claimed before new ones, and count as delivered once more."""
    api.queue(topic, *range(3))
    good(api.claim(topic, max=2))
    body = good(api.nack(topic, [2]))
    assert set(body) == {"topic", "nacked", "skipped", "ready", "in_flight", "performance"}
    assert (body["nacked"], body["skipped"], body["ready"], body["in_flight"]) == (1, [], 2, 1)
    jobs = good(api.claim(topic, "w2", max=5))["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(2, 2), (3, 1)]


def test_a_delayed_nack_hides_a_job(api: Api, topic: str, clock: ServerClock) -> None:
    """API 10.5: until delay_ms has passed the job counts neither as ready nor as in flight."""
    api.queue(topic, 1)
    good(api.claim(topic))
    body = good(api.nack(topic, [1], delay_ms=20_000))
    assert (body["ready"], body["in_flight"]) == (0, 0)
    assert good(api.claim(topic))["count"] == 0
    assert api.counts(topic) == (0, 0, 0)
    clock.advance(20_000)
    assert api.counts(topic) == (1, 0, 0)
    assert good(api.claim(topic))["claimed"][0]["deliveries"] == 2


def test_an_extend_sets_the_deadline(api: Api, topic: str, clock: ServerClock) -> None:
    """API 10.6: the new deadline is now plus lease_ms; id and deliveries stay."""
    api.queue(topic, 1, lease_ms=30_000)
    before = good(api.claim(topic))["claimed"][0]
    clock.advance(20_000)
    body = good(api.extend(topic, [1], lease_ms=25_000))
    assert set(body) == {"topic", "extended", "skipped", "deadlines", "performance"}
    assert body["extended"] == 1
    assert 40_000 <= body["deadlines"]["1"] - before["deadline"] + 30_000 <= 60_000
    clock.advance(20_000)
    assert good(api.ack(topic, [1], lease_ids=[before["lease_id"]]))["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"node": None}, "node"),
        ({"seqs": []}, "seqs"),
        ({"seqs": ["1"]}, "seqs[0]"),
        ({"seqs": [-1]}, "seqs"),
        ({"lease_ids": ["lease_1", "lease_2"]}, "lease_ids"),
        ({"lease_ids": ["nonsense"]}, "lease_ids[0]"),
        ({"lease_ids": [7]}, "lease_ids[0]"),
    ],
)
def test_malformed_requests_are_refused(
    api: Api, topic: str, verb: str, fields: dict[str, Any], field: str
) -> None:
    """API 10.4, decision 7: wrong types, no seqs and malformed tokens are 400."""
    api.queue(topic, 1)
    body = {"node": "w", "seqs": [1], "lease_ms": 1000, **fields}
    error = refused(api.post_jobs(topic, verb, **body), 400, "invalid_request")
    assert error["detail"]["field"].startswith(field)


def test_required_fields_are_required(api: Api, topic: str) -> None:
    """API 10.4 to 10.6: node and seqs always, lease_ms of an extend."""
    api.queue(topic, 1)
    for verb in ("ack", "nack", "extend"):
        refused(api.post_jobs(topic, verb, seqs=[1], lease_ms=1000), 400, "invalid_request")
        refused(api.post_jobs(topic, verb, node="w", lease_ms=1000), 400, "invalid_request")
    error = refused(api.extend(topic, [1]), 400, "invalid_request")
    assert error["detail"]["field"] == "lease_ms"


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_too_many_seqs_are_refused(api: Api, topic: str, verb: str) -> None:
    """API 11: more than TOPICS_MAX_CLAIM seqs are 400 batch_too_large."""
    api.queue(topic, 1)
    body = {"node": "w", "seqs": [1] * 1001, "lease_ms": 1000}
    error = refused(api.post_jobs(topic, verb, **body), 400, "batch_too_large")
    assert error["detail"]["max"] == 1000


def test_jobs_can_be_born_delayed(api: Api, topic: str, clock: ServerClock) -> None:
    """An extension: a record with delay_ms is not claimable before; a log refuses it."""
    api.queue(topic)
    good(api.write(topic, [{"data": 1, "delay_ms": 50_000}, {"data": 2}, {"data": 3}]))
    assert api.counts(topic) == (2, 0, 0)
    assert [job["$seq"] for job in good(api.claim(topic, max=5))["claimed"]] == [2, 3]
    clock.advance(50_000)
    job = good(api.claim(topic, max=5))["claimed"]
    assert [(each["$seq"], each["deliveries"]) for each in job if each["$seq"] == 1] == [(1, 1)]
    error = refused(api.write(f"{topic}-log", [{"data": 1, "delay_ms": 5}]), 400, "invalid_request")
    assert error["detail"]["field"] == "records[0].delay_ms"
    refused(api.state(f"{topic}-log"), 404, "topic_not_found")
    refused(api.write(topic, [{"data": 1, "delay_ms": -5}]), 400, "invalid_request")


@pytest.mark.parametrize("durability", ["disk", "fsync", "memory"])
def test_leases_survive_a_restart(
    mortal: Server, mortal_api: Api, topic: str, durability: str
) -> None:
    """DESIGN 10: leases, delays, deliveries and counters come back after a clean stop."""
    mortal_api.queue(topic, *range(6), durability=durability, lease_ms=600_000)
    tokens = leases(good(mortal_api.claim(topic, max=4)))
    good(mortal_api.ack(topic, [1]))
    good(mortal_api.nack(topic, [2], delay_ms=600_000))
    good(mortal_api.nack(topic, [3]))
    mortal.restart()
    assert mortal_api.counts(topic) == (3, 1, 0)
    jobs = good(mortal_api.claim(topic, "w2", max=9))["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(3, 2), (5, 1), (6, 1)]
    assert good(mortal_api.ack(topic, [4], lease_ids=[tokens[3]]))["acked"] == 1


def test_leases_survive_a_crash_when_they_are_durable(
    mortal: Server, mortal_api: Api, topic: str
) -> None:
    """API 0.10: with leases_durable a claim, nack and extend are kept once answered."""
    mortal_api.queue(topic, *range(4), durable=True, leases_durable=True, lease_ms=600_000)
    good(mortal_api.claim(topic, max=3))
    good(mortal_api.ack(topic, [1]))
    good(mortal_api.nack(topic, [2]))
    mortal.crash()
    assert mortal_api.counts(topic) == (2, 1, 0)
    jobs = good(mortal_api.claim(topic, "w2", max=9))["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(2, 2), (4, 1)]

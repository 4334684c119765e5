"""POST /v0/topics/:q/claim (API 10.2): what a claim hands out, in which order, with what."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from topicsd.model.topic import LEASE_MS_MAX, LEASE_MS_MIN


def claimed_seqs(answer: dict[str, Any]) -> list[int]:
    return [job["$seq"] for job in answer["claimed"]]


def test_a_claim_has_exactly_its_shape(api: Api, topic: str) -> None:
    """API 10.2: topic, claimed, count, ready; a job is its record plus its lease."""
    api.queue(topic)
    record = {"data": {"type": "resize"}, "tag": "t:1", "meta": {"trace": "z9"}}
    good(api.write(topic, [record, {"data": None}, {"data": 3}]))
    body = good(api.claim(topic, max=2, lease_ms=40_000))
    assert set(body) == {"topic", "claimed", "count", "ready", "performance"}
    assert set(body["performance"]) == {"server_total_ms", "throttle_wait_ms"}
    assert (body["topic"], body["count"], body["ready"]) == (topic, 2, 1)
    first, second = body["claimed"]
    base = {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert (set(first), set(second)) == (base | {"$tag", "meta"}, base)
    assert (first["data"], first["$tag"], first["meta"]) == (
        {"type": "resize"},
        "t:1",
        {"trace": "z9"},
    )
    assert (second["data"], first["deliveries"], second["deliveries"]) == (None, 1, 1)
    assert all(re.fullmatch(r"lease_[0-9a-f]+", job["lease_id"]) for job in body["claimed"])
    assert first["lease_id"] != second["lease_id"]
    assert 39_000 <= first["deadline"] - first["$ts"] <= 60_000


def test_payloads_are_delivered_verbatim(api: Api, topic: str) -> None:
    """API 0.4: data and meta of a job are the bytes the producer sent."""
    api.queue(topic)
    data = b'{"b": 1,  "a":[1.50,1e2,123456789012345678901234567890.10], "\\u00e9":"\\ud83d"}'
    body = b'{"records":[{"data":%b,"meta":{"z": "1",  "a":"2"}}]}' % data
    good(api.write_bytes(topic, body))
    content = api.claim(topic).content
    assert b'"data":' + data in content
    assert b'"meta":{"z": "1",  "a":"2"}' in content


def test_fresh_jobs_come_in_order_and_once(api: Api, topic: str) -> None:
    """API 10.2: a leased job is not handed out again; an empty queue is no error."""
    api.queue(topic, *range(5))
    assert claimed_seqs(good(api.claim(topic, max=2))) == [1, 2]
    assert claimed_seqs(good(api.claim(topic, "w2", max=10))) == [3, 4, 5]
    empty = good(api.claim(topic, max=10))
    assert (empty["claimed"], empty["count"], empty["ready"]) == ([], 0, 0)
    assert api.counts(topic) == (0, 5, 0)


def test_max_defaults_to_one_and_zero_is_one(api: Api, topic: str) -> None:
    """API 10.2, decision 7: max is 1 when absent, and when it is 0."""
    api.queue(topic, *range(3))
    assert good(api.claim(topic))["count"] == 1
    assert good(api.claim(topic, max=0))["count"] == 1


def test_max_is_clamped(api: Api, topic: str) -> None:
    """API 10.2: at most TOPICS_MAX_CLAIM jobs, whatever is asked for."""
    api.queue(topic, *range(1005))
    assert good(api.claim(topic, max=2**32 - 1))["count"] == 1000


@pytest.mark.parametrize(("asked", "granted"), [(1, LEASE_MS_MIN), (2**40, LEASE_MS_MAX)])
def test_leases_are_clamped(api: Api, topic: str, asked: int, granted: int) -> None:
    """API 10.2: a lease lasts 100 ms to a day; deadline is the claim plus the lease."""
    api.queue(topic, 1)
    body = good(api.claim(topic, lease_ms=asked))
    job = body["claimed"][0]
    assert granted <= job["deadline"] - job["$ts"] <= granted + 10_000


def test_the_queue_has_a_lease_of_its_own(api: Api, topic: str) -> None:
    """API 0.10: lease_ms of the configuration is the default of a claim."""
    api.queue(topic, 1, lease_ms=1_000_000)
    job = good(api.claim(topic))["claimed"][0]
    assert 1_000_000 <= job["deadline"] - job["$ts"] <= 1_010_000


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "node"),
        ({"node": 1}, "node"),
        ({"node": ""}, "node"),
        ({"node": "n" * 129}, "node"),
        ({"node": "w", "max": "x"}, "max"),
        ({"node": "w", "max": -1}, "max"),
        ({"node": "w", "max": 2**32}, "max"),
        ({"node": "w", "lease_ms": "1"}, "lease_ms"),
        ({"node": "w", "lease_ms": -1}, "lease_ms"),
    ],
)
def test_a_malformed_claim_is_refused(
    api: Api, topic: str, body: dict[str, Any], field: str
) -> None:
    """API 10.2: a missing node, or a max or lease_ms of the wrong type, is 400."""
    api.queue(topic, 1)
    error = refused(api.post_jobs(topic, "claim", **body), 400, "invalid_request")
    assert error["detail"]["field"] == field
    assert api.counts(topic) == (1, 0, 0)


@pytest.mark.parametrize("verb", ["claim", "ack", "nack", "extend", "redrive"])
def test_only_queues_that_exist_can_be_claimed(api: Api, topic: str, verb: str) -> None:
    """API 10: 404 for no topic, which is not created; 409 not_a_queue for a log."""
    body = {"node": "w", "seqs": [1], "lease_ms": 1000}
    refused(api.post_jobs(topic, verb, **body), 404, "topic_not_found")
    refused(api.state(topic), 404, "topic_not_found")
    good(api.put(topic), 201)
    error = refused(api.post_jobs(topic, verb, **body), 409, "not_a_queue")
    assert error["detail"]["topic"] == topic


def test_a_lease_that_ran_out_is_claimable_first(api: Api, topic: str, clock: ServerClock) -> None:
    """API 10.3: now > deadline frees a job, ahead of new ones, with one more delivery."""
    api.queue(topic, *range(4), lease_ms=30_000)
    first = good(api.claim(topic, max=2))
    clock.advance(31_000)
    assert api.counts(topic) == (4, 0, 0)
    again = good(api.claim(topic, "w2", max=3))
    assert [(job["$seq"], job["deliveries"]) for job in again["claimed"]] == [
        (1, 2),
        (2, 2),
        (3, 1),
    ]
    assert first["claimed"][0]["lease_id"] != again["claimed"][0]["lease_id"]
    assert api.counts(topic) == (1, 3, 0)


def test_deletes_and_caps_take_jobs_away(api: Api, topic: str) -> None:
    """DESIGN 7: a deleted or evicted job is in no counter, leased or not, and is not acked."""
    api.queue(topic, cap_records=6)
    good(api.write(topic, [{"data": n, "tag": f"t{n}"} for n in range(1, 7)]))
    good(api.claim(topic, max=3))
    body = good(api.request("POST", f"/v0/topics/{topic}/delete", json={"match": "t2"}))
    assert body["deleted"] == 1
    assert api.counts(topic) == (3, 2, 0)
    good(api.request("POST", f"/v0/topics/{topic}/delete", json={"before_seq": 2}))
    assert api.counts(topic) == (3, 1, 0)
    assert good(api.ack(topic, [1, 2, 3]))["skipped"] == [1, 2]
    assert api.counts(topic) == (3, 0, 0)
    good(api.append(topic, *range(5)))
    assert api.counts(topic) == (6, 0, 0)
    assert claimed_seqs(good(api.claim(topic, max=10))) == [6, 7, 8, 9, 10, 11]


def test_expired_jobs_are_gone(api: Api, topic: str, clock: ServerClock) -> None:
    """API 0.10: a TTL takes jobs, also leased ones, out of every counter."""
    api.queue(topic, 1, 2, ttl_ms=100_000, lease_ms=1_000_000)
    good(api.claim(topic))
    clock.advance(60_000)
    good(api.append(topic, 3))
    clock.advance(60_000)
    assert api.counts(topic) == (1, 0, 0)
    assert good(api.ack(topic, [1]))["acked"] == 0
    assert claimed_seqs(good(api.claim(topic, max=5))) == [3]


def test_a_cohort_divides_what_there_is(api: Api, topic: str) -> None:
    """API 10.2: ten claimers of 10 against 50 jobs get 5 each."""
    api.queue(topic, *range(50), claim_jitter_ms=400)
    answers: list[dict[str, Any]] = []

    def claim(node: str) -> None:
        client = Api(api.server, connections=1)
        answers.append(good(client.claim(topic, node, max=10)))
        client.close()

    claimers = [threading.Thread(target=claim, args=(f"w{n}",)) for n in range(10)]
    for claimer in claimers:
        claimer.start()
    for claimer in claimers:
        claimer.join()
    assert [answer["count"] for answer in answers] == [5] * 10
    found = sorted(seq for answer in answers for seq in claimed_seqs(answer))
    assert found == list(range(1, 51))
    assert {answer["ready"] for answer in answers} == {0}


def test_a_claim_waits_for_its_window(api: Api, topic: str) -> None:
    """API 10.2: with claim_jitter_ms a claim is answered when the window has ended."""
    api.queue(topic, 1, claim_jitter_ms=120)
    body = good(api.claim(topic, max=3))
    assert (body["count"], body["ready"]) == (1, 0)
    assert body["performance"]["server_total_ms"] >= 100


def test_a_deleted_queue_answers_who_waits(api: Api, topic: str) -> None:
    """API 10: a claim inside its window learns at once that the queue is gone."""
    api.queue(topic, claim_jitter_ms=5000)
    answers = []
    claimer = threading.Thread(target=lambda: answers.append(api.claim(topic)))
    other = Api(api.server, connections=1)
    claimer.start()
    while not answers and other.state(topic).status_code == 200:
        good(other.delete(topic))
    claimer.join()
    other.close()
    refused(answers[0], 404, "topic_not_found")

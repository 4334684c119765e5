"""Delivery counters and dead letters (API 10.6), and the way back (an extension)."""

from __future__ import annotations

from typing import Any

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.server import Server


def deliver(api: Api, topic: str, times: int, count: int = 1) -> None:
    """Claim and give back, so often."""
    for _ in range(times):
        jobs = good(api.claim(topic, max=count))["claimed"]
        assert len(jobs) == count
        good(api.nack(topic, [job["$seq"] for job in jobs]))


def test_a_spent_job_moves_with_its_provenance(api: Api, topic: str) -> None:
    """API 10.6: instead of delivery max_deliveries + 1 the job goes to the dead-letter topic."""
    dead = f"{topic}.dlq"
    api.queue(topic, max_deliveries=2, dead_letter=dead)
    record = {"data": {"x": 1}, "tag": "t", "node": "origin", "meta": {"k": "v"}}
    good(api.write(topic, [{"data": "ok"}, record]))
    good(api.claim(topic))
    good(api.ack(topic, [1]))
    deliver(api, topic, 2)
    assert api.counts(topic) == (1, 0, 0)
    body = good(api.claim(topic))
    assert (body["claimed"], body["count"], body["ready"]) == ([], 0, 0)
    assert api.counts(topic) == (0, 0, 1)
    letters = good(api.diff(dead, include_tags=True))["records"]
    assert len(letters) == 1
    letter = letters[0]
    assert (letter["data"], letter["$tag"], letter["$node"]) == ({"x": 1}, "t", "origin")
    assert letter["meta"] == {
        "k": "v",
        "$dead_letter_from": topic,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "2",
    }
    assert good(api.state(topic))["count"] == 0


def test_expired_leases_count_as_deliveries(api: Api, topic: str, clock: ServerClock) -> None:
    """API 10.6: every claim counts, also of a job whose lease ran out."""
    dead = f"{topic}.dlq"
    api.queue(topic, "poison", "fine", max_deliveries=1, dead_letter=dead, lease_ms=1000)
    good(api.claim(topic))
    clock.advance(2000)
    jobs = good(api.claim(topic, max=5))["claimed"]
    assert [job["data"] for job in jobs] == ["fine"]
    assert payloads(good(api.diff(dead))) == ["poison"]


def test_without_a_dead_letter_topic_jobs_come_back_for_ever(api: Api, topic: str) -> None:
    """API 10.6: max_deliveries alone, or a dead_letter alone, changes nothing."""
    api.queue(f"{topic}-a", 1, max_deliveries=1)
    api.queue(f"{topic}-b", 1, dead_letter=f"{topic}.dlq")
    for name in (f"{topic}-a", f"{topic}-b"):
        deliver(api, name, 4)
        assert good(api.claim(name))["claimed"][0]["deliveries"] == 5
        assert api.counts(name) == (0, 1, 0)
    refused(api.state(f"{topic}.dlq"), 404, "topic_not_found")


def test_other_bytes_of_meta_are_kept(api: Api, topic: str) -> None:
    """API 0.4: data, and the members of meta there were, stay byte for byte."""
    dead = f"{topic}.dlq"
    api.queue(topic, max_deliveries=1, dead_letter=dead)
    records = b'{"data":{"n": 1.50e2},"meta":{"z":  "1", "a":"\\u00e9" }},{"data":2,"meta":{}}'
    body = b'{"records":[%b]}' % records
    good(api.write_bytes(topic, body))
    deliver(api, topic, 1, count=2)
    good(api.claim(topic))
    content = api.diff(dead).content
    assert b'"data":{"n": 1.50e2},"meta":{"z":  "1", "a":"\\u00e9","$dead_letter_from":' in content
    assert b'"data":2,"meta":{"$dead_letter_from":' in content


def test_a_full_dead_letter_topic_keeps_the_job(api: Api, topic: str, clock: ServerClock) -> None:
    """A job that cannot be moved stays, undelivered, and is tried again later."""
    dead = f"{topic}.dlq"
    good(api.put(dead, {"cap_records": 1, "discard": "reject"}), 201)
    good(api.append(dead, "old"))
    api.queue(topic, "poison", "fine", max_deliveries=1, dead_letter=dead)
    deliver(api, topic, 1)
    assert [job["data"] for job in good(api.claim(topic, max=5))["claimed"]] == ["fine"]
    assert api.counts(topic) == (0, 1, 0)
    assert good(api.state(topic))["count"] == 2
    good(api.request("POST", f"/v0/topics/{dead}/delete", json={"before_seq": 2}))
    clock.advance(1000)
    assert good(api.claim(topic))["count"] == 0
    assert api.counts(topic) == (0, 1, 1)
    assert payloads(good(api.diff(dead))) == ["poison"]


def test_many_spent_jobs_move_at_once(api: Api, topic: str) -> None:
    """API 10.6: the counter is exact, whatever the number; fresh jobs follow."""
    dead = f"{topic}.dlq"
    api.queue(topic, *range(900), max_deliveries=1, dead_letter=dead)
    deliver(api, topic, 1, count=900)
    good(api.append(topic, "fresh"))
    assert [job["data"] for job in good(api.claim(topic, max=9))["claimed"]] == ["fresh"]
    assert api.counts(topic) == (0, 1, 900)
    assert good(api.state(dead))["count"] == 900


def test_dead_jobs_are_listed_and_redriven(api: Api, topic: str) -> None:
    """An extension: only jobs of this queue come back, as new ones, without provenance."""
    dead = f"{topic}.dlq"
    api.queue(topic, max_deliveries=1, dead_letter=dead)
    good(api.append(dead, "stranger"), 201)
    good(api.write(topic, [{"data": 1, "meta": {"k": "v"}, "tag": "t"}, {"data": 2}, {"data": 3}]))
    deliver(api, topic, 1, count=3)
    assert good(api.claim(topic))["count"] == 0
    listed = good(api.jobs(topic, state="dead"))
    assert [(job["data"], job["deliveries"]) for job in listed["jobs"]] == [(1, 1), (2, 1), (3, 1)]
    body = good(api.post_jobs(topic, "redrive", max=2))
    assert (body["topic"], body["redriven"], body["ready"]) == (topic, 2, 2)
    jobs = good(api.claim(topic, max=5))["claimed"]
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in jobs] == [
        (4, 1, 1),
        (5, 2, 1),
    ]
    assert (jobs[0]["meta"], jobs[0]["$tag"], "meta" in jobs[1]) == ({"k": "v"}, "t", False)
    assert payloads(good(api.diff(dead))) == ["stranger", 3]
    assert good(api.request("POST", f"/v0/topics/{topic}/redrive"))["redriven"] == 1
    assert good(api.post_jobs(topic, "redrive"))["redriven"] == 0
    assert api.counts(topic) == (1, 2, 3)


def test_redrive_refuses_nonsense(api: Api, topic: str) -> None:
    """An extension: a max that is no number is 400; a queue without a dead letter has none."""
    api.queue(topic, 1)
    refused(api.post_jobs(topic, "redrive", max="x"), 400, "invalid_request")
    refused(api.post_jobs(topic, "redrive", max=-1), 400, "invalid_request")
    assert good(api.post_jobs(topic, "redrive"))["redriven"] == 0
    assert good(api.jobs(topic, state="dead"))["jobs"] == []


def test_dead_letters_survive_a_crash(mortal: Server, mortal_api: Api, topic: str) -> None:
    """A move is one frame: after a crash the job is in exactly one of the two topics."""
    api, dead = mortal_api, f"{topic}.dlq"
    config: dict[str, Any] = {"max_deliveries": 1, "dead_letter": dead, "durable": True}
    api.queue(topic, *range(20), **config)
    deliver(api, topic, 1, count=20)
    assert good(api.claim(topic))["count"] == 0
    # A durable ack follows the move into the log, so both are there.
    good(api.append(topic, "last"))
    good(api.claim(topic))
    good(api.ack(topic, [21]))
    mortal.crash()
    assert api.counts(topic) == (0, 0, 20)
    assert payloads(good(api.diff(dead))) == list(range(20))
    assert good(api.post_jobs(topic, "redrive"))["redriven"] == 20
    assert api.counts(topic) == (20, 0, 20)

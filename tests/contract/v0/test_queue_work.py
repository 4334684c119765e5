"""GET /v0/topics/:q/work (API 10.8): jobs pushed over an event stream."""

from __future__ import annotations

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.raw import RawConnection
from tests.harness.server import Server, Shape
from tests.harness.sse import FRAME_S, EventStream, Watching
from tests.harness.waiting import until


def opened(stream: EventStream) -> EventStream:
    """A stream that has begun as it must."""
    assert stream.status == 200, stream.answer
    assert stream.next().retry == "2000"
    beat = stream.find_next(FRAME_S)
    assert beat is not None and beat.is_heartbeat
    return stream


def jobs(stream: EventStream, count: int) -> list[int]:
    return [stream.until("job").body["$seq"] for _ in range(count)]


def test_a_job_frame_has_exactly_its_shape(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: retry and a heartbeat at open; id is the seq, data the job and its lease."""
    api.queue(topic)
    good(api.write(topic, [{"data": {"a": 1}, "tag": "t", "meta": {"m": "1"}}]))
    stream = opened(watching.work(topic))
    frame = stream.next()
    assert (frame.event, frame.id) == ("job", "1")
    body = frame.body
    assert set(body) == {
        "topic",
        "$seq",
        "lease_id",
        "deadline",
        "$ts",
        "$tag",
        "deliveries",
        "data",
        "meta",
    }
    assert (body["topic"], body["deliveries"], body["data"]) == (topic, 1, {"a": 1})
    good(api.ack(topic, [1], lease_ids=[body["lease_id"]]))
    assert api.counts(topic) == (0, 0, 0)


def test_the_stream_holds_at_most_max(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: backpressure at max; an ack or a nack makes room for the next job."""
    api.queue(topic, *range(5))
    stream = opened(watching.work(topic, "node=w1&max=2"))
    assert jobs(stream, 2) == [1, 2]
    assert stream.is_quiet()
    good(api.ack(topic, [1]))
    assert jobs(stream, 1) == [3]
    good(api.nack(topic, [3]))
    assert jobs(stream, 1) == [3]
    assert stream.is_quiet()
    assert api.counts(topic) == (2, 2, 0)


def test_new_jobs_are_pushed(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: a stream that waits gets a job when one is produced, freed or due."""
    api.queue(topic, lease_ms=60_000)
    stream = opened(watching.work(topic, "node=w1&max=9"))
    good(api.append(topic, "a"))
    assert jobs(stream, 1) == [1]
    good(api.write(topic, [{"data": "b", "delay_ms": 150}]))
    assert jobs(stream, 1) == [2]


def test_expired_leases_are_pushed_again(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """API 10.3: a job whose lease ran out goes to a stream that waits."""
    api.queue(topic, 1)
    good(api.claim(topic, "other", lease_ms=60_000))
    stream = opened(watching.work(topic))
    assert stream.is_quiet()
    clock.advance(61_000)
    frame = stream.until("job")
    assert (frame.body["$seq"], frame.body["deliveries"]) == (1, 2)


def test_a_closed_stream_frees_its_jobs_at_once(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: leases delivered on the connection are released, those of a claim are not."""
    api.queue(topic, *range(5), lease_ms=600_000)
    good(api.claim(topic, "w1"))
    stream = opened(watching.work(topic, "node=w1&max=3"))
    assert jobs(stream, 3) == [2, 3, 4]
    good(api.ack(topic, [2]))
    assert jobs(stream, 1) == [5]
    stream.close()
    until(lambda: api.counts(topic) == (3, 1, 0))
    again = good(api.claim(topic, "w2", max=9))["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in again] == [(3, 2), (4, 2), (5, 2)]


def test_streams_and_claims_share_a_window(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: streams take part in the cohort of those who claim."""
    api.queue(topic, claim_jitter_ms=300)
    streams = [opened(watching.work(topic, f"node=w{n}&max=10")) for n in range(2)]
    good(api.append(topic, *range(15)))
    polled = good(api.claim(topic, "poller", max=10))
    assert polled["count"] == 5
    assert [len(jobs(stream, 5)) for stream in streams] == [5, 5]
    assert all(stream.is_quiet() for stream in streams)


def test_heartbeats_break_the_silence(api: Api, topic: str, watching: Watching) -> None:
    """API 7.6: a comment with the time, as often as asked for."""
    api.queue(topic)
    stream = opened(watching.work(topic, "node=w1&heartbeat_ms=50"))
    for _ in range(3):
        frame = stream.find_next(FRAME_S)
        assert frame is not None and frame.is_heartbeat and frame.raw.startswith(b": hb 1")


@pytest.mark.parametrize(
    "query", ["", "max=1", "node=", "node=w&max=x", "node=w&max=-1", "node=w&lease_ms=x"]
)
def test_a_malformed_stream_is_refused(
    api: Api, topic: str, watching: Watching, query: str
) -> None:
    """API 10.8: a missing node and a bad max are 400 before anything is streamed."""
    api.queue(topic, 1)
    stream = watching.work(topic, query)
    assert stream.answer is not None
    refused(stream.answer, 400, "invalid_request")
    assert api.counts(topic) == (1, 0, 0)


def test_what_cannot_be_streamed_is_refused(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: 404 for no topic, 409 for a log, 406 for a client of something else."""
    absent = watching.work(topic)
    assert absent.answer is not None
    refused(absent.answer, 404, "topic_not_found")
    good(api.put(topic), 201)
    log = watching.work(topic)
    assert log.answer is not None
    refused(log.answer, 409, "not_a_queue")
    other = watching.work(topic, "node=w", Accept="application/json")
    assert other.answer is not None
    refused(other.answer, 406, "not_acceptable")


def test_a_deleted_queue_ends_its_streams(api: Api, topic: str, watching: Watching) -> None:
    """API 10.8: a terminal error closes the stream."""
    api.queue(topic)
    stream = opened(watching.work(topic))
    good(api.delete(topic))
    assert stream.until("error").body["code"] == 404
    assert stream.rest() == []


def test_shutdown_is_told(mortal: Server, mortal_api: Api, topic: str) -> None:
    """Decision 14: a stopping server says so, and frees what its streams held."""
    mortal_api.queue(topic, 1, lease_ms=600_000)
    with Watching(mortal) as watching:
        stream = opened(watching.work(topic))
        assert jobs(stream, 1) == [1]
        assert mortal.stop() == 0
        assert "server_shutting_down" in stream.until("error").body["error"]
    mortal.start()
    assert mortal_api.counts(topic) == (1, 0, 0)


def test_a_lost_worker_frees_its_jobs(
    mortal: Server, mortal_api: Api, topic: str, shape: Shape
) -> None:
    """API 10.8: jobs of a worker that crashed are claimable at once."""
    if shape.single_process:
        return
    mortal_api.queue(topic, 1, 2, lease_ms=600_000)
    with RawConnection(mortal.address) as connection:
        target = f"/v0/topics/{topic}/work?node=w1&max=2"
        stream = opened(EventStream(connection, target, {"Accept": "text/event-stream"}))
        assert jobs(stream, 2) == [1, 2]
        mortal.lose_worker_of(connection.socket)
    until(lambda: mortal_api.counts(topic) == (2, 0, 0))


def test_streams_count_against_the_caps(launch, topic: str) -> None:
    """API 11: a stream beyond max_sse_connections is throttled, and frees its slot."""
    server = launch(TOPICS_MAX_SSE_CONNECTIONS="1")
    api = Api(server)
    api.queue(topic)
    with Watching(server) as watching:
        first = opened(watching.work(topic))
        second = watching.work(topic)
        assert second.answer is not None
        refused(second.answer, 429, "throttled")
        first.close()
        until(lambda: watching.work(topic).status == 200)
    api.close()

"""Opening GET /v0/watch/:wid (API 7.3, 7.6): the response's head, and what is refused."""

from __future__ import annotations

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request
from tests.harness.sse import Watching


def test_the_response_is_an_unbuffered_event_stream(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.3: the four headers of a stream, HTTP/1.1 chunks, no length, no compression."""
    good(api.put(topic), 201)
    wid = watching.create([topic])
    stream = watching.attempt(wid, headers={"Accept-Encoding": "gzip"})
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["cache-control"] == "no-store"
    assert stream.headers["connection"].lower() == "keep-alive"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in stream.headers
    assert "content-encoding" not in stream.headers


def test_a_second_request_may_follow_a_finished_one(
    api: Api, topic: str, watching: Watching, raw: RawConnection
) -> None:
    """API 7.3: a stream may be asked for on a connection that served something else."""
    good(api.append(topic, 1), 201)
    raw.send(build_request("GET", "/healthz"))
    assert raw.receive().status == 200
    stream = watching.open(watching.create([topic]), connection=raw)
    assert stream.payloads(topic, 1) == [1]


def test_head_opens_nothing(api: Api, topic: str, watching: Watching, raw: RawConnection) -> None:
    """RFC 9110: HEAD has the headers, no body, and leaves an open stream alone."""
    good(api.put(topic), 201)
    wid = watching.create([topic])
    stream = watching.open(wid)
    stream.until("caught-up")
    answer = raw.request("HEAD", f"/v0/watch/{wid}")
    assert (answer.status, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert raw.request("GET", "/healthz").status == 200
    good(api.append(topic, 1))
    assert stream.payloads(topic, 1) == [1]


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/event-stream",
        "TEXT/Event-Stream",
        "text/event-stream; charset=utf-8",
        "text/html, text/event-stream;q=0.5",
        "application/json, */*;q=0.1",
        "text/*",
    ],
)
def test_a_client_that_takes_event_streams_gets_one(
    api: Api, topic: str, watching: Watching, accept: str
) -> None:
    """API 7.3, decision 9: the type itself, a wildcard, or nothing said at all."""
    good(api.put(topic), 201)
    target = f"/v0/watch/{watching.create([topic])}"
    with RawConnection(watching.server.address) as connection:
        headers = {"Accept": accept} if accept else None
        connection.send(build_request("GET", target, None, headers))
        assert connection.receive_head()[0] == 200


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html", "text/event-streams", "image/*"]
)
def test_another_accept_is_refused(api: Api, topic: str, watching: Watching, accept: str) -> None:
    """API 7.6: 406 when the stream is not acceptable."""
    good(api.put(topic), 201)
    stream = watching.attempt(watching.create([topic]), headers={"Accept": accept})
    assert stream.answer is not None
    refused(stream.answer, 406, "not_acceptable")


@pytest.mark.parametrize("wid", ["x", "wid_", "wid_short", "wid_" + "!" * 22, "wid_" + "A" * 23])
def test_a_malformed_wid_is_a_bad_request(watching: Watching, wid: str) -> None:
    """API 7.6: a bad wid is 400."""
    stream = watching.attempt(wid)
    assert stream.answer is not None
    refused(stream.answer, 400, "invalid_request")


def test_an_unknown_wid_is_not_found(watching: Watching) -> None:
    """API 7.6: a wid that was never made or is gone is 404: POST again."""
    stream = watching.attempt("wid_" + "A" * 22)
    assert stream.answer is not None
    refused(stream.answer, 404, "not_found")


@pytest.mark.parametrize(
    "last_event_id",
    ["!!!", "bnVsbA", "W10", "eyJ0IjotMX0", "eyJ0IjoiYSJ9", "eyJ0IjoxLjV9", "gx.e30", "a" * 5000],
)
def test_an_id_that_no_stream_sent_is_refused(
    api: Api, topic: str, watching: Watching, last_event_id: str
) -> None:
    """API 7.4: a rewind that cannot be understood must not be ignored: that could lose records."""
    good(api.put(topic), 201)
    stream = watching.attempt(watching.create([topic]), last_event_id)
    assert stream.answer is not None
    refused(stream.answer, 400, "invalid_request")


def test_what_a_client_sends_on_a_stream_is_ignored(
    api: Api, topic: str, watching: Watching
) -> None:
    """RFC 9112: nothing pipelined behind the request disturbs the answer that never ends."""
    good(api.put(topic), 201)
    stream = watching.live([topic])
    for _ in range(20):
        stream.connection.send(build_request("GET", "/healthz") * 50)
        good(api.append(topic, 1))
        assert stream.payloads(topic, 1) == [1]

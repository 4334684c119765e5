"""Subscriptions below `__ds`: webhooks, wake streams, leases, fences (streams spec 1.16)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.server import Server
from tests.harness.waiting import until

ROOT = "/v1/stream"


class Receiver:
    """Takes webhooks and answers as the test says."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status, self.answer = 200, b"{}"
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                receiver.bodies.append(json.loads(content))
                self.send_response(receiver.status)
                self.send_header("content-length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook receiver of the test's own."""
    opened = Receiver()
    yield opened
    opened.close()


def sub(api: Api, method: str, path: str, **options: Any) -> httpx.Response:
    return api.request(method, f"{ROOT}/__ds/subscriptions/{path}", **options)


def create(api: Api, name: str, *values: Any) -> None:
    answer = api.request("PUT", f"{ROOT}/{name}", json=list(values))
    assert answer.status_code == 201, answer.content


def pull(api: Api, topic: str) -> None:
    """A pull-wake subscription over `<topic>/*`."""
    create(api, f"{topic}-wake")
    body = {
        "type": "pull-wake",
        "pattern": f"{topic}/*",
        "wake_stream": f"{topic}-wake",
        "lease_ttl_ms": 1000,
    }
    assert sub(api, "PUT", topic, json=body).status_code == 201


def code(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.content
    return str(answer.json()["error"]["code"])


def act(api: Api, topic: str, verb: str, claim: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {"wake_id": claim["wake_id"], "generation": claim["generation"], **fields}
    headers = {"Authorization": f"Bearer {claim['token']}"}
    return sub(api, "POST", f"{topic}/{verb}", json=body, headers=headers)


def test_existing_streams_are_linked_at_their_tail(api: Api, topic: str) -> None:
    """What was there before is not replayed; what comes later is."""
    create(api, f"{topic}/old", 1, 2)
    pull(api, topic)
    assert code(sub(api, "POST", f"{topic}/claim", json={"worker": "w"}), 409) == "NO_PENDING_WORK"
    create(api, f"{topic}/new", 3)
    links = {each["path"]: each for each in sub(api, "GET", topic).json()["streams"]}
    assert links[f"{topic}/new"]["acked_offset"] == "-1"
    assert links[f"{topic}/old"]["acked_offset"] != "-1"


def test_acks_that_are_refused(api: Api, topic: str) -> None:
    """Unknown streams, the start, and a wrong token."""
    pull(api, topic)
    create(api, f"{topic}/a", 1)
    claim = sub(api, "POST", f"{topic}/claim", json={"worker": "w"}).json()
    past = "0000000000000001_0000000000009999"
    for stream, offset in ((f"{topic}/b", past), (f"{topic}/a", "-1"), (f"{topic}/a", past)):
        acks = [{"stream": stream, "offset": offset}]
        assert code(act(api, topic, "ack", claim, acks=acks), 409) == "INVALID_OFFSET"
    wrong = {**claim, "token": "wrong"}
    assert code(act(api, topic, "ack", wrong), 401) == "TOKEN_INVALID"
    assert code(act(api, topic, "ack", {**claim, "generation": 99}), 409) == "FENCED"


def test_a_lease_that_ran_out_is_fenced(api: Api, clock: ServerClock, topic: str) -> None:
    """Without a heartbeat another worker gets the work, with the next generation."""
    pull(api, topic)
    create(api, f"{topic}/a", 1)
    first = sub(api, "POST", f"{topic}/claim", json={"worker": "w1"}).json()
    assert act(api, topic, "ack", first).json() == {"ok": True, "next_wake": False}
    clock.advance(1500)
    second = sub(api, "POST", f"{topic}/claim", json={"worker": "w2"}).json()
    assert second["generation"] > first["generation"]
    assert code(act(api, topic, "ack", first, done=True), 409) == "FENCED"
    assert act(api, topic, "release", second).status_code == 204


def test_a_failed_webhook_is_repeated(
    api: Api, clock: ServerClock, topic: str, receiver: Receiver
) -> None:
    """The same wake again after the backoff, and its answer `done` acknowledges it."""
    receiver.status = 503
    body = {"type": "webhook", "pattern": f"{topic}/**", "webhook": {"url": receiver.url}}
    assert sub(api, "PUT", topic, json=body).status_code == 201
    create(api, f"{topic}/a/b", 1)
    until(lambda: len(receiver.bodies) == 1)
    receiver.status, receiver.answer = 200, b'{"done":true}'

    def repeated() -> bool:
        clock.advance(500)
        return len(receiver.bodies) > 1

    until(repeated)
    assert receiver.bodies[0]["wake_id"] == receiver.bodies[1]["wake_id"]
    tail = receiver.bodies[1]["streams"][0]["tail_offset"]
    until(lambda: sub(api, "GET", topic).json()["streams"][0]["acked_offset"] == tail)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"webhook": {"url": "https://169.254.169.254/"}}, "WEBHOOK_URL_REJECTED"),
        ({"webhook": {"url": "http://example.com/"}}, "WEBHOOK_URL_REJECTED"),
        ({"lease_ttl_ms": 999}, "INVALID_REQUEST"),
        ({"type": "other"}, "INVALID_REQUEST"),
        ({"pattern": None}, "INVALID_REQUEST"),
        ({"pattern": "a//b"}, "INVALID_REQUEST"),
    ],
)
def test_configurations_that_are_refused(
    api: Api, topic: str, change: dict[str, Any], expected: str
) -> None:
    """Each with its code."""
    body = {"type": "webhook", "pattern": "a/*", "webhook": {"url": "https://example.com/"}}
    assert code(sub(api, "PUT", topic, json={**body, **change}), 400) == expected


def test_another_configuration_and_none(api: Api, topic: str) -> None:
    """One id is one configuration; a removed one is not found."""
    pull(api, topic)
    body = {"type": "pull-wake", "pattern": "x", "wake_stream": "y"}
    assert code(sub(api, "PUT", topic, json=body), 409) == "SUBSCRIPTION_ALREADY_EXISTS"
    assert sub(api, "DELETE", topic).status_code == 204
    assert code(sub(api, "GET", topic), 404) == "SUBSCRIPTION_NOT_FOUND"


def test_a_claim_survives_a_crash(mortal: Server, mortal_api: Api, topic: str) -> None:
    """The lease, its token and the signing key are in the catalog."""
    keys = mortal_api.request("GET", f"{ROOT}/__ds/jwks.json").json()
    pull(mortal_api, topic)
    create(mortal_api, f"{topic}/a", 1)
    body = {"worker": "w"}
    claim = sub(mortal_api, "POST", f"{topic}/claim", json=body).json()
    assert act(mortal_api, topic, "ack", claim).status_code == 200
    mortal.crash()
    with_api = Api(mortal)
    assert with_api.request("GET", f"{ROOT}/__ds/jwks.json").json() == keys
    found = sub(with_api, "GET", topic).json()["streams"]
    assert [each["path"] for each in found] == [f"{topic}/a"]
    again = sub(with_api, "POST", f"{topic}/claim", json=body)
    assert again.status_code == 200 or code(again, 409) == "ALREADY_CLAIMED"
    with_api.close()

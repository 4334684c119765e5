"""Metrics over fakes: what is answered when there is little to know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.web.fakes import FakeReader, World
from topicsd.model import errors
from topicsd.storage.figures import Figures
from topicsd.web.docs.shapes import Metrics
from topicsd.web.metrics import _wants_json

ACCEPT_JSON = {"accept": "application/json"}


def ask(world: World) -> dict[str, Any]:
    reply = world.ask("GET", "/v0/metrics", headers=ACCEPT_JSON)
    assert reply.status == 200
    # The answer has the documented shape, no field missing or of another type.
    msgspec.json.decode(reply.body, type=Metrics)
    found: dict[str, Any] = msgspec.json.decode(reply.body)
    return found


def test_a_server_without_a_board_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 before the engine has made anything: not ready, all zero (API 8.3)."""
    world = World()
    world.port.connected = False

    def missing(reader: FakeReader) -> Any:
        raise errors.not_ready(0.0)

    monkeypatch.setattr(FakeReader, "board", property(missing))
    found = ask(world)
    assert (found["ready"], found["replay_progress"], found["topics"]) == (False, 0.0, 0)
    assert found["wal"]["frames"] == 0
    assert world.ask("GET", "/v0/metrics").status == 200


def test_a_replaying_server_shows_its_progress() -> None:
    """200 with the progress; the per-topic block waits until it can be trusted."""
    world = World()
    world.store.create("a")
    world.store.state, world.store.replay_progress = "replaying", 0.25
    world.port.connected = False
    found = ask(world)
    assert (found["ready"], found["replay_progress"]) == (False, 0.25)
    assert found["topic_metrics"] == []


def test_watch_sessions_are_the_engines() -> None:
    """Its count on the board, in both forms."""
    world = World()
    world.store.figures = Figures(watch_sessions=3)
    assert ask(world)["watch_sessions"] == 3
    lines = world.ask("GET", "/v0/metrics").body.decode().splitlines()
    assert "topics_watch_sessions 3" in [line.removesuffix(".0") for line in lines]


def test_the_figures_of_a_stopped_engine_are_not_shown() -> None:
    """A board that an earlier server left behind says nothing about this one."""
    world = World()
    world.store.figures = Figures(frames=7)
    assert ask(world)["wal"]["frames"] == 7
    world.store.state = "stopped"
    world.port.connected = False
    assert ask(world)["wal"]["frames"] == 0


def test_a_draining_worker_answers() -> None:
    """Metrics describe the process to its end; other requests are refused."""
    world = World()
    world.gate.draining = True
    assert world.ask("GET", "/v0/metrics").status == 200
    assert world.ask("GET", "/v0/topics").status == 503


def test_requests_are_counted_by_route_and_status() -> None:
    """Also those that were refused, and those that no route takes."""
    world = World()
    for target in ("/v0/topics", "/v0/topics", "/v0/topics/absent", "/v0/nowhere"):
        world.ask("GET", target)
    counts = {
        (row["method"], row["route"], row["status"]): row["latency_us"]["count"]
        for row in ask(world)["requests"]
    }
    assert counts == {
        ("GET", "/v0/topics", "2xx"): 2,
        ("GET", "/v0/topics/:topic", "4xx"): 1,
        ("other", "other", "4xx"): 1,
    }


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/html, application/json;q=0.9", True),
        ("application/json;q=0", False),
        ("application/json; q=0.000", False),
        ("application/json-seq", False),
        ("application/json;q=0.1, text/plain", False),
        ("application/json; q=0.5 , */*;q=1", False),
        ("text/plain;q=0.1, application/json", True),
        ("application/json, text/plain, */*", True),
        ("application/*", True),
        ("text/*, application/*", False),
        ("application/json;q=0, */*", False),
        ("application/openmetrics-text;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1", False),
    ],
)
def test_json_is_for_those_who_ask(accept: str | None, expected: bool) -> None:
    """Text is the default, JSON when it is wanted at least as much and named."""
    assert _wants_json(accept) is expected

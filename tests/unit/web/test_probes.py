"""Liveness and readiness."""

from __future__ import annotations

import json

import pytest

import topicsd
from tests.unit.web.fakes import World


@pytest.mark.parametrize("state", ["starting", "replaying", "ready", "draining"])
def test_health_is_always_200(world: World, state: str) -> None:
    """API 8.1."""
    world.store.state, world.port.connected = state, False
    content = json.loads(world.ask("GET", "/v0/health").body)
    assert ("ok", topicsd.__version__) == (content["status"], content["version"])
    assert type(content["uptime_ms"]) is int


def test_ready_counts_topics(world: World) -> None:
    """API 8.2."""
    world.store.create("a")
    content = json.loads(world.ask("GET", "/v0/ready").body)
    content.pop("performance")
    assert content == {"status": "ready", "wal_replay_complete": True, "topics": 1}


@pytest.mark.parametrize(
    ("state", "connected"), [("starting", False), ("replaying", False), ("ready", False)]
)
def test_not_ready_tells_the_progress(world: World, state: str, connected: bool) -> None:
    """503 with Retry-After and replay_progress."""
    world.store.state, world.port.connected, world.store.replay_progress = state, connected, 0.25
    reply = world.ask("GET", "/readyz")
    error = json.loads(reply.body)["error"]
    assert (
        reply.status,
        error["code"],
        error["detail"],
    ) == (503, "not_ready", {"replay_progress": 0.25})
    assert reply.headers == (("retry-after", "1"),)


def test_an_engine_that_drains_is_not_ready(world: World) -> None:
    """503 shutting_down."""
    world.store.state = "draining"
    assert b"shutting_down" in world.ask("GET", "/readyz").body

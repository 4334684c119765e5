"""Topics as a resource."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from tests.unit.web.fakes import World
from topicsd.model.commands import PutTopic
from topicsd.model.topic import DEFAULT, TopicConfig


def content(reply: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(reply.body)
    return parsed


def test_put_echoes_the_whole_configuration(world: World) -> None:
    """API 1.1: 201 on creation, 200 afterwards, all seventeen fields."""
    reply = world.ask("PUT", "/v0/topics/jobs", b'{"ttl_ms":5,"durable":true}')
    answer = content(reply)
    assert (reply.status, answer["topic"], answer["created"]) == (201, "jobs", True)
    config = TopicConfig(ttl_ms=5, durable=True, durability="fsync")
    assert msgspec.to_builtins(config) == answer["config"]
    again = world.ask("PUT", "/v0/topics/jobs", b"{}")
    assert (again.status, content(again)["created"]) == (200, False)


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"unknown":1e999,"more":"\\u0041"}'])
def test_no_body_and_unknown_fields_mean_defaults(world: World, body: bytes | None) -> None:
    """Spec 2.9: unknown fields are ignored, whatever they hold."""
    assert world.ask("PUT", "/v0/topics/a", body).status == 201
    assert PutTopic("a", DEFAULT, False) == world.port.commands[-1]


def test_put_tells_the_engine_whether_the_type_was_given(world: World) -> None:
    """Spec 2.1: only a given type can conflict."""
    world.ask("PUT", "/v0/topics/a", b'{"type":"log"}')
    assert world.port.commands[-1].type_given


@pytest.mark.parametrize(
    "body",
    [b"[]", b"null", b"1", b"{", b'{"ttl_ms":"1"}', b'{"ttl_ms":null}', b'{"ttl_ms":1e999}',
     b'{"type":"x"}', b'{"dead_letter":"a"}', b'{"priority":1.5}', b'{"durable":1}',
     b'{"ttl_ms":' + b"[" * 100_000],
)  # fmt: skip
def test_bad_configurations_are_refused(world: World, body: bytes) -> None:
    """400, and the engine never hears of them."""
    assert world.ask("PUT", "/v0/topics/a", body).status == 400
    assert world.port.commands == []


def test_dead_letter_is_checked_against_the_prefixes() -> None:
    """Spec 2.8: a key cannot name a topic it may not touch."""
    world = World(keys="k::t1:")
    headers = {"authorization": "Bearer k"}
    for name, status in (("t1:dead", 201), ("t2:dead", 403)):
        body = b'{"type":"queue","dead_letter":"%b"}' % name.encode()
        assert status == world.ask("PUT", "/v0/topics/t1:q", body, headers).status


def test_state_of_a_log(world: World) -> None:
    """API 1.2: every field, null for never."""
    world.store.create("a")
    answer = content(world.ask("GET", "/v0/topics/a"))
    del answer["performance"], answer["config"]
    expected = {
        "topic": "a",
        "type": "log",
        "head_seq": 0,
        "earliest_seq": 1,
        "next_seq": 1,
        "count": 0,
        "bytes": 0,
        "effective_priority": 0,
        "last_write_ts": None,
        "last_read_ts": None,
    }
    assert expected == answer


def test_state_of_a_queue_has_its_counters(world: World) -> None:
    """API 1.2: the queue object is there for queues only."""
    world.store.create("q", TopicConfig(type="queue"))
    expected = {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    assert expected == content(world.ask("GET", "/v0/topics/q"))["queue"]


@pytest.mark.parametrize(
    ("query", "touched"), [("", ["a"]), ("?touch=true", ["a"]), ("?touch=false", [])]
)
def test_state_touches_unless_told_not_to(world: World, query: str, touched: list[str]) -> None:
    """API 1.2: scrapes must not make a topic look hot."""
    world.store.create("a")
    world.ask("GET", f"/v0/topics/a{query}")
    assert touched == world.reader.touched


def test_a_miss_is_checked_with_the_engine_once(world: World) -> None:
    """A topic another worker just made is found; one that is nowhere is 404."""
    world.store.create("new")
    world.reader.late.add("new")
    assert world.ask("GET", "/v0/topics/new").status == 200
    assert len(world.port.commands) == 1
    assert world.ask("GET", "/v0/topics/nowhere").status == 404
    assert len(world.port.commands) == 2


def test_delete_is_idempotent(world: World) -> None:
    """API 1.4."""
    world.store.create("a")
    for deleted in (True, False):
        answer = content(world.ask("DELETE", "/v0/topics/a"))
        assert ("a", deleted, []) == (answer["topic"], answer["deleted"], answer["routers_removed"])


def test_delete_if_empty_is_passed_on(world: World) -> None:
    """API 1.4: 409 when there are records."""
    world.ask("POST", "/v0/topics/a", b'{"records":[{"data":1}]}')
    assert world.ask("DELETE", "/v0/topics/a?if_empty=true").status == 409
    assert world.ask("DELETE", "/v0/topics/a?if_empty=false").status == 200


def test_listing_pages_through_everything(world: World) -> None:
    """API 1.3: each name once, in byte order; no cursor on the last page."""
    names = sorted(f"t{number:03}" for number in range(25))
    for name in names:
        world.store.create(name)
    seen: list[str] = []
    query = "page_size=10"
    while True:
        answer = content(world.ask("GET", f"/v0/topics?{query}"))
        seen += [topic["topic"] for topic in answer["topics"]]
        if "next_cursor" not in answer:
            break
        query = "page_size=10&cursor=" + answer["next_cursor"]
    assert names == seen


def test_a_page_that_fits_exactly_is_the_last(world: World) -> None:
    """No cursor that leads to an empty page."""
    world.store.create("a")
    world.store.create("b")
    assert "next_cursor" not in content(world.ask("GET", "/v0/topics?page_size=2"))


def test_the_cursor_is_what_the_contract_shows(world: World) -> None:
    """Spec 2.6: base64 of {"after": name}."""
    world.store.create("jobs")
    world.store.create("z")
    answer = content(world.ask("GET", "/v0/topics?page_size=1"))
    assert answer["next_cursor"] == "eyJhZnRlciI6ImpvYnMifQ=="


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "jobs", encoded("jobs"), encoded("{}"), encoded('{"after":1}'),
     encoded('{"after":""}'), encoded('{"after":"a","b":"c"}'), encoded('{"after":"a b"}'),
     encoded('["after"]'), "eyJhZnRlciI6ImpvYnMifQ", "eyJhZnRl!ciI6ImpvYnMifQ=="],
)  # fmt: skip
def test_a_cursor_of_somebody_else_is_refused(world: World, cursor: str) -> None:
    """Anything but our own cursor is 400."""
    assert world.ask("GET", f"/v0/topics?cursor={cursor}").status == 400


def test_listing_is_filtered_by_prefix_and_by_key() -> None:
    """API 0.2: a key cannot enumerate names outside its prefixes."""
    world = World(keys="k:read:t1:|t2:")
    for name in ("t1:a", "t2:a", "t3:a"):
        world.store.create(name)
    headers = {"authorization": "Bearer k"}

    def names(query: str) -> list[str]:
        answer = content(world.ask("GET", f"/v0/topics{query}", None, headers))
        return [topic["topic"] for topic in answer["topics"]]

    assert names("") == ["t1:a", "t2:a"]
    assert names("?prefix=t2") == ["t2:a"]
    assert names("?prefix=t3") == []


def test_listing_touches_only_on_request(world: World) -> None:
    """API 1.3: by default it bumps nothing."""
    world.store.create("a")
    world.ask("GET", "/v0/topics")
    assert world.reader.touched == []
    world.ask("GET", "/v0/topics?touch=true")
    assert world.reader.touched == ["a"]


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v0/topics"), ("GET", "/v0/topics/a"), ("POST", "/v0/topics/a/diff")],
)
def test_reads_outlive_the_connection_until_a_replay(
    world: World, method: str, target: str
) -> None:
    """503 while replaying; a lost connection alone stops no read."""
    world.store.create("a")
    assert world.ask(method, target).status == 200
    world.port.connected = False
    assert world.ask(method, target).status == 200
    world.store.state = "replaying"
    reply = world.ask(method, target)
    assert (reply.status, reply.headers) == (503, (("retry-after", "1"),))


def test_a_board_from_an_earlier_server_is_not_believed(world: World) -> None:
    """Before the first connection reads are not ready, whatever the board says."""
    world.store.create("a")
    world.port.connected = False
    assert world.ask("GET", "/v0/topics/a").status == 503


@pytest.mark.parametrize(
    ("method", "body"), [("PUT", b"{}"), ("DELETE", None), ("POST", b'{"records":[{"data":1}]}')]
)
def test_writes_need_the_engine(world: World, method: str, body: bytes | None) -> None:
    """503 not_ready with Retry-After and the progress of the replay."""
    world.port.connected, world.store.replay_progress = False, 0.5
    reply = world.ask(method, "/v0/topics/a", body)
    assert (reply.status, reply.headers) == (503, (("retry-after", "1"),))
    assert content(reply)["error"]["detail"] == {"replay_progress": 0.5}
    assert world.port.commands == []

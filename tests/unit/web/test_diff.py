"""Reading after a cursor, and waiting for something to read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.web.fakes import World
from topicsd.rules.floors import Tombstone

ONE = b'{"records":[{"data":1}]}'


def content(reply: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(reply.body)
    return parsed


def test_the_answer_has_every_field(world: World) -> None:
    """API 3."""
    world.ask("POST", "/v0/topics/a", ONE)
    answer = content(world.ask("POST", "/v0/topics/a/diff", b"{}"))
    assert "records_scanned" in answer.pop("performance")
    expected = {
        "topic": "a",
        "records": [{"$seq": 1, "$ts": 7, "data": 1}],
        "next_from_seq": 1,
        "head_seq": 1,
        "earliest_seq": 1,
        "caught_up": True,
        "tombstone": None,
        "lag": 0,
    }
    assert expected == answer


def test_lag_is_what_is_left(world: World) -> None:
    """API 3: head_seq - next_from_seq."""
    world.ask("POST", "/v0/topics/a", b'{"records":[{"data":1},{"data":2}]}')
    answer = content(world.ask("POST", "/v0/topics/a/diff", b'{"limit":1}'))
    assert (answer["lag"], answer["caught_up"]) == (1, False)


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        (b"", "limit", 256),
        (b"{}", "limit", 256),
        (b'{"limit":0}', "limit", 256),
        (b'{"limit":7}', "limit", 7),
        (b'{"limit":1000}', "limit", 1000),
        (b'{"limit":99999999999999999999}', "limit", 1000),
        (b'{"from_seq":18446744073709551615}', "from_seq", 2**64 - 1),
        (b"{}", "nodes", ()),
        (b'{"node":"a"}', "nodes", ("a",)),
        (b'{"node":[]}', "nodes", ()),
        (b'{"node":["a","b"]}', "nodes", ("a", "b")),
        (b"{}", "include_tags", False),
        (b"{}", "include_meta", True),
        (b'{"include_tags":true}', "include_tags", True),
        (b'{"include_meta":false}', "include_meta", False),
        (b'{"more":1e999}', "max_bytes", 2**20),
    ],
)
def test_fields_defaults_and_clamps(world: World, body: bytes, field: str, expected: Any) -> None:
    """API 3: what reaches the reader is validated and clamped."""
    world.store.create("a")
    assert world.ask("POST", "/v0/topics/a/diff", body).status == 200
    assert expected == getattr(world.reader.queries[-1], field)


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"from_seq":-1}', b'{"from_seq":18446744073709551616}', b'{"from_seq":"1"}',
     b'{"from_seq":1.5}', b'{"limit":-1}', b'{"limit":true}', b'{"node":1}', b'{"node":[1]}',
     b'{"include_tags":1}', b'{"include_meta":null}', b'{"wait_ms":-1}', b'{"wait_ms":"x"}',
     b'{"node":"\\ud800"}', b'{"node":"\xff"}'],
)  # fmt: skip
def test_mistyped_fields_are_refused(world: World, body: bytes) -> None:
    """API 3: type errors are 400."""
    world.store.create("a")
    assert world.ask("POST", "/v0/topics/a/diff", body).status == 400


def test_diff_touches_the_topic(world: World) -> None:
    """API 3: it bumps recency."""
    world.store.create("a")
    world.ask("POST", "/v0/topics/a/diff")
    assert world.reader.touched == ["a"]


def test_diff_never_creates(world: World) -> None:
    """API 3: 404."""
    assert world.ask("POST", "/v0/topics/a/diff").status == 404


def test_a_tombstone_is_an_object(world: World) -> None:
    """API 3.3: every field by name."""
    world.store.create("a").tombstone = Tombstone(1, 5, "cap", 5, 6, 9)
    expected = {
        "gap_from": 1,
        "gap_to": 5,
        "reason": "cap",
        "missed_estimate": 5,
        "earliest_seq": 6,
        "head_seq": 9,
    }
    body = b'{"wait_ms":30000}'
    assert expected == content(world.ask("POST", "/v0/topics/a/diff", body))["tombstone"]


def wait_and(world: World, action: Any, body: bytes = b'{"wait_ms":30000}') -> Any:
    """Long-poll topic `a`, and run `action` once it waits."""

    async def run() -> Any:
        poll = asyncio.ensure_future(world.send("POST", "/v0/topics/a/diff", body))
        while not len(world.port.wakeups):
            await asyncio.sleep(0)
        await action()
        async with asyncio.timeout(5):
            return await poll

    reply = asyncio.run(run())
    assert (len(world.port.wakeups), world.gate.in_flight) == (0, 0)
    return reply


def test_a_wait_ends_with_the_next_record(world: World) -> None:
    """API 3: wait_ms; no polling in between."""
    world.store.create("a")

    async def write() -> None:
        await world.send("POST", "/v0/topics/a", ONE)

    reply = wait_and(world, write)
    assert content(reply)["records"] == [{"$seq": 1, "$ts": 7, "data": 1}]
    assert len(world.reader.queries) <= 3


def test_a_wait_ends_with_404_when_the_topic_is_deleted(world: World) -> None:
    """Spec 3: noticed at once."""
    world.store.create("a")

    async def delete() -> None:
        await world.send("DELETE", "/v0/topics/a")

    assert wait_and(world, delete).status == 404


def test_a_wait_ends_with_an_empty_page_when_the_server_drains(world: World) -> None:
    """Requests in flight finish with what there is."""
    world.store.create("a")

    async def drain() -> None:
        world.gate.draining = True
        world.port.wakeups.wake_all()

    reply = wait_and(world, drain)
    assert (reply.status, content(reply)["records"]) == (200, [])


def test_a_wait_ends_with_503_when_the_engine_replays(world: World) -> None:
    """The board says so after the wakeup of a lost connection."""
    world.store.create("a")

    async def crash() -> None:
        world.store.state, world.port.connected = "replaying", False
        world.port.wakeups.wake_all()

    assert wait_and(world, crash).status == 503


def test_a_wait_ends_at_its_deadline(world: World) -> None:
    """An empty page, not an error."""
    world.store.create("a")
    reply = world.ask("POST", "/v0/topics/a/diff", b'{"wait_ms":20}')
    assert (reply.status, content(reply)["records"]) == (200, [])
    assert content(reply)["performance"]["server_total_ms"] >= 20


def test_a_wakeup_without_records_waits_on(world: World) -> None:
    """A row may move for another reason; the wait goes on."""
    world.store.create("a")

    async def nudge_then_write() -> None:
        for _ in range(3):
            world.port.wakeups.wake_all()
            await asyncio.sleep(0)
        await world.send("POST", "/v0/topics/a", ONE)

    assert len(content(wait_and(world, nudge_then_write))["records"]) == 1

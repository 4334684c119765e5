"""Frames of a watch that are no records (API 7.5, 7.6): loss, deletion, heartbeats, the end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.server import Server
from tests.harness.sse import Frame, Watching, delivered

HEARTBEAT = re.compile(rb": hb (\d{13})\n\n")
TOMBSTONE = {"topic", "reason", "gap_from", "gap_to", "earliest_seq", "head_seq"}


def tombstone(frame: Frame) -> dict[str, Any]:
    """The body of a tombstone frame; the estimate of DESIGN 5.4 may stand in it."""
    assert frame.event == "tombstone", frame
    assert TOMBSTONE <= set(frame.body) <= TOMBSTONE | {"missed_estimate"}
    return {name: frame.body[name] for name in TOMBSTONE}


def gap(frame: Frame) -> tuple[str, int, int]:
    body = tombstone(frame)
    return body["reason"], body["gap_from"], body["gap_to"]


@pytest.mark.parametrize("from_seq", [0, 1, 2, 3])
def test_a_cursor_that_is_too_old_is_told_on_connect(
    api: Api, topic: str, watching: Watching, from_seq: int
) -> None:
    """API 7.5: from_seq_too_old immediately on connect; its id is the cursor behind the gap."""
    good(api.put(topic, {"cap_records": 3}), 201)
    good(api.append(topic, 1, 2, 3, 4, 5))
    good(api.append(topic, 6))
    stream = watching.watch({topic: {"from_seq": from_seq}})
    frame = stream.next()
    if from_seq < 3:
        assert tombstone(frame) == {
            "topic": topic,
            "reason": "from_seq_too_old",
            "gap_from": from_seq + 1,
            "gap_to": 3,
            "earliest_seq": 4,
            "head_seq": 6,
        }
        assert frame.cursor == {topic: 3}
        frame = stream.next()
    assert delivered([frame], topic) == [4, 5, 6]
    assert stream.next().event == "caught-up"


def test_expired_records_are_a_gap_too(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """DESIGN 5.4: expiry that crosses a cursor is never silent."""
    good(api.put(topic, {"ttl_ms": 60_000}), 201)
    good(api.append(topic, 1, 2))
    clock.advance(60_001)
    good(api.append(topic, 3))
    stream = watching.watch([topic])
    assert gap(stream.next()) == ("from_seq_too_old", 1, 2)
    assert stream.payloads(topic, 1) == [3]


def test_a_topic_whose_records_are_all_gone_is_caught_up(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """DESIGN 5.1: without a live record the gap ends at the head."""
    good(api.put(topic, {"ttl_ms": 60_000}), 201)
    good(api.append(topic, 1, 2))
    clock.advance(60_001)
    stream = watching.watch([topic])
    frame = stream.next()
    assert (gap(frame), frame.cursor) == (("from_seq_too_old", 1, 2), {topic: 2})
    assert stream.next().event == "caught-up"
    good(api.append(topic, 3))
    assert stream.payloads(topic, 1) == [3]


def test_loss_on_a_live_stream_is_told_with_its_reason(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.5: a batch over the cap evicts its own first records before they are sent."""
    good(api.put(topic, {"cap_records": 3}), 201)
    stream = watching.live([topic])
    good(api.append(topic, *range(1, 11)))
    frame = stream.next()
    assert (gap(frame), frame.cursor) == (("cap", 1, 7), {topic: 7})
    assert stream.payloads(topic, 3) == [8, 9, 10]
    good(api.append(topic, 11))
    assert stream.payloads(topic, 1) == [11]


def test_no_tombstone_after_a_delete_and_an_append(
    api: Api, topic: str, watching: Watching
) -> None:
    """Spec 3: cap 3, write 1-3, delete below 3, write 4-5: nothing was evicted."""
    good(api.put(topic, {"cap_records": 3}), 201)
    good(api.append(topic, 1, 2, 3))
    good(api.request("POST", f"/v0/topics/{topic}/delete", json={"before_seq": 3}))
    good(api.append(topic, 4, 5))
    frame = watching.watch([topic]).next()
    assert (frame.event, delivered([frame], topic)) == ("record", [3, 4, 5])


def test_a_cursor_beyond_the_head_is_a_recreated_topic(
    api: Api, topic: str, watching: Watching
) -> None:
    """Decision 10: from_seq above head is the recreated signal; all that is there follows."""
    good(api.append(topic, 1, 2), 201)
    stream = watching.watch({topic: {"from_seq": 9}})
    body = tombstone(stream.next())
    assert (body["reason"], body["gap_from"]) == ("recreated", 1)
    assert stream.payloads(topic, 2) == [1, 2]
    assert stream.next().event == "caught-up"


def test_a_deleted_topic_ends_for_itself_only(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: topic-deleted at once and once; the rest of the stream continues."""
    gone, stays = f"{topic}-gone", f"{topic}-stays"
    good(api.append(gone, 1, 2), 201)
    good(api.put(stays), 201)
    stream = watching.live([gone, stays])
    good(api.delete(gone))
    deleted = time.monotonic()
    frame = stream.next()
    assert time.monotonic() - deleted < 0.5
    assert frame.event == "topic-deleted"
    assert frame.body == {"topic": gone, "head_seq": 2, "reason": "deleted"}
    assert frame.id is not None
    good(api.append(stays, "on"))
    assert stream.payloads(stays, 1) == ["on"]
    assert stream.is_quiet(0.05)


def test_a_recreated_topic_is_not_followed_by_the_old_stream(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.5: topic-deleted is terminal for that topic."""
    other = f"{topic}-other"
    for name in (topic, other):
        good(api.append(name, 1), 201)
    stream = watching.live([topic, other])
    good(api.delete(topic))
    good(api.append(topic, "new", "newer"), 201)
    assert stream.until("topic-deleted").body["topic"] == topic
    good(api.append(other, 2))
    assert stream.payloads(other, 1) == [2]
    assert delivered(stream.frames, topic) == [1]


def test_a_topic_deleted_before_the_stream_opens_is_told(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.5: a session whose topic is gone says so when its stream opens."""
    good(api.append(topic, 1), 201)
    wid = watching.create([topic])
    good(api.delete(topic))
    frame = watching.open(wid).next()
    assert (frame.event, frame.body["topic"]) == ("topic-deleted", topic)


def test_the_last_topic_may_go(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: a stream whose topics are all deleted stays open, with heartbeats."""
    good(api.put(topic), 201)
    stream = watching.live([topic], heartbeat_ms=50)
    good(api.delete(topic))
    assert stream.next().event == "topic-deleted"
    frame = stream.find_next(2)
    assert frame is not None and frame.is_heartbeat


def test_heartbeats_tell_the_time(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """API 7.5, spec 3: a bare comment without id, with the server's epoch in ms."""
    good(api.put(topic), 201)
    stream = watching.live([topic], heartbeat_ms=50)
    times = []
    for _ in range(3):
        frame = stream.find_next(2)
        assert frame is not None and frame.is_heartbeat
        match = HEARTBEAT.fullmatch(frame.raw)
        assert match, frame.raw
        times.append(int(match.group(1)))
    now = int(time.time() * 1000) + clock.offset_ms
    assert now - 2000 <= times[0] < times[1] < times[2] <= now + 100


def test_data_suppresses_heartbeats(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: none when real data went out within the window."""
    good(api.put(topic), 201)
    stream = watching.live([topic], heartbeat_ms=400)
    started = time.monotonic()
    number = 0
    while time.monotonic() - started < 1:
        number += 1
        good(api.append(topic, number))
        assert stream.payloads(topic, 1) == [number]
    assert not [frame for frame in stream.frames if frame.is_heartbeat]
    silent = time.monotonic()
    frame = stream.find_next(2)
    assert frame is not None and frame.is_heartbeat
    assert 0.3 < time.monotonic() - silent < 0.9


def test_a_heartbeat_interval_has_a_floor(mortal_watching: Watching, topic: str) -> None:
    """API 7.2: heartbeat_ms is clamped to 1000 from below."""
    good(mortal_watching.api.put(topic), 201)
    stream = mortal_watching.live([topic], heartbeat_ms=1)
    started = time.monotonic()
    frame = stream.find_next(3)
    assert frame is not None and frame.is_heartbeat
    assert 0.9 < time.monotonic() - started < 2


def test_a_stopping_server_says_so_and_ends_its_streams(
    launch: Callable[..., Server],
) -> None:
    """Decision 14: an error frame with server_shutting_down, the last chunk, gone in 5 s."""
    server = launch()
    with Watching(server) as watching:
        good(watching.api.append("a", 1), 201)
        streams = [watching.live(["a"]) for _ in range(10)]
        started = time.monotonic()
        server.terminate()
        for stream in streams:
            frames = stream.rest()
            assert [frame.event for frame in frames] == ["error"]
            assert b"server_shutting_down" in (frames[0].data or b"")
            assert isinstance(frames[0].body["error"], str)
            assert frames[0].id is None
            assert not stream.was_cut
        assert server.wait_exit() == 0
        assert time.monotonic() - started < 5
    assert " error " not in server.log(), server.log()[-4000:]

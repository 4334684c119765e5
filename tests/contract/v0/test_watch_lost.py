"""A watch survives what dies under it (API 7.4): a worker, the engine, the whole server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import EventStream, StreamEnded, Watching, delivered
from tests.harness.waiting import until

# More than this get checkpoint tokens instead of whole maps (API 7.4).
MAP_TOPICS_MAX = 64


class Follower:
    """A client as API 7.6 wants it: reconnects with its Last-Event-ID, remembers all it saw."""

    def __init__(self, watching: Watching, wid: str) -> None:
        self._watching = watching
        self._wid = wid
        self.stream = watching.open(wid)
        self._before: list[EventStream] = []

    def seen(self, topic: str) -> list[Any]:
        streams = [*self._before, self.stream]
        return [data for stream in streams for data in delivered(stream.frames, topic)]

    def reconnect(self) -> None:
        self._before.append(self.stream)
        self.stream = until(self._attempt, 10, why="the stream to open again")

    def _attempt(self) -> EventStream | None:
        ids = [frame.id for stream in self._before for frame in stream.frames if frame.id]
        stream = self._watching.attempt(self._wid, ids[-1] if ids else None)
        return stream if stream.status == 200 else None

    def follow(self, topic: str, last: Any, timeout: float = 10) -> list[Any]:
        """Read until `last` was delivered, reconnecting whenever the stream ends."""

        def reached() -> bool:
            if last in self.seen(topic):
                return True
            try:
                self.stream.next(timeout)
            except StreamEnded:
                self.reconnect()
            return False

        until(reached, timeout, why=f"{last} to be delivered", poll_s=0)
        return self.seen(topic)


@contextmanager
def writer(server: Server, topic: str) -> Iterator[list[int]]:
    """Appends numbers, fsync class, until the block ends; yields those acknowledged."""
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        api = Api(server, connections=1)
        number = 0
        while not stop.is_set():
            number += 1
            if _is_written(api, topic, number):
                acknowledged.append(number)
        api.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def _is_written(api: Api, topic: str, number: int) -> bool:
    try:
        answer = api.append(topic, number, idempotency_key=str(number))
    except httpx.TransportError:
        return False
    return answer.status_code in (200, 201)


def everything(api: Api, topic: str) -> list[Any]:
    found: list[Any] = []
    page: dict[str, Any] = {"next_from_seq": 0, "caught_up": False}
    while not page["caught_up"]:
        page = good(api.diff(topic, page["next_from_seq"], limit=1000))
        found += [record["data"] for record in page["records"]]
    return found


def fsync_topic(api: Api, topic: str) -> None:
    good(api.put(topic, {"durability": "fsync"}), 201)


def follow(watching: Watching, topic: str) -> tuple[Api, Follower]:
    """A new fsync-class topic and somebody who follows it."""
    fsync_topic(watching.api, topic)
    return watching.api, Follower(watching, watching.create([topic]))


def test_a_killed_worker_costs_a_reconnect(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.4: with Last-Event-ID nothing is lost and nothing repeated."""
    api, follower = follow(mortal_watching, topic)
    good(api.append(topic, *range(20)))
    follower.follow(topic, 19)
    mortal.lose_worker_of(follower.stream.connection.socket)
    good(api.append(topic, *range(20, 30)))
    assert follower.follow(topic, 29) == list(range(30))


def test_workers_killed_under_load_lose_and_repeat_nothing(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.4: records that were in flight arrive on the next stream."""
    api, follower = follow(mortal_watching, topic)
    with writer(mortal, topic) as acknowledged:
        for _ in range(2):
            target = len(acknowledged) + 20
            until(lambda n=target: len(acknowledged) >= n, 10, why="writes to flow")
            follower.follow(topic, acknowledged[-1])
            mortal.lose_worker_of(follower.stream.connection.socket)
        target = len(acknowledged) + 20
        until(lambda: len(acknowledged) >= target, 10, why="writes to flow")
    stored = everything(api, topic)
    assert follower.follow(topic, stored[-1]) == stored
    assert set(acknowledged) <= set(stored)


def test_without_an_id_a_killed_worker_repeats_but_loses_nothing(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.4: the cursors the server saved last may be older than what it sent."""
    api = mortal_watching.api
    fsync_topic(api, topic)
    wid = mortal_watching.create([topic])
    stream = mortal_watching.open(wid)
    good(api.append(topic, *range(10)))
    assert stream.payloads(topic, 10) == list(range(10))
    mortal.lose_worker_of(stream.connection.socket)
    good(api.append(topic, 10))
    again = mortal_watching.open(wid)
    again.until("caught-up")
    seen = delivered(again.frames, topic)
    assert seen[-1] == 10
    assert seen == list(range(11 - len(seen), 11))


def test_a_killed_engine_is_not_noticed_by_a_stream(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """Architecture 3: workers keep their streams; what comes after the crash is delivered."""
    api, follower = follow(mortal_watching, topic)
    good(api.append(topic, 1, 2))
    follower.follow(topic, 2)
    stream = follower.stream
    mortal.crash()
    good(api.append(topic, 3, 4))
    assert follower.follow(topic, 4) == [1, 2, 3, 4]
    assert (follower.stream is stream) is not mortal.shape.single_process
    # The session is known to the new engine, too.
    follower.stream.close()
    follower.reconnect()
    good(api.append(topic, 5))
    assert follower.follow(topic, 5) == [1, 2, 3, 4, 5]


def test_a_takeover_works_after_an_engine_was_lost(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.1: the engine that came after knows who holds the session, or ends both well."""
    api = mortal_watching.api
    fsync_topic(api, topic)
    wid = mortal_watching.create([topic])
    first = mortal_watching.open(wid)
    first.until("caught-up")
    mortal.crash()
    good(api.append(topic, 1))
    if not mortal.shape.single_process:
        assert first.payloads(topic, 1) == [1]
    second = mortal_watching.open(wid, first.last_id)
    first.rest(10)
    good(api.append(topic, 2))
    second.until("caught-up")
    wanted = [1, 2] if mortal.shape.single_process else [2]
    while delivered(second.frames, topic) != wanted:
        second.next()
    assert second.is_quiet()


def test_a_restarted_server_goes_on(mortal: Server, mortal_watching: Watching, topic: str) -> None:
    """API 7.1: sessions are durable; after a clean stop their cursors are exact."""
    api = mortal_watching.api
    fsync_topic(api, topic)
    wid = mortal_watching.create([topic])
    stream = mortal_watching.open(wid)
    good(api.append(topic, 1, 2, 3))
    assert stream.payloads(topic, 3) == [1, 2, 3]
    mortal.restart()
    stream.rest()
    good(api.append(topic, 4))
    again = mortal_watching.open(wid)
    again.until("caught-up")
    assert delivered(again.frames, topic) == [4]


def test_a_killed_server_goes_on(mortal: Server, mortal_watching: Watching, topic: str) -> None:
    """API 7.4: with Last-Event-ID nothing is lost and nothing repeated."""
    api, follower = follow(mortal_watching, topic)
    good(api.append(topic, 1, 2, 3))
    follower.follow(topic, 3)
    mortal.kill()
    mortal.start()
    good(api.append(topic, 4))
    assert follower.follow(topic, 4) == [1, 2, 3, 4]


def test_restarts_under_load_lose_and_repeat_nothing(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.4: restart the server mid-watch, reconnect as a browser does."""
    api, follower = follow(mortal_watching, topic)
    with writer(mortal, topic) as acknowledged:
        until(lambda: len(acknowledged) >= 20, 10, why="writes to flow")
        follower.follow(topic, acknowledged[-1])
        mortal.restart()
        target = len(acknowledged) + 20
        until(lambda: len(acknowledged) >= target, 10, why="writes to flow")
    stored = everything(api, topic)
    assert follower.follow(topic, stored[-1]) == stored


def test_a_lost_ephemeral_topic_is_told(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 0.10: its records do not survive a restart, and the loss is not silent."""
    api = mortal_watching.api
    good(api.put(topic, {"durability": "ephemeral"}), 201)
    wid = mortal_watching.create([topic])
    good(api.append(topic, 1, 2, 3))
    mortal.restart()
    frame = mortal_watching.open(wid).next()
    assert frame.event == "tombstone", frame
    assert (frame.body["gap_from"], frame.body["gap_to"]) == (1, 3)


def test_sessions_of_many_topics_have_short_ids(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: above 64 topics an opaque token, as good a place to come back to as a map."""
    names = [f"{topic}-{number:03d}" for number in range(MAP_TOPICS_MAX + 36)]
    for name in names:
        good(api.append(name, 0), 201)
    wid = watching.create({name: {"tail": True} for name in names})
    follower = Follower(watching, wid)
    for _ in names:
        follower.stream.until("caught-up")
    whole_map_bytes = len(names) * len(names[0])
    ids: list[str] = []
    for number, name in enumerate(names[:5], start=1):
        good(api.append(name, number))
        frame = follower.stream.until("record", name)
        assert frame.id is not None and len(frame.id) < whole_map_bytes / 4
        ids.append(frame.id)
    # Each of these ids, though of an earlier stream, leads back to its own moment.
    for position in (4, 3, 2):
        again = watching.open(wid, ids[position])
        found: dict[str, list[Any]] = {}
        caught_up: set[str] = set()
        while len(caught_up) < len(names):
            frame = again.next()
            if frame.event == "caught-up":
                caught_up.add(frame.body["topic"])
            else:
                found[frame.body["topic"]] = delivered([frame], frame.body["topic"])
        missed = range(position + 1, 5)
        assert found == {names[number]: [number + 1] for number in missed}
    good(api.append(names[0], "end"))
    assert again.payloads(names[0], 1) == ["end"]


def test_many_topics_survive_a_killed_worker(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.4: opaque ids are resolved by a worker that never saw the session."""
    api = mortal_watching.api
    names = [f"{topic}-{number:03d}" for number in range(MAP_TOPICS_MAX + 6)]
    for name in names:
        fsync_topic(api, name)
    follower = Follower(mortal_watching, mortal_watching.create(names))
    for number, name in enumerate(names):
        good(api.append(name, number))
    for number, name in enumerate(names):
        follower.follow(name, number)
    mortal.lose_worker_of(follower.stream.connection.socket)
    good(api.append(names[3], "after"))
    follower.follow(names[3], "after")
    for number, name in enumerate(names):
        assert follower.seen(name) == ([number, "after"] if number == 3 else [number])

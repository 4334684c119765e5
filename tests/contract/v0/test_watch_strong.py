"""consistency strong (API 7.2): records are pushed only after they are synced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import Watching, delivered
from tests.harness.waiting import until


@pytest.fixture(scope="module")
def lazy(launch_once: Callable[..., Server]) -> Server:
    """A server that syncs disk-class records once a minute unless it is asked to."""
    return launch_once(TOPICS_WAL_SYNC_INTERVAL_MS="60000")


@pytest.fixture
def lazily(lazy: Server) -> Iterator[Watching]:
    with Watching(lazy) as opened:
        yield opened


def syncs(api: Api) -> int:
    return int(api.metrics()["wal"]["fsyncs"])


def settled(api: Api) -> int:
    """The number of syncs once those of earlier requests are over."""
    until(lambda: syncs(api) == syncs(api), why="no sync to be under way")
    return syncs(api)


def test_a_strong_stream_syncs_before_it_pushes(lazily: Watching, topic: str) -> None:
    """API 7.2: a disk-class record is on the disk when a strong stream delivers it."""
    good(lazily.api.put(topic), 201)
    stream = lazily.live([topic], consistency="strong")
    for number in range(3):
        before = settled(lazily.api)
        good(lazily.api.append(topic, number))
        assert stream.payloads(topic, 1) == [number]
        assert syncs(lazily.api) > before


def test_an_eventual_stream_does_not_wait(lazily: Watching, topic: str) -> None:
    """API 7.2: eventual pushes what is in the log's buffer, without a sync."""
    good(lazily.api.append(topic, 0), 201)
    stream = lazily.live([topic])
    before = settled(lazily.api)
    good(lazily.api.append(topic, 1))
    assert stream.payloads(topic, 1) == [1]
    assert syncs(lazily.api) == before


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_every_class_is_delivered(lazily: Watching, topic: str, durability: str) -> None:
    """API 7.2: backlog and live records, in order, at once; an ephemeral topic has no disk."""
    api = lazily.api
    good(api.put(topic, {"durability": durability}), 201)
    good(api.append(topic, *range(10)))
    stream = lazily.watch([topic], consistency="strong", limit=4)
    stream.until("caught-up")
    assert delivered(stream.frames, topic) == list(range(10))
    for number in range(10, 15):
        good(api.append(topic, number))
        written = time.monotonic()
        assert stream.payloads(topic, 1) == [number]
        assert time.monotonic() - written < 1


def test_a_strong_record_survives_what_follows(launch: Callable[..., Server]) -> None:
    """API 7.2: what was pushed is there after a crash, in the class that may lose a tail."""
    server = launch(TOPICS_WAL_SYNC_INTERVAL_MS="60000")
    with Watching(server) as watching:
        good(watching.api.put("a"), 201)
        wid = watching.create(["a"], consistency="strong")
        stream = watching.open(wid)
        good(watching.api.append("a", 1, 2, 3))
        assert stream.payloads("a", 3) == [1, 2, 3]
        server.crash()
        good(watching.api.append("a", 4))
        again = watching.open(wid, stream.last_id)
        assert again.payloads("a", 1) == [4]
        assert again.frames[-1].body["from_seq"] == 3


def test_strong_and_eventual_deliver_the_same(lazily: Watching, topic: str) -> None:
    """API 7.2: consistency decides when, never what."""
    good(lazily.api.put(topic), 201)
    streams = [lazily.live([topic], consistency=how) for how in ("strong", "eventual")]
    for number in range(30):
        good(lazily.api.append(topic, number))
    assert [stream.payloads(topic, 30) for stream in streams] == [list(range(30))] * 2

"""Clients that do not read (API 7.6): bounded memory, lag or a tombstone, never silent loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness import processes
from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import EventStream, Frame, Watching, delivered
from tests.harness.waiting import until

MIB = 1024 * 1024
# What the kernel may take for a client that does not read; its least is a few kB more.
RECEIVE_BYTES = 4096
RECORD_BYTES = 100_000
# More than all the buffers between an engine and a client that does not read.
FLOOD_RECORDS = 100

GRACE_MS = 150
TIMEOUT_MS = 900


@pytest.fixture(scope="module")
def patient(launch_once: Callable[..., Server]) -> Server:
    """A server that does not end slow streams during a test, with a short grace."""
    return launch_once(TOPICS_WATCH_BUFFER_GRACE_MS=str(GRACE_MS))


@pytest.fixture(scope="module")
def strict(launch_once: Callable[..., Server]) -> Server:
    """A server that ends a slow stream after less than a second."""
    return launch_once(
        TOPICS_WATCH_BUFFER_GRACE_MS=str(GRACE_MS), TOPICS_SLOW_CONSUMER_TIMEOUT_MS=str(TIMEOUT_MS)
    )


@pytest.fixture
def patiently(patient: Server) -> Iterator[Watching]:
    with Watching(patient) as opened:
        yield opened


@pytest.fixture
def strictly(strict: Server) -> Iterator[Watching]:
    with Watching(strict) as opened:
        yield opened


def payload(number: int) -> str:
    return f"{number:06d}".ljust(RECORD_BYTES, ".")


def flood(api: Api, topic: str, first: int, count: int = FLOOD_RECORDS) -> int:
    """Append numbered records of 100 kB; the next number."""
    for start in range(first, first + count, 20):
        numbers = range(start, min(start + 20, first + count))
        assert api.append(topic, *map(payload, numbers)).status_code in (200, 201)
    return first + count


def numbers(frames: list[Frame], topic: str) -> list[int]:
    return [int(data[:6]) for data in delivered(frames, topic)]


def stall(watching: Watching, topics: list[str], **fields: Any) -> tuple[str, EventStream]:
    """A session whose stream has begun and is not read any more."""
    wid = watching.create(topics, **fields)
    return wid, watching.open(wid, receive_bytes=RECEIVE_BYTES)


def keep_writing(api: Api, topic: str, first: int, seconds: float) -> int:
    """Append for that long, so that time passes in a test without anybody sleeping."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        first = flood(api, topic, first, 20)
    return first


def outlive_the_timeout(api: Api, topic: str) -> None:
    """Be busy for longer than a client of the strict server may be stuck."""
    keep_writing(api, f"{topic}-elsewhere", 0, 1.3 * TIMEOUT_MS / 1000)


def read_to(stream: EventStream, topic: str, last: int) -> None:
    """Read until the record with seq `last` was delivered."""
    while True:
        frame = stream.until("record", topic, timeout=10)
        if frame.body["to_seq"] >= last:
            return


def account(frames: list[Frame], topic: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Every seq that was delivered or told to be lost, in order, and the gaps."""
    seqs: list[int] = []
    gaps: list[tuple[int, int]] = []
    for frame in frames:
        if frame.event == "record" and frame.body["topic"] == topic:
            seqs += [record["$seq"] for record in frame.body["records"]]
        if frame.event == "tombstone" and frame.body["topic"] == topic:
            gaps.append((frame.body["gap_from"], frame.body["gap_to"]))
            seqs += range(frame.body["gap_from"], frame.body["gap_to"] + 1)
    return seqs, gaps


def test_a_durable_topic_lags_and_replays(patiently: Watching, topic: str) -> None:
    """API 7.6: nothing is lost, however long the client stalled past the grace."""
    api = patiently.api
    good(api.put(topic), 201)
    _, stream = stall(patiently, [topic])
    end = keep_writing(api, topic, flood(api, topic, 0), 3 * GRACE_MS / 1000)
    read_to(stream, topic, end)
    assert numbers(stream.frames, topic) == list(range(end))
    assert not [frame for frame in stream.frames if frame.event in ("tombstone", "error")]


def test_a_lossy_topic_degrades_to_a_tombstone(patiently: Watching, topic: str) -> None:
    """API 7.6: from_seq_too_old when the client reads again; every seq is accounted for."""
    api = patiently.api
    good(api.put(topic, {"cap_records": 10}), 201)
    _, stream = stall(patiently, [topic])
    end = keep_writing(api, topic, flood(api, topic, 0), 3 * GRACE_MS / 1000)
    read_to(stream, topic, end)
    seqs, gaps = account(stream.frames, topic)
    assert seqs == list(range(1, end + 1))
    assert gaps
    reasons = [f.body["reason"] for f in stream.frames if f.event == "tombstone"]
    assert reasons[-1] == "from_seq_too_old"
    # Live again: the next record comes by itself.
    stream.until("caught-up")
    flood(api, topic, end, 1)
    read_to(stream, topic, end + 1)


def test_a_stalled_topic_does_not_hold_up_other_streams(patiently: Watching, topic: str) -> None:
    """API 7.6: one client's lag is its own."""
    api = patiently.api
    good(api.put(topic), 201)
    reader = patiently.live([topic])
    _, stalled = stall(patiently, [topic])
    end = flood(api, topic, 0)
    read_to(reader, topic, end)
    assert numbers(reader.frames, topic) == list(range(end))
    small = f"{topic}-small"
    good(api.append(small, 1), 201)
    assert patiently.watch([small]).payloads(small, 1) == [1]
    stalled.close()


def test_records_coalesce_while_a_client_is_behind(patiently: Watching, topic: str) -> None:
    """API 7.6: what could not be sent one by one comes in larger and fewer batches."""
    api = patiently.api
    good(api.put(topic), 201)
    _, stream = stall(patiently, [topic])
    end = flood(api, topic, 0)
    for number in range(300):
        good(api.append(topic, f"{number:06d}"))
    read_to(stream, topic, end + 300)
    frames = [frame for frame in stream.frames if frame.event == "record"]
    small = [frame for frame in frames if frame.body["from_seq"] >= end]
    assert len(small) <= 3
    assert sum(len(frame.body["records"]) for frame in frames) == end + 300


def test_a_client_that_stays_slow_is_closed_with_an_error(strictly: Watching, topic: str) -> None:
    """API 7.6: past the timeout a final error frame, the end, and a resume without loss."""
    api = strictly.api
    good(api.put(topic), 201)
    end = flood(api, topic, 0)
    wid, stream = stall(strictly, [topic])
    outlive_the_timeout(api, topic)
    rest = stream.rest(10)
    assert rest[-1].event == "error"
    assert rest[-1].id is None
    assert isinstance(rest[-1].body["code"], int) and isinstance(rest[-1].body["error"], str)
    assert not stream.was_cut
    seen = numbers(stream.frames, topic)
    assert 0 < len(seen) < end
    again = strictly.open(wid, stream.last_id)
    read_to(again, topic, end)
    assert seen + numbers(again.frames, topic) == list(range(end))


def test_a_closed_slow_client_goes_on_by_the_servers_cursors(
    strictly: Watching, topic: str
) -> None:
    """API 7.6: the session survives; what was not sent is sent to the next stream."""
    api = strictly.api
    good(api.put(topic), 201)
    end = flood(api, topic, 0)
    wid, stream = stall(strictly, [topic])
    outlive_the_timeout(api, topic)
    stream.rest(10)
    again = strictly.open(wid)
    read_to(again, topic, end)
    seen = numbers(stream.frames, topic) + numbers(again.frames, topic)
    assert seen == list(range(end))


def test_a_client_that_reads_slowly_is_not_closed(strictly: Watching, topic: str) -> None:
    """API 7.6: only one that is stuck past the timeout; progress starts it again."""
    api = strictly.api
    good(api.put(topic), 201)
    end = flood(api, topic, 0)
    _, stream = stall(strictly, [topic])
    started = time.monotonic()
    seen: list[int] = []
    while len(seen) < end:
        frame = stream.find_next(5)
        assert frame is not None and frame.event != "error", "the stream was closed"
        seen += numbers([frame], topic)
        due = started + 2.5 * TIMEOUT_MS / 1000 * len(seen) / end
        until(lambda at=due: api.state(topic) and time.monotonic() >= at, poll_s=0.001)
    assert time.monotonic() - started > 2 * TIMEOUT_MS / 1000
    assert seen == list(range(end))


def test_a_client_that_never_reads_costs_no_slot_for_ever(strictly: Watching, topic: str) -> None:
    """API 11: a stream closed for slowness is freed soon although nobody reads its end."""
    api = strictly.api
    good(api.put(topic), 201)
    flood(api, topic, 0)
    before = api.metrics()["sse_connections"]
    streams = [stall(strictly, [topic])[1] for _ in range(5)]
    assert api.metrics()["sse_connections"] == before + 5
    until(lambda: api.metrics()["sse_connections"] == before, 20, why="the streams to be freed")
    assert len(streams) == 5


def memory_of(server: Server) -> int:
    """Private memory of all processes of a server, in bytes."""
    family = [server.process.pid, *processes.children_of(server.process.pid)]
    return sum(map(processes.private_bytes, family))


def test_stalled_readers_cost_bounded_memory(launch: Callable[..., Server]) -> None:
    """API 7.6: 200 clients that do not read 20 MB each cost a small buffer each, not 4 GB."""
    server = launch()
    with Watching(server) as watching:
        api = watching.api
        good(api.put("flood"), 201)
        end = flood(api, "flood", 0)
        wids = [watching.create(["flood"]) for _ in range(200)]
        before = memory_of(server)
        reader, *_ = [watching.attempt(wid, receive_bytes=RECEIVE_BYTES) for wid in wids]
        assert api.metrics()["sse_connections"] == 200
        end = flood(api, "flood", end)
        good(api.append("other", "quick"), 201)
        assert watching.watch(["other"]).payloads("other", 1) == ["quick"]
        grown = memory_of(server) - before
        assert grown < 200 * 512 * 1024, f"{grown / MIB:.0f} MiB for 200 stalled readers"
        read_to(reader, "flood", end)
        assert numbers(reader.frames, "flood") == list(range(end))

"""Coming back to a watch session (API 7.1, 7.4): cursors, Last-Event-ID, takeover, the end."""

from __future__ import annotations

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.sse import EventStream, Watching, delivered, encode_id
from tests.harness.waiting import until

TTL_MS = 300_000


def hang_up(watching: Watching, stream: EventStream) -> None:
    """Close a stream and wait until the server has noticed."""
    before = watching.api.metrics()["sse_connections"]
    stream.close()
    until(lambda: watching.api.metrics()["sse_connections"] < before, why="the stream to be gone")


def not_found(watching: Watching, wid: str) -> None:
    stream = watching.attempt(wid)
    assert stream.answer is not None, "the stream opened"
    refused(stream.answer, 404, "not_found")


def test_a_session_goes_on_where_it_was(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: the server's cursors decide when the client says nothing."""
    good(api.append(topic, 1, 2, 3), 201)
    wid = watching.create({topic: {"from_seq": 1}})
    stream = watching.open(wid)
    assert stream.payloads(topic, 2) == [2, 3]
    stream.until("caught-up")
    hang_up(watching, stream)
    good(api.append(topic, 4, 5))
    again = watching.open(wid)
    frames = [again.next(), again.next()]
    assert delivered(frames, topic) == [4, 5]
    assert frames[0].body["from_seq"] == 3
    assert frames[1].event == "caught-up"


def test_a_session_that_was_never_opened_starts_at_its_beginning(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.4: the initial from_seq and tail, as they were at the POST."""
    first, second = f"{topic}-a", f"{topic}-b"
    good(api.append(first, 1, 2), 201)
    good(api.append(second, 1, 2), 201)
    wid = watching.create({first: {"from_seq": 1}, second: {"tail": True}})
    good(api.append(first, 3))
    good(api.append(second, 3))
    stream = watching.open(wid)
    stream.until("caught-up")
    stream.until("caught-up")
    assert delivered(stream.frames, first) == [2, 3]
    assert delivered(stream.frames, second) == [3]


def test_the_last_event_id_rewinds(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: what was flushed but not processed is sent again, from that exact map."""
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        good(api.append(name, 1, 2, 3), 201)
    wid = watching.create([first, second])
    stream = watching.open(wid)
    for _ in range(2):
        stream.until("caught-up")
    hang_up(watching, stream)
    again = watching.open(wid, encode_id({first: 1, second: 2}))
    for _ in range(2):
        again.until("caught-up")
    assert delivered(again.frames, first) == [2, 3]
    assert delivered(again.frames, second) == [3]


def test_every_id_of_a_stream_is_a_place_to_come_back_to(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.4: whichever frame was the last to arrive, nothing is lost or repeated."""
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        good(api.append(name, *range(7)), 201)
    wid = watching.create([first, second], limit=2)
    stream = watching.open(wid)
    for _ in range(2):
        stream.until("caught-up")
    hang_up(watching, stream)
    for position in range(1, len(stream.frames)):
        seen = stream.frames[: position + 1]
        again = watching.open(wid, seen[-1].id)
        for _ in range(2):
            again.until("caught-up")
        for name in (first, second):
            assert delivered(seen, name) + delivered(again.frames, name) == list(range(7))
        hang_up(watching, again)


def test_the_last_event_id_never_advances(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: used only to rewind; the smaller position wins topic by topic."""
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        good(api.append(name, 1, 2, 3, 4), 201)
    wid = watching.create({first: {"from_seq": 1}, second: {"from_seq": 3}})
    stream = watching.open(wid, encode_id({first: 3, second: 2, "unknown": 1}))
    for _ in range(2):
        stream.until("caught-up")
    assert delivered(stream.frames, first) == [2, 3, 4]
    assert delivered(stream.frames, second) == [3, 4]


def test_a_topic_missing_in_the_last_event_id_keeps_its_cursor(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.4: the session's cursors are the authority for what the id does not name."""
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        good(api.append(name, 1, 2), 201)
    wid = watching.create({first: {"tail": True}, second: {"tail": True}})
    stream = watching.open(wid, encode_id({first: 1}))
    for _ in range(2):
        stream.until("caught-up")
    assert delivered(stream.frames, first) == [2]
    assert delivered(stream.frames, second) == []


def test_an_empty_last_event_id_says_nothing(api: Api, topic: str, watching: Watching) -> None:
    """HTML: a browser whose last id is empty has seen no id."""
    good(api.append(topic, 1), 201)
    stream = watching.open(watching.create([topic]), "")
    assert stream.payloads(topic, 1) == [1]


def test_a_second_stream_takes_over(api: Api, topic: str, watching: Watching) -> None:
    """API 7.1, spec 3: one session is one stream; the older one ends, nothing is split."""
    good(api.append(topic, *range(5)), 201)
    wid = watching.create([topic])
    first = watching.open(wid)
    first.until("caught-up")
    second = watching.open(
        wid, connection=watching.server.connect_elsewhere(first.connection.socket)
    )
    rest = first.rest()
    assert not first.was_cut
    good(api.append(topic, 5, 6))
    assert second.payloads(topic, 2) == [5, 6]
    assert delivered(rest, topic) == []


def test_nothing_is_lost_or_repeated_by_takeovers(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: streams that follow one another while records come deliver each of them once."""
    good(api.put(topic), 201)
    wid = watching.create([topic])
    streams = [watching.open(wid)]
    for number in range(40):
        good(api.append(topic, number))
        if number % 8 == 7:
            connection = watching.server.connect_elsewhere(streams[-1].connection.socket)
            streams.append(watching.open(wid, connection=connection))
    for stream in streams[:-1]:
        stream.rest()
    streams[-1].until("caught-up")
    seen = [data for stream in streams for data in delivered(stream.frames, topic)]
    while seen[-1] != 39:
        seen += delivered([streams[-1].next()], topic)
    assert seen == list(range(40))


def test_a_takeover_may_rewind(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: the client that comes back knows what it has seen."""
    good(api.append(topic, 1, 2, 3), 201)
    wid = watching.create([topic], limit=1)
    first = watching.open(wid)
    seen = first.until("record")
    first.until("caught-up")
    second = watching.open(wid, seen.id)
    assert second.payloads(topic, 2) == [2, 3]
    first.rest()


@pytest.mark.parametrize("records", [0, 3])
def test_a_topic_made_again_meanwhile_is_told(
    api: Api, topic: str, watching: Watching, records: int
) -> None:
    """DESIGN 5.5, spec 3: by its epoch, also when the new head is above the cursor."""
    good(api.append(topic, "old"), 201)
    wid = watching.create([topic])
    stream = watching.open(wid)
    stream.until("caught-up")
    hang_up(watching, stream)
    good(api.delete(topic))
    good(api.put(topic), 201)
    if records:
        good(api.append(topic, *range(records)))
    again = watching.open(wid, stream.last_id)
    frame = again.next()
    assert frame.event == "tombstone", frame
    assert (frame.body["reason"], frame.body["gap_from"]) == ("recreated", 1)
    if records:
        assert again.payloads(topic, records) == list(range(records))
    assert again.next().event == "caught-up"
    hang_up(watching, again)
    good(api.append(topic, "after"))
    assert watching.open(wid, again.last_id).payloads(topic, 1) == ["after"]


def test_an_id_of_the_former_topic_does_not_skip_records_of_the_new_one(
    api: Api, topic: str, watching: Watching
) -> None:
    """DESIGN 5.5: a rewind to before the topic was made again is told, and starts it anew."""
    good(api.append(topic, 1, 2, 3), 201)
    wid = watching.create([topic])
    stream = watching.open(wid)
    stream.until("caught-up")
    hang_up(watching, stream)
    good(api.delete(topic))
    good(api.append(topic, *"abcdef"), 201)
    # Everything is flushed to a client that dies before it has processed any of it.
    lost = watching.open(wid, stream.last_id)
    lost.until("caught-up")
    hang_up(watching, lost)
    again = watching.open(wid, stream.last_id)
    frame = again.next()
    assert (frame.event, frame.body.get("reason")) == ("tombstone", "recreated")
    assert again.payloads(topic, 6) == list("abcdef")


def test_eviction_while_away_is_told(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: a cursor that has become too old gets its tombstone on connect, once."""
    good(api.put(topic, {"cap_records": 2}), 201)
    good(api.append(topic, 1))
    wid = watching.create([topic])
    stream = watching.open(wid)
    stream.until("caught-up")
    hang_up(watching, stream)
    good(api.append(topic, 2, 3, 4, 5))
    again = watching.open(wid)
    frame = again.next()
    assert (frame.event, frame.body["reason"]) == ("tombstone", "from_seq_too_old")
    assert (frame.body["gap_from"], frame.body["gap_to"]) == (2, 3)
    assert again.payloads(topic, 2) == [4, 5]
    hang_up(watching, again)
    # The id of the tombstone stands behind the gap.
    third = watching.open(wid, frame.id)
    assert third.next().event == "record"


def test_an_idle_session_is_reclaimed(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """API 7.1: after session_ttl_ms without a stream it is gone: 404, POST again."""
    good(api.put(topic), 201)
    never, closed = watching.create([topic]), watching.create([topic])
    stream = watching.open(closed)
    clock.advance(TTL_MS - 1000)
    hang_up(watching, stream)
    not_found_later = watching.create([topic])
    clock.advance(2000)
    not_found(watching, never)
    hang_up(watching, watching.open(closed))
    clock.advance(TTL_MS + 1)
    not_found(watching, closed)
    not_found(watching, not_found_later)


def test_an_open_stream_is_never_reclaimed(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """API 7.1: its cursor map is in use, however long it has been open."""
    good(api.put(topic), 201)
    wid = watching.create([topic])
    stream = watching.open(wid)
    stream.until("caught-up")
    for number in range(2):
        clock.advance(TTL_MS * 2)
        # Both run the collection (API 7.1).
        watching.live([topic])
        good(api.append(topic, number))
        assert stream.payloads(topic, 1) == [number]
    hang_up(watching, stream)
    good(api.append(topic, "back"))
    assert watching.open(wid).payloads(topic, 1) == ["back"]


def test_reclaimed_sessions_are_not_counted(
    api: Api, topic: str, watching: Watching, clock: ServerClock
) -> None:
    """API 7.1: the collection runs on every POST /v0/watch."""
    good(api.put(topic), 201)
    for _ in range(3):
        watching.create([topic])
    clock.advance(TTL_MS + 1)
    watching.create([topic])
    assert api.metrics()["watch_sessions"] == 1

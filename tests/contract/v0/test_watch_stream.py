"""The stream of GET /v0/watch/:wid (API 7.4, 7.5): frames of records and of progress."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.sse import QUIET_S, Watching, delivered

MIB = 1024 * 1024


def test_retry_comes_first_and_once(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: retry 2000 is sent once, at open."""
    good(api.append(topic, 1), 201)
    stream = watching.attempt(watching.create([topic]))
    first = stream.next()
    assert first.raw == b"retry: 2000\n\n"
    stream.until("caught-up")
    good(api.append(topic, 2))
    stream.until("record")
    assert [frame.retry for frame in stream.frames if frame.retry] == ["2000"]


def test_a_record_frame_has_exactly_its_shape(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: id, event and one data line; topic, records and the from/to/head triple."""
    record = {"data": {"url": "..."}, "tag": "job:render", "node": "node-B", "meta": {"m": "1"}}
    good(api.write(topic, [record, {"data": 42}, {"data": None}]), 201)
    frame = watching.watch({topic: {"from_seq": 1}}).next()
    assert frame.event == "record"
    assert frame.cursor == {topic: 3}
    body = frame.body
    assert set(body) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
    assert (body["topic"], body["from_seq"], body["to_seq"], body["head_seq"]) == (topic, 1, 3, 3)
    assert [set(entry) for entry in body["records"]] == [{"$seq", "$ts", "data"}] * 2
    assert [entry["$seq"] for entry in body["records"]] == [2, 3]
    lines = frame.raw.split(b"\n")
    assert [line.partition(b":")[0] for line in lines] == [b"id", b"event", b"data", b"", b""]


def test_frames_carry_what_a_diff_returns(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: a record in a frame is the record of a diff, byte for byte."""
    record = {"data": {"b": 1, "a": [1.50, 1e2]}, "tag": "t", "node": "n", "meta": {"m": "1"}}
    good(api.write(topic, [record] * 3), 201)
    for fields in (
        {},
        {"include_tags": True},
        {"include_meta": False},
        {"include_meta": False, "include_tags": True},
    ):
        frame = watching.watch([topic], **fields).until("record")
        page = api.diff(topic, **fields).content
        records = page[page.index(b"[") : page.index(b',"next_from_seq"')]
        assert frame.data is not None and b'"records":' + records in frame.data


def test_what_is_not_asked_for_is_left_out(api: Api, topic: str, watching: Watching) -> None:
    """API 7.2: include_data false leaves only $seq, $ts, $tag and $node."""
    records = [{"data": "x" * 1000, "tag": "t", "node": "n", "meta": {"m": "1"}}, {"data": 2}]
    good(api.write(topic, records), 201)
    light = watching.watch([topic], include_data=False, include_tags=True).records(topic, 2)
    assert [set(record) for record in light] == [{"$seq", "$ts", "$tag", "$node"}, {"$seq", "$ts"}]
    assert (light[0]["$tag"], light[0]["$node"]) == ("t", "n")
    lighter = watching.watch([topic], include_data=False).records(topic, 2)
    assert [set(record) for record in lighter] == [{"$seq", "$ts", "$node"}, {"$seq", "$ts"}]


def test_records_arrive_live(api: Api, topic: str, watching: Watching) -> None:
    """API 7: a record of any durability class is pushed at once, its frame flushed by itself."""
    names = [f"{topic}-{kind}" for kind in ("ephemeral", "memory", "disk", "fsync")]
    for name in names:
        good(api.put(name, {"durability": name.rpartition("-")[2]}), 201)
    stream = watching.live(names)
    for name in names:
        for number in (1, 2):
            good(api.append(name, number))
            written = time.monotonic()
            frame = stream.next()
            assert time.monotonic() - written < 0.5
            assert (frame.event, frame.body["topic"], frame.body["to_seq"]) == (
                "record",
                name,
                number,
            )
    assert stream.is_quiet(0.05)


def test_every_id_is_the_whole_map(api: Api, topic: str, watching: Watching) -> None:
    """API 7.4: base64url without padding of the cursor of every topic at that moment."""
    first, second = f"{topic}-a", f"{topic}-b"
    good(api.append(first, 1, 2, 3), 201)
    good(api.append(second, 1), 201)
    stream = watching.watch({first: {"from_seq": 1}, second: {"tail": True}})
    expected = {first: 1, second: 1}
    for _ in range(3):
        frame = stream.next()
        if frame.event == "record":
            expected[frame.body["topic"]] = frame.body["to_seq"]
        assert frame.cursor == expected
    assert expected == {first: 3, second: 1}
    good(api.append(second, 2))
    assert stream.next().cursor == {first: 3, second: 2}


def test_caught_up_comes_once_after_the_backlog(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5, spec 3: on backlog to live, one per topic, not after every batch."""
    good(api.append(topic, *range(10)), 201)
    stream = watching.watch([topic], limit=4)
    frames = [stream.next() for _ in range(4)]
    assert [frame.event for frame in frames] == ["record"] * 3 + ["caught-up"]
    assert frames[-1].body == {"topic": topic, "head_seq": 10}
    assert frames[-1].cursor == {topic: 10}
    for number in range(5):
        good(api.append(topic, number))
        assert stream.next().event == "record"
    assert stream.is_quiet()


def test_caught_up_comes_for_every_topic(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: also for a topic that had nothing to catch up with."""
    full, empty, tail = (f"{topic}-{kind}" for kind in ("full", "empty", "tail"))
    good(api.append(full, 1, 2), 201)
    good(api.put(empty), 201)
    good(api.append(tail, 1), 201)
    stream = watching.watch({full: {}, empty: {}, tail: {"tail": True}})
    frames = [stream.next() for _ in range(4)]
    caught_up = {f.body["topic"]: f.body["head_seq"] for f in frames if f.event == "caught-up"}
    assert caught_up == {full: 2, empty: 0, tail: 1}
    assert stream.is_quiet()


def test_caught_up_comes_again_after_another_backlog(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 7.5: re-emitted on each backlog to tailing transition."""
    good(api.put(topic), 201)
    stream = watching.live([topic], limit=5)
    for _ in range(2):
        good(api.append(topic, *range(12)))
        frames = [stream.next() for _ in range(4)]
        assert [frame.event for frame in frames] == ["record"] * 3 + ["caught-up"]
        assert delivered(frames, topic) == list(range(12))
    assert stream.is_quiet()


def test_batches_are_bounded_by_records(api: Api, topic: str, watching: Watching) -> None:
    """API 7.2: limit per frame, 256 by default, clamped to TOPICS_MAX_LIMIT."""
    for start in range(0, 2000, 500):
        api.append(topic, *range(start, start + 500))
    for fields, most in (({}, 256), ({"limit": 100}, 100), ({"limit": 10**6}, 1000)):
        stream = watching.watch([topic], **fields)
        stream.until("caught-up")
        counts = [len(f.body["records"]) for f in stream.frames if f.event == "record"]
        assert max(counts) == most
        assert delivered(stream.frames, topic) == list(range(2000))


def test_the_triple_of_batches_is_contiguous(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: each batch begins where the one before ended; lag is head minus to."""
    good(api.append(topic, *range(10)), 201)
    stream = watching.watch([topic], limit=3)
    stream.until("caught-up")
    bodies = [frame.body for frame in stream.frames if frame.event == "record"]
    triples = [(body["from_seq"], body["to_seq"], body["head_seq"]) for body in bodies]
    assert triples == [(0, 3, 10), (3, 6, 10), (6, 9, 10), (9, 10, 10)]


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({}, 256 * 1024),
        ({"max_batch_bytes": 100_000}, 100_000),
        ({"max_batch_bytes": 1}, 1),
        ({"max_batch_bytes": 0}, MIB),
        ({"max_batch_bytes": 2**40}, 8 * MIB),
    ],
)
def test_batches_are_bounded_by_bytes(
    api: Api, topic: str, watching: Watching, fields: dict[str, int], budget: int
) -> None:
    """API 7.2: a frame stops at its byte budget and always holds one record."""
    size = max(min(budget // 4, 900_000), 40_000)
    count = max(12, budget // size + 3)
    for number in range(count):
        api.append(topic, f"{number:05d}".ljust(size, "."))
    stream = watching.watch([topic], limit=1000, **fields)
    stream.until("caught-up", timeout=10)
    batches = [f.body["records"] for f in stream.frames if f.event == "record"]
    for batch in batches:
        assert (len(batch) - 1) * size < budget
    assert len(batches) > 1
    assert max(map(len, batches)) >= min(budget // (size + 100), count) or budget == 1
    assert [data[:5] for data in delivered(stream.frames, topic)] == [
        f"{number:05d}" for number in range(count)
    ]


NASTY = [
    r'"line\nfeed\r\nand\rreturn"',
    '"\u2028 and \u2029 and \x85 and \x0b"'.replace("\x0b", r"\u000b"),
    r'"\u2028\u2029\u0085"',
    '"data: not a field"',
    r'"\n\ndata: {}\n\nevent: error\nid: x\n\n"',
    '": comment"',
    '"\ufeffbyte order mark"',
    '{"data":"data:","id":"id:","event":"event:"}',
    "123456789012345678901234567890.10",
    "1e2",
    '"😀 é \\ud83d\\ude00"',
    '{"b":1,"a":{"z":[],"y":{}}}',
]


def test_no_payload_breaks_the_framing(api: Api, topic: str, watching: Watching) -> None:
    """API 0.3, 7.5: payloads that look like framing come back byte for byte."""
    body = '{"records":[' + ",".join(f'{{"data":{text}}}' for text in NASTY) + "]}"
    good(api.write_bytes(topic, body.encode()), 201)
    stream = watching.watch([topic])
    frame = stream.next()
    assert frame.data is not None and b"\n" not in frame.data
    for text in NASTY:
        assert b'"data":' + text.encode() in frame.data
    assert len(frame.body["records"]) == len(NASTY)
    assert [seen.event for seen in (stream.next(),)] == ["caught-up"]


def test_line_breaks_between_tokens_do_not_break_the_framing(
    api: Api, topic: str, watching: Watching
) -> None:
    """Architecture 9: raw line ends in a payload are insignificant, so they become spaces."""
    pretty = json.dumps({"a": [1, {"b": "c"}], "data": {"x": None}}, indent=2)
    body = '{"records":[{"data":' + pretty.replace("\n", "\r\n") + ',"meta":{\n"m"\r:"1"}}]}'
    good(api.write_bytes(topic, body.encode()), 201)
    record = watching.watch([topic]).records(topic, 1)[0]
    assert (record["data"], record["meta"]) == (json.loads(pretty), {"m": "1"})


@pytest.mark.parametrize("node", ["me", ["me", "also-me"]])
def test_own_records_are_not_delivered(
    api: Api, topic: str, watching: Watching, node: str | list[str]
) -> None:
    """API 4.5, 7.2: silent, and the cursor moves past them."""
    good(api.append(topic, "own", node="me"), 201)
    good(api.append(topic, "foreign", node="you"))
    stream = watching.watch([topic], node=node)
    assert stream.payloads(topic, 1) == ["foreign"]
    stream.until("caught-up")
    good(api.append(topic, "own again", node="me"))
    good(api.append(topic, "foreign again"))
    frame = stream.until("record")
    assert (delivered([frame], topic), frame.cursor) == (["foreign again"], {topic: 4})
    assert not [frame for frame in stream.frames if frame.event == "tombstone"]


def test_a_backlog_of_own_records_is_caught_up(api: Api, topic: str, watching: Watching) -> None:
    """API 7.5: drained to head counts, not what was delivered."""
    good(api.append(topic, *range(20), node="me"), 201)
    frame = watching.watch([topic], node="me", limit=3).next()
    assert (frame.event, frame.cursor) == ("caught-up", {topic: 20})


def test_echoes_are_delivered_where_a_topic_wants_them(
    api: Api, topic: str, watching: Watching
) -> None:
    """API 4.5: dedupe_node false turns the filter off for that topic."""
    good(api.put(topic, {"dedupe_node": False}), 201)
    good(api.append(topic, "own", node="me"))
    assert watching.watch([topic], node="me").payloads(topic, 1) == ["own"]


def test_deleted_records_are_skipped_silently(api: Api, topic: str, watching: Watching) -> None:
    """API 5: a purely deleted gap reads without a tombstone, from the first frame on."""
    good(api.append(topic, 1, 2, 3, 4), 201)
    good(api.request("POST", f"/v0/topics/{topic}/delete", json={"before_seq": 3}))
    frame = watching.watch([topic]).next()
    assert (frame.event, delivered([frame], topic)) == ("record", [3, 4])


def test_streams_do_not_disturb_each_other(api: Api, topic: str, watching: Watching) -> None:
    """API 7: every session is its own; one write reaches all streams, once."""
    good(api.put(topic), 201)
    streams = [watching.live([topic]) for _ in range(20)]
    good(api.append(topic, "a"))
    good(api.append(topic, "b"))
    assert [stream.payloads(topic, 2) for stream in streams] == [["a", "b"]] * 20
    assert all(stream.is_quiet(0.01) for stream in streams)


def test_a_wakeup_reaches_only_its_watchers(api: Api, topic: str, watching: Watching) -> None:
    """API 7: a write to a topic that is not watched sends nothing."""
    good(api.put(topic), 201)
    stream = watching.live([topic])
    good(api.append(f"{topic}-other", 1), 201)
    assert stream.is_quiet(QUIET_S)


def test_watching_counts_as_reading(api: Api, topic: str, watching: Watching) -> None:
    """DESIGN 3: attaching a stream sets the time of the last read."""
    good(api.append(topic, 1), 201)
    assert good(api.state(topic))["last_read_ts"] is None
    watching.live([topic])
    state: dict[str, Any] = good(api.state(topic))
    assert state["last_read_ts"] is not None

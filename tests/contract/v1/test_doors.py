"""One namespace, one log, every door (spec 2, items 17 and 19)."""

from __future__ import annotations

import json

from tests.harness.api import Api
from tests.harness.streams import JSON, TEXT, Streams, decode_offset, failed, offset_of


def _records(api: Api, name: str) -> list[dict[str, object]]:
    return list(api.diff(name).json()["records"])


def test_a_json_stream_is_read_as_a_topic(streams: Streams, api: Api, name: str) -> None:
    """Decision 2.19: what was appended to a stream comes out of diff, at the same positions."""
    tail = streams.json(name, b'[{"a":1},2]', b'"three"')
    records = _records(api, name)
    assert [record["data"] for record in records] == [{"a": 1}, 2, "three"]
    assert records[-1]["$seq"] == decode_offset(tail)[1] == 3


def test_a_topic_is_read_as_a_stream(streams: Streams, api: Api, name: str) -> None:
    """Decision 2.19: a log topic is a stream of JSON, payloads byte for byte."""
    assert api.put(name, {}).status_code in (200, 201)
    api.write(name, [{"data": 1}, {"data": [2], "tag": "t"}])
    answer = streams.get(name)
    assert (answer.status_code, answer.content) == (200, b"[1,[2]]")
    assert answer.headers["content-type"] == JSON
    assert decode_offset(offset_of(answer))[1] == 2
    assert streams.get(name, key="t").content == b"[[2]]"


def test_both_doors_write_one_log(streams: Streams, api: Api, name: str) -> None:
    """Entries of both doors have one order, whichever door reads them."""
    streams.json(name, b"1")
    assert api.write(name, [{"data": 2}]).status_code == 200
    assert streams.post(name, b"3", content_type=JSON).status_code == 204
    assert streams.read(name) == b"[1,2,3]"
    assert [record["data"] for record in _records(api, name)] == [1, 2, 3]


def test_a_closed_stream_is_closed_at_every_door(streams: Streams, api: Api, name: str) -> None:
    """Spec 1.6: closed is for good."""
    streams.json(name, b"1")
    streams.post(name, stream_closed="true")
    answer = api.write(name, [{"data": 2}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "stream_closed")
    assert streams.read(name) == b"[1]"


def test_bytes_are_not_for_topics(streams: Streams, api: Api, name: str) -> None:
    """A record is JSON; a stream of bytes has none to give."""
    streams.create(name, b"\xff\x00")
    answer = api.write(name, [{"data": 2}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "content_type_mismatch")
    for answer in (api.diff(name), api.state(name)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "topic_not_found")
    assert api.watch({name: {}}).status_code == 404


def test_a_name_has_one_owner(streams: Streams, api: Api, name: str) -> None:
    """Decision 2.19: a stream's name cannot also be a topic's, nor the other way round."""
    streams.json(name)
    for answer in (api.put(name, {}), api.delete(name)):
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "topic_exists_incompatible"
    other = f"{name}-topic"
    api.put(other, {})
    failed(streams.put(other, content_type=JSON), 409, "topic_exists_incompatible")
    failed(streams.delete(other), 409, "topic_exists_incompatible")
    assert api.state(other).status_code == 200


def test_queues_are_not_streams(streams: Streams, api: Api, name: str) -> None:
    """A queue's records are leased, not read along."""
    api.put(name, {"type": "queue"})
    failed(streams.get(name), 409, "topic_exists_incompatible")
    failed(streams.post(name, b"1", content_type=JSON), 409, "topic_exists_incompatible")


def test_listings_keep_to_their_door(streams: Streams, api: Api, name: str) -> None:
    """Topics list topics, streams list streams."""
    streams.json(f"{name}-s")
    api.put(f"{name}-t")
    topics = api.list(prefix=name).json()["topics"]
    assert [topic["topic"] for topic in topics] == [f"{name}-t"]
    listed = streams.request("GET", "/v1/streams", params={"prefix": name}).json()
    assert [stream["name"] for stream in listed] == [f"{name}-s"]


def test_a_router_joins_the_doors(streams: Streams, api: Api, name: str) -> None:
    """A topic's records are forwarded into a stream of JSON, and a stream's into a topic."""
    source, middle, end = f"{name}-a", f"{name}-b", f"{name}-c"
    api.put(source, {})
    streams.json(middle)
    api.put(end, {})
    for router, (first, second) in {"in": (source, middle), "out": (middle, end)}.items():
        put = api.put_router(f"{name}-{router}", first, second)
        assert put.status_code in (200, 201), put.text
    api.write(source, [{"data": {"n": 1}}])
    assert json.loads(streams.get(middle).content) == [{"n": 1}]
    assert [record["data"] for record in _records(api, end)] == [{"n": 1}]


def test_the_mounts_reach_the_same_streams(streams: Streams, free: Streams, name: str) -> None:
    """Spec 2: two paths, one stream, two spellings of one position."""
    tail = streams.create(f"{name}/x", b"ab")
    answer = free.get(f"{name}/x", offset=tail)
    assert (answer.status_code, answer.content) == (200, b"")
    padded = offset_of(answer)
    assert decode_offset(padded) == decode_offset(tail) and len(padded) == 33
    assert streams.get(f"{name}%2Fx", offset="-1").content == b"ab"
    assert offset_of(streams.get(f"{name}/x", offset=padded)) == tail
    assert free.post(f"{name}/x", b"c", content_type=TEXT).status_code == 204
    assert streams.read(f"{name}/x") == b"abc"

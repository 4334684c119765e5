"""The documented hard limits of a write (API 2), each at its edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api

AsKey = Callable[[str], Api]

MIB = 1024 * 1024


def text_payload(size: int) -> str:
    """A string whose JSON form has exactly `size` bytes."""
    return "x" * (size - 2)


def meta_of(size: int) -> dict[str, str]:
    """An object whose compact JSON form has exactly `size` bytes."""
    return {"k": "x" * (size - len('{"k":""}'))}


def test_a_write_takes_ten_thousand_records(api: Api, topic: str) -> None:
    """API 2: MAX_BATCH_RECORDS is 10000; the edge is accepted, one more is refused."""
    body = good(api.append(topic, *range(10_000)), 201)
    assert (body["count"], body["last_seq"], len(body["seqs"])) == (10_000, 10_000, 10_000)
    refused(api.append(topic, *range(10_001)), 400, "batch_too_large")
    assert good(api.state(topic))["head_seq"] == 10_000


def test_a_record_takes_one_mebibyte(api: Api, topic: str) -> None:
    """API 2: MAX_RECORD_BYTES is 1 MiB of data plus meta."""
    good(api.append(topic, text_payload(MIB)), 201)
    refused(api.append(topic, text_payload(MIB + 1)), 400, "record_too_large")
    assert good(api.state(topic))["head_seq"] == 1
    assert len(good(api.diff(topic))["records"][0]["data"]) == MIB - 2


def test_meta_counts_toward_the_record_limit(api: Api, topic: str) -> None:
    """API 2: the limit is on data plus meta."""
    data = text_payload(MIB - 100)
    body = b'{"records":[{"data":"%s","meta":{"k":"%s"}}]}'
    fits = body % (data.encode(), b"m" * (100 - 8))
    over = body % (data.encode(), b"m" * (100 - 7))
    good(api.write_bytes(topic, fits), 201)
    refused(api.write_bytes(topic, over), 400, "record_too_large")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_large_record_refuses_the_whole_batch(api: Api, topic: str, position: int) -> None:
    """API 2: no partial append, wherever the large record stands."""
    batch: list[Any] = ["small", "small", "small"]
    batch[position] = text_payload(MIB + 1)
    refused(api.append(topic, *batch), 400, "record_too_large")
    refused(api.state(topic), 404, "topic_not_found")


def write_meta(api: Api, topic: str, size: int) -> Any:
    meta = b'{"k":"' + b"x" * (size - 8) + b'"}'
    assert len(meta) == size
    return api.write_bytes(topic, b'{"records":[{"data":1,"meta":' + meta + b"}]}")


def test_meta_takes_sixteen_kibibytes(api: Api, topic: str) -> None:
    """API 2: MAX_META_BYTES is 16 KiB."""
    good(write_meta(api, topic, 16 * 1024), 201)
    refused(write_meta(api, topic, 16 * 1024 + 1), 400, "invalid_request")
    assert good(api.state(topic))["head_seq"] == 1


def test_meta_takes_sixty_four_keys(api: Api, topic: str) -> None:
    """API 2: at most 64 keys."""
    keys = {f"k{number}": "v" for number in range(64)}
    good(api.write(topic, [{"data": 1, "meta": keys}]), 201)
    refused(
        api.write(topic, [{"data": 1, "meta": {**keys, "one": "more"}}]), 400, "invalid_request"
    )
    assert good(api.diff(topic))["records"][0]["meta"] == keys


def test_nested_meta_keys_do_not_count(api: Api, topic: str) -> None:
    """API 2: the limit is on the keys of the meta object itself."""
    meta = {"inner": {f"k{number}": [number, {"a": 1}] for number in range(100)}}
    good(api.write(topic, [{"data": 1, "meta": meta}]), 201)
    assert good(api.diff(topic))["records"][0]["meta"] == meta


@pytest.mark.parametrize(
    "field, fits, over",
    [
        ("tag", "t" * 256, "t" * 257),
        ("tag", "é" * 128, "é" * 128 + "x"),
        ("tag", "\U0001f600" * 64, "\U0001f600" * 65),
        ("tag", '"' * 256, '"' * 257),
        ("node", "n" * 128, "n" * 129),
        ("node", "é" * 64, "é" * 64 + "x"),
        ("node", "\n" * 128, "\n" * 129),
    ],
)
def test_tag_and_node_are_limited_in_bytes(
    api: Api, topic: str, field: str, fits: str, over: str
) -> None:
    """API 2: 256 bytes of tag and 128 of node, in UTF-8, escapes not counted."""
    good(api.write(topic, [{"data": 1, field: fits}]), 201)
    refused(api.write(topic, [{"data": 1, field: over}]), 400, "invalid_request")
    record = good(api.diff(topic, include_tags=True))["records"][0]
    assert record[f"${field}"] == fits


def test_the_batch_node_has_the_same_limit(api: Api, topic: str) -> None:
    """API 2: node at batch level is at most MAX_NODE_BYTES too."""
    good(api.append(topic, 1, node="n" * 128), 201)
    refused(api.append(topic, 1, node="n" * 129), 400, "invalid_request")


@pytest.mark.parametrize("letter", ["k", "é", "\U0001f600"])
def test_an_idempotency_key_takes_256_characters(api: Api, topic: str, letter: str) -> None:
    """API 2: idempotency_key is at most 256 characters."""
    good(api.append(topic, 1, idempotency_key=letter * 256), 201)
    assert good(api.append(topic, 1, idempotency_key=letter * 256))["deduped"] is True
    refused(api.append(topic, 1, idempotency_key=letter * 257), 400, "invalid_request")


def test_an_idempotency_header_has_the_same_limit(api: Api, topic: str) -> None:
    """API 0.8: the key may be sent as a header."""
    body = b'{"records":[{"data":1}]}'
    good(api.write_bytes(topic, body, **{"Idempotency-Key": "k" * 256}), 201)
    answer = api.write_bytes(topic, body, **{"Idempotency-Key": "k" * 257})
    refused(answer, 400, "invalid_request")


def test_the_batch_limit_is_configurable(as_key: AsKey, topic: str) -> None:
    """API 2: TOPICS_MAX_BATCH_RECORDS."""
    api = as_key("full")
    good(api.append(topic, *range(10)), 201)
    refused(api.append(topic, *range(11)), 400, "batch_too_large")


def test_the_record_limit_is_configurable(as_key: AsKey, topic: str) -> None:
    """API 2: TOPICS_MAX_RECORD_BYTES."""
    api = as_key("full")
    good(api.append(topic, text_payload(2000)), 201)
    refused(api.append(topic, text_payload(2001)), 400, "record_too_large")


def test_the_meta_limit_is_configurable(as_key: AsKey, topic: str) -> None:
    """API 2: TOPICS_MAX_META_BYTES."""
    api = as_key("full")
    good(write_meta(api, topic, 300), 201)
    refused(write_meta(api, topic, 301), 400, "invalid_request")


def test_the_tag_and_node_limits_are_configurable(as_key: AsKey, topic: str) -> None:
    """API 2: TOPICS_MAX_TAG_BYTES and TOPICS_MAX_NODE_BYTES."""
    api = as_key("full")
    good(api.write(topic, [{"data": 1, "tag": "t" * 20, "node": "n" * 10}]), 201)
    refused(api.write(topic, [{"data": 1, "tag": "t" * 21}]), 400, "invalid_request")
    refused(api.write(topic, [{"data": 1, "node": "n" * 11}]), 400, "invalid_request")


def test_the_read_limit_is_configurable(as_key: AsKey, topic: str) -> None:
    """API 3: TOPICS_MAX_LIMIT clamps, it does not refuse."""
    api = as_key("full")
    good(api.append(topic, *range(8)), 201)
    assert len(good(api.diff(topic, limit=1000))["records"]) == 5


def test_the_body_limit_is_configurable(as_key: AsKey, topic: str) -> None:
    """API 2: TOPICS_MAX_BODY_BYTES refuses before parsing; the edge is parsed."""
    api = as_key("full")
    body = b'{"records":[{"data":1}]}'
    padded = body + b" " * (100_000 - len(body))
    good(api.write_bytes(topic, padded), 201)
    refused(api.write_bytes(topic, padded + b" "), 413, "payload_too_large")

"""Appending records: limits, payloads kept verbatim, and the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.web.fakes import World, list_rests
from topicsd.model import errors
from topicsd.model.commands import Append, Appended
from topicsd.model.record import ROW
from topicsd.model.topic import TopicConfig

ONE = b'{"records":[{"data":1}]}'


def append(world: World, body: bytes, query: str = "", **headers: str) -> Any:
    table = {name.replace("_", "-"): value for name, value in headers.items()}
    return world.ask("POST", f"/v0/topics/a{query}", body, table)


def sent(world: World) -> Append:
    command = world.port.commands[-1]
    assert isinstance(command, Append)
    return command


def rests(world: World) -> bytes:
    return b"".join(list_rests(sent(world)))


def test_the_answer_has_every_field(world: World) -> None:
    """API 2: 201 when this write made the topic, 200 afterwards."""
    reply = append(world, b'{"records":[{"data":1},{"data":2}]}')
    answer = json.loads(reply.body)
    performance = answer.pop("performance")
    expected = {
        "topic": "a",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert (201, expected) == (reply.status, answer)
    expected = {"server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms"}
    assert expected == set(performance)
    assert append(world, ONE).status == 200


def test_seqs_can_be_left_out(world: World) -> None:
    """API 2: ?return_seqs=false."""
    answer = json.loads(append(world, ONE, "?return_seqs=false").body)
    assert "seqs" not in answer
    assert (answer["first_seq"], answer["last_seq"]) == (1, 1)


def test_a_dedupe_counts_this_request_and_shows_the_old_seqs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spec 2.5."""
    monkeypatch.setattr(
        world.port, "_Append", lambda command: Appended(7, 9, 20, False, True, 0), raising=False
    )
    answer = json.loads(append(world, ONE).body)
    assert (
        answer["seqs"],
        answer["count"],
        answer["deduped"],
        answer["head_seq"],
    ) == ([7, 8, 9], 1, True, 20)


@pytest.mark.parametrize(
    "payload",
    [b"null", b"0", b"-0.0", b"1e2", b"1.10", b"1e999", b"123456789012345678901234567890.10",
     b'""', b'"\\u0041\\/"', b'"\\ud800"', b'"\\ud83d\\ude00"', '"é😀"'.encode(), b"[]",
     b'{"b":1,"a":2,"b":3}', b'{ "a" : [ 1 , 2 ] }', b'{"a":"\\\\ud800"}', b'"\x7f"', b"true",
     b'"100%"', b'"%d%b%%"'],
)  # fmt: skip
def test_payload_bytes_are_kept_verbatim(world: World, payload: bytes) -> None:
    """API 0.3: never parsed, never rewritten."""
    assert append(world, b'{"records":[{"data": %b }]}' % payload).status == 201
    assert b'"data":%b},' % payload == rests(world)
    assert len(payload) == sent(world).payload_bytes


def test_line_breaks_between_tokens_become_spaces(world: World) -> None:
    """Framing of streams: one record is one line."""
    append(world, b'{"records":[\n{"data":{"a":\r\n1},"meta":{\n}}]}')
    assert rests(world) == b'"data":{"a":  1},"meta":{ }},'


@pytest.mark.parametrize("count", [1, 2, 11, 12, 100])
@pytest.mark.parametrize("extra", [b"", b',"tag":"t%"'], ids=["plain", "tagged"])
def test_batches_of_every_size_are_rendered_alike(world: World, count: int, extra: bytes) -> None:
    """Large plain batches take another way to the same bytes; one odd record takes it away."""
    payloads = [b'"%%%d"' % number for number in range(count)]
    records = [b'{"data":%b}' % payload for payload in payloads]
    records[-1] = b'{"data":%b%b}' % (payloads[-1], extra)
    append(world, b'{"records":[' + b",".join(records) + b"]}")
    expected = [b'"data":%b},' % payload for payload in payloads]
    if extra:
        expected[-1] = b'"$tag":"t%",' + expected[-1]
    assert list_rests(sent(world)) == expected
    assert sent(world).payload_bytes == sum(map(len, payloads))


def test_limits_hold_in_large_plain_batches() -> None:
    """The fast way refuses what the slow way refuses, naming the same record."""
    world = World(max_record_bytes=10)
    for bad, code in ((b'{"data":"123456789"}', "record_too_large"), (b"{}", "invalid_request")):
        body = b'{"records":[' + b",".join([b'{"data":1}'] * 20 + [bad]) + b"]}"
        error = json.loads(append(world, body).body)["error"]
        assert error["code"] == code
        assert "records[20]" in error["message"]
    assert world.port.commands == []


def test_tag_node_and_meta_are_rendered(world: World) -> None:
    """A record's node wins over the batch's; rows carry the lengths."""
    append(
        world,
        b'{"node":"batch","records":[{"data":1,"tag":"t","node":"own","meta":{"x":1}},{"data":2}]}',
    )
    command = sent(world)
    assert (
        rests(world)
        == b'"$tag":"t","$node":"own","data":1,"meta":{"x":1}},"$node":"batch","data":2},'
    )
    assert (2, 2 * ROW.size, 9) == (command.count, len(command.rows), command.payload_bytes)


def test_lone_surrogates_stay_in_payloads_of_a_batch(world: World) -> None:
    """Every payload is cut from its own place, meta too."""
    first = rb'{"data":"\ud800","tag":"\u00e9"}'
    second = rb'{"data":[1,"\udfff"],"meta":{"k":"\udc00"}}'
    body = b'{"records":[%b,%b]}' % (first, second)
    assert append(world, body).status == 201
    expected = '"$tag":"é","data":"\\ud800"},"data":[1,"\\udfff"],"meta":{"k":"\\udc00"}},'
    assert expected.encode() == rests(world)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (rb'{"records":[{"data":1,"tag":"\ud800"}]}', "records[0].tag"),
        (rb'{"records":[{"data":1},{"data":1,"node":"x\udc00"}]}', "records[1].node"),
        (rb'{"node":"\ud800","records":[{"data":1}]}', "node"),
        (rb'{"idempotency_key":"\ud800","records":[{"data":1}]}', "idempotency_key"),
        (b'{"records":[{"data":1,"tag":5}]}', "records[0].tag"),
        (b'{"records":[{"data":1,"tag":null}]}', "records[0].tag"),
        (b'{"records":[{"data":1},{"data":1,"node":[]}]}', "records[1].node"),
        (b'{"records":[{"data":1,"meta":[]}]}', "records[0].meta"),
        (b'{"records":[{"data":1,"meta":null}]}', "records[0].meta"),
        (b'{"records":[{"data":1,"meta":"{}"}]}', "records[0].meta"),
        (b'{"records":[{"tag":"x"}]}', "records[0].data"),
        (b'{"records":[{"data":1},{}]}', "records[1].data"),
        (b'{"records":[1]}', "records[0]"),
        (b'{"records":[]}', "records"),
        (b'{"records":{}}', "records"),
        (b'{"records":null}', "records"),
        (b"{}", "records"),
        (b'{"records":[{"data":1}],"create":1}', "create"),
        (b'{"records":[{"data":1}],"node":1}', "node"),
        (b'{"records":[{"data":1}],"idempotency_key":1}', "idempotency_key"),
        (b'{"records":[{"data":1}],"idempotency_key":""}', "idempotency_key"),
        (b'{"records":[{"data":1}],"disable_backpressure":"no"}', "disable_backpressure"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":-1}}', "config.ttl_ms"),
        (b'{"records":[{"data":1}],"config":{"ttl_ms":1e400}}', "config.ttl_ms"),
        (b'{"records":[{"data":1}],"config":{"dead_letter":"_"}}', "config.dead_letter"),
        (b'{"records":[{"data":1}],"config":null}', "config"),
        (b'{"records":[{"data":1}],"config":[]}', "config"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_sent(world: World, body: bytes, field: str) -> None:
    """400 invalid_request; a bad record anywhere stops the whole batch."""
    reply = append(world, body)
    error = json.loads(reply.body)["error"]
    assert (400, "invalid_request", field) == (
        reply.status,
        error["code"],
        error["detail"]["field"],
    )
    assert world.port.commands == []


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", ONE + b"x", b'{"records":[{"data":NaN}]}',
     b'{"records":[{"data":"\x01"}]}', b'{"records":[{"data":"\xff"}]}',
     b'{"records":[{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
     b'{"records":[{"data":"\\ud800"' + b"[" * 100_000, b'{"records":[{"data":1}],"config":null}',
     b'{"records":[{"data":1}],"config":[]}'],
)  # fmt: skip
def test_malformed_bodies_are_400(world: World, body: bytes) -> None:
    """Never 500 (API 0.6)."""
    assert append(world, body).status == 400
    assert world.port.commands == []


def test_unknown_fields_are_ignored(world: World) -> None:
    """Spec 2.9: at every level."""
    body = b'{"x":1e999,"records":[{"data":1,"y":[],"$seq":9}],"config":{"z":1}}'
    assert append(world, body).status == 201
    assert rests(world) == b'"data":1},'


def test_the_batch_limit_at_its_edge() -> None:
    """batch_too_large only above the limit."""
    world = World(max_batch_records=3)
    record = b'{"data":1}'
    for count, status in ((3, 201), (4, 400)):
        reply = append(world, b'{"records":[' + b",".join([record] * count) + b"]}")
        assert status == reply.status
    assert json.loads(reply.body)["error"]["detail"] == {"count": 4, "max": 3}
    assert json.loads(reply.body)["error"]["code"] == "batch_too_large"


def test_the_record_limit_counts_data_and_meta() -> None:
    """record_too_large only above the limit (API 2)."""
    world = World(max_record_bytes=20)
    for padding, status in ((11, 201), (12, 400)):
        body = b'{"records":[{"data":"%b","meta":{"a":1}}]}' % (b"x" * padding)
        assert status == append(world, body).status
    body = b'{"records":[{"data":1},{"data":"%b"}]}' % (b"x" * 19)
    error = json.loads(append(world, body).body)["error"]
    assert (error["code"], error["detail"]["index"]) == ("record_too_large", 1)


@pytest.mark.parametrize(
    ("limit", "field", "fits", "over"),
    [
        ("max_tag_bytes", "tag", '"aé"', '"aéb"'),
        ("max_node_bytes", "node", '"abc"', '"abé"'),
        ("max_meta_bytes", "meta", "{ }", "{  }"),
    ],
)
def test_text_limits_count_bytes(limit: str, field: str, fits: str, over: str) -> None:
    """API 2: bytes, not characters; over is invalid_request."""
    world = World(**{limit: 3})
    for text, status in ((fits, 201), (over, 400)):
        body = f'{{"records":[{{"data":1,"{field}":{text}}}]}}'.encode()
        reply = append(world, body)
        assert status == reply.status
    assert json.loads(reply.body)["error"]["code"] == "invalid_request"


def test_the_batch_node_has_the_same_limit() -> None:
    """A default is checked like any node."""
    world = World(max_node_bytes=3)
    assert append(world, b'{"node":"abcd","records":[{"data":1,"node":"a"}]}').status == 400


def test_meta_has_at_most_64_keys(world: World) -> None:
    """Colons inside values are not keys."""
    for count, status in ((64, 201), (65, 400)):
        meta = json.dumps({f"k{number}": "::" for number in range(count)})
        assert status == append(world, b'{"records":[{"data":1,"meta":%b}]}' % meta.encode()).status


@pytest.mark.parametrize(("length", "status"), [(256, 201), (257, 400)])
def test_an_idempotency_key_has_at_most_256_characters(
    world: World, length: int, status: int
) -> None:
    """API 2: characters, not bytes; by field and by header."""
    key = "é" * length
    body = json.dumps({"records": [{"data": 1}], "idempotency_key": key}, ensure_ascii=False)
    assert status == append(world, body.encode()).status
    assert status in {append(World(), ONE, idempotency_key="k" * length).status}


def test_the_body_beats_the_header(world: World) -> None:
    """API 0.8."""
    append(world, ONE, idempotency_key=" header ")
    assert sent(world).idempotency_key == "header"
    body = b'{"records":[{"data":1}],"idempotency_key":"body"}'
    append(world, body, idempotency_key="header")
    assert sent(world).idempotency_key == "body"
    append(world, ONE)
    assert sent(world).idempotency_key is None


def test_create_and_config_are_passed_on(world: World) -> None:
    """API 2: absent is not false."""
    append(world, ONE)
    assert (sent(world).create, sent(world).config) == (None, None)
    append(
        world,
        b'{"records":[{"data":1}],"create":true,"config":{"cap_records":5},'
        b'"disable_backpressure":true}',
    )
    command = sent(world)
    assert (True, TopicConfig(cap_records=5), True) == (
        command.create,
        command.config,
        command.disable_backpressure,
    )


def test_inline_config_needs_the_admin_scope() -> None:
    """Spec 2.8: whether the topic exists or not."""
    world = World(keys="w:write,wa:write+admin")
    body = b'{"records":[{"data":1}],"config":{}}'
    for token, status in (("w", 403), ("wa", 201)):
        assert status == append(world, body, authorization=f"Bearer {token}").status


def test_refusals_of_the_engine_come_through(world: World) -> None:
    """The code decides the status, also across the bridge."""
    world.port.failure = errors.topic_full("a")
    assert append(world, ONE).status == 422

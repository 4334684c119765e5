"""Payload bytes are stored and returned verbatim (API 0.3, spec/topics.md 3)."""

from __future__ import annotations

import json

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import JSON, Api

VERBATIM = [
    b"null",
    b"true",
    b"0",
    b"-0",
    b"-0.0",
    b"1e2",
    b"1E+2",
    b"1.10",
    b"1.0",
    b"123456789012345678901234567890",
    b"123456789012345678901234567890.10",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"1e400",
    b"1e-400",
    b"0.1000000000000000055511151231257827",
    b'""',
    b'"plain"',
    b'"\\u00e9 \\u0041 \\/ \\b\\f\\n\\r\\t"',
    b'"\\ud83d\\ude00"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\\u2028\\u2029"',
    '"é ü 漢字 \u2028 \U0001f600 \x7f"'.encode(),
    b'{"z":1,"a":2,"m":{"y":1,"b":2}}',
    b'{"same":1,"same":2,"same":1}',
    b'{"":"","$seq":7,"$ts":"mine","data":{"data":1},"meta":null}',
    b'{ "spaced" :  [ 1 ,\t2 ] }',
    b"[]",
    b"{}",
    b"[[[[[[[[]]]]]]]]",
    b'"},{\\"$seq\\":2,\\"data\\":"',
    b'"' + b"\\\\" * 500 + b'"',
    b"[" * 64 + b"]" * 64,
]


def write_body(payload: bytes, **extra: bytes) -> bytes:
    fields = b"".join(b',"%s":%s' % (name.encode(), value) for name, value in extra.items())
    return b'{"records":[{"data":' + payload + fields + b"}]}"


def read_bytes(api: Api, topic: str) -> bytes:
    answer = api.diff(topic)
    assert answer.status_code == 200, answer.content
    return answer.content


@pytest.mark.parametrize("payload", VERBATIM, ids=lambda payload: repr(payload[:40]))
def test_data_comes_back_byte_for_byte(api: Api, topic: str, payload: bytes) -> None:
    """API 0.3: data is stored and returned verbatim, never parsed and written anew."""
    good(api.write_bytes(topic, write_body(payload)), 201)
    assert b'"data":' + payload + b"}" in read_bytes(api, topic)
    assert good(api.state(topic))["bytes"] == len(payload)


@pytest.mark.parametrize(
    "meta",
    [
        b"{}",
        b'{"trace":"abc123"}',
        b'{"z":1.10,"a":1e2,"a":2}',
        b'{"n":123456789012345678901234567890,"deep":{"list":[null,true]}}',
        b'{ "k" : "\\u00e9" }',
    ],
    ids=repr,
)
def test_meta_comes_back_byte_for_byte(api: Api, topic: str, meta: bytes) -> None:
    """API 2: meta is returned verbatim."""
    good(api.write_bytes(topic, write_body(b"1", meta=meta)), 201)
    assert b'"meta":' + meta in read_bytes(api, topic)


def test_a_batch_of_odd_payloads_stays_in_order(api: Api, topic: str) -> None:
    """API 2: many shapes in one write do not disturb each other."""
    records = b",".join(b'{"data":%s}' % payload for payload in VERBATIM)
    good(api.write_bytes(topic, b'{"records":[' + records + b"]}"), 201)
    content = read_bytes(api, topic)
    position = 0
    for payload in VERBATIM:
        position = content.index(b'"data":' + payload + b"}", position) + 1
    assert len(json.loads(content)["records"]) == len(VERBATIM)


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
def test_a_line_break_between_tokens_becomes_a_space(api: Api, topic: str, newline: bytes) -> None:
    """Architecture 9: a raw line break is insignificant whitespace and would break framing."""
    lines = newline.join([b"{", b'"a":', b"[1,", b"2]", b"}"])
    good(api.write_bytes(topic, write_body(lines, meta=lines)), 201)
    content = read_bytes(api, topic)
    assert b"\n" not in content and b"\r" not in content
    spaces = b" " * len(newline)
    assert spaces.join([b"{", b'"a":', b"[1,", b"2]", b"}"]) in content


def test_an_escaped_line_break_is_payload(api: Api, topic: str) -> None:
    """API 0.3: inside a string a line break is escaped, and stays so."""
    good(api.append(topic, "line one\nline two\r\n"), 201)
    assert payloads(good(api.diff(topic))) == ["line one\nline two\r\n"]


def test_whitespace_around_the_envelope_is_not_payload(api: Api, topic: str) -> None:
    """API 2: a pretty-printed request writes the same record."""
    body = b' \r\n{ "records" : [ { "data" : 5 } ] }\n'
    good(api.write_bytes(topic, body), 201)
    assert payloads(good(api.diff(topic))) == [5]
    assert good(api.state(topic))["bytes"] == 1


def test_a_megabyte_comes_back_whole(api: Api, topic: str) -> None:
    """API 2: a record of the largest size is returned verbatim."""
    payload = b'"' + bytes(range(0x20, 0x7F)).replace(b'"', b"").replace(b"\\", b"") * 11_200 + b'"'
    assert len(payload) < 1024 * 1024
    good(api.write_bytes(topic, write_body(payload)), 201)
    assert payload in read_bytes(api, topic)


@pytest.mark.parametrize(
    "payload",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"0x10",
        b"'single'",
        b"undefined",
        b"[1,]",
        b'{"a":1,}',
        b'{"a"}',
        b"{a:1}",
        b'"tab\there"',
        b'"line\nbreak"',
        b'"\\x41"',
        b'"\\u12"',
        b'"open',
        b"tru",
        b"1 2",
        b"// comment\n1",
        b"",
    ],
    ids=repr,
)
def test_what_is_not_json_is_refused(api: Api, topic: str, payload: bytes) -> None:
    """API 0.6: bad JSON is 400 invalid_request and writes nothing."""
    refused(api.write_bytes(topic, write_body(payload)), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


@pytest.mark.parametrize(
    "text",
    [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x28\xa1"],
    ids=repr,
)
@pytest.mark.parametrize("place", ["data", "tag", "meta", "unknown"])
def test_a_body_that_is_not_utf8_is_refused(api: Api, topic: str, text: bytes, place: str) -> None:
    """API 0.3: bodies are UTF-8, strictly, wherever the bad bytes stand."""
    value = b'"' + text + b'"'
    bodies = {
        "data": write_body(value),
        "tag": write_body(b"1", tag=value),
        "meta": write_body(b"1", meta=b'{"k":' + value + b"}"),
        "unknown": write_body(b"1", unknown=value),
    }
    refused(api.write_bytes(topic, bodies[place]), 400, "invalid_request")
    refused(api.state(topic), 404, "topic_not_found")


@pytest.mark.parametrize("field", ["tag", "node"])
def test_half_a_surrogate_is_not_a_tag(api: Api, topic: str, field: str) -> None:
    """API 2: a tag or node is a string, and a lone surrogate has no UTF-8 form."""
    body = write_body(b"1", **{field: b'"\\ud800"'})
    refused(api.write_bytes(topic, body), 400, "invalid_request")


CALLS = {"put": ("PUT", ""), "diff": ("POST", "/diff"), "delete": ("POST", "/delete")}


@pytest.mark.parametrize("call", CALLS)
def test_half_a_surrogate_in_an_unknown_field_is_ignored(api: Api, topic: str, call: str) -> None:
    """Decision 2.9: unknown fields are ignored, whatever JSON they hold."""
    good(api.append(topic, 1), 201)
    method, action = CALLS[call]
    body = b'{"unknown":"\\ud800","before_seq":1}'
    answer = api.request(method, f"/v0/topics/{topic}{action}", content=body, headers=JSON)
    good(answer)


@pytest.mark.parametrize(
    ("call", "field", "value"),
    [
        ("put", "dead_letter", b'"\\ud800"'),
        ("diff", "node", b'"\\ud800"'),
        ("diff", "node", b'["a","\\udc00"]'),
        ("diff", "match", b'["tag","Eq","\\ud800"]'),
        ("delete", "match", b'"\\ud800"'),
        ("delete", "match", b'["tag","Glob","\\ud800*"]'),
    ],
)
def test_half_a_surrogate_is_no_text_to_ask_for(
    api: Api, topic: str, call: str, field: str, value: bytes
) -> None:
    """API 3, 5: names, nodes and tags are text; the refusal names the field."""
    good(api.append(topic, 1), 201)
    method, action = CALLS[call]
    body = b'{"%b":%b}' % (field.encode(), value)
    answer = api.request(method, f"/v0/topics/{topic}{action}", content=body, headers=JSON)
    assert refused(answer, 400, "invalid_request")["detail"]["field"] == field


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_a_hundred_thousand_deep_is_refused(
    api: Api, topic: str, opening: bytes, closing: bytes
) -> None:
    """API 12: hostile nesting is an ordinary 400."""
    deep = opening * 100_000 + b"1" + closing * 100_000
    refused(api.write_bytes(topic, write_body(deep)), 400, "invalid_request")
    refused(api.write_bytes(topic, opening * 100_000), 400, "invalid_request")
    good(api.append(topic, "alive"), 201)

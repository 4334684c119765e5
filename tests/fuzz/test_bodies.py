"""Hostile bodies and headers on every route that takes a body: refused, never a 5xx or a hang."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.harness.raw import RawConnection, RawResponse, build_request
from tests.harness.server import Server
from topicsd.web.route import Route
from topicsd.web.routes import ROUTES

DEADLINE_S = 2.0
EXAMPLES = 500
ROUTES_WITH_BODY = [route for route in ROUTES if route.method in ("POST", "PUT")]
FIELDS = sorted(
    {
        field
        for route in ROUTES_WITH_BODY
        if route.operation.request is not None
        for field in route.operation.request.__struct_fields__  # type: ignore[attr-defined]
    }
    | {"data", "tag", "node", "meta", "topic"}
)

# Numbers and texts that break parsers, as JSON text.
NUMBERS = ["-0", "1e400", "-1e-400", "9" * 1000, "-" + "9" * 25, str(2**64), str(2**63), "0.1e1"]
TEXTS = ['"\\ud800"', '"\\u0000"', '"\\uFFFF"', '"\\ud83d\\ude00"', '"*"', '"' + "x" * 5000 + '"']
BROKEN = ["", "NaN", "Infinity", "01", "+1", "'a'", "{", "[1,]", '{"a"}', "nul", "\x00", "\ufeff{}"]

scalars = st.one_of(
    st.none() | st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
).map(lambda value: json.dumps(value, ensure_ascii=False))
leaves = st.one_of(scalars, st.sampled_from(NUMBERS), st.sampled_from(TEXTS))
keys = st.sampled_from(FIELDS) | st.text(max_size=5)


def _object(members: list[tuple[str, str]]) -> str:
    """An object, whose keys may repeat."""
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in members) + "}"


def _nested(depth: int, opening: str) -> str:
    return opening * depth + "1" + ("]" if opening == "[" else "}") * depth


values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(keys, inner), max_size=5).map(_object),
    ),
    max_leaves=12,
)
deep = st.builds(
    _nested, st.sampled_from([10, 500, 1100, 5000, 30_000]), st.sampled_from(["[", '{"a":'])
)
# A long wait is not a hang, so the one field that asks for it stays small or wrong.
waits = st.sampled_from(["0", "5", "-1", '"5"', "1.5", "null", "[]"])


@st.composite
def bodies_near(draw: st.DrawFn, example: dict[str, Any]) -> bytes:
    """The documented example with some of its fields replaced, repeated or added."""
    members = [(name, json.dumps(value)) for name, value in example.items()]
    for name in draw(st.lists(keys, max_size=4)):
        value = draw(waits if name == "wait_ms" else values | deep)
        place = draw(st.integers(0, len(members)))
        members[place : place + draw(st.integers(0, 1))] = [(name, value)]
    return _object(members).encode("utf-8", "surrogatepass")


def bodies(example: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Near misses, other JSON, broken JSON, cut-off JSON, and bytes that are no text at all."""
    near = bodies_near(example)
    plain = st.one_of(values, deep, st.sampled_from(BROKEN))
    cut = st.tuples(near, st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]])
    spoilt = st.tuples(near, st.binary(min_size=1, max_size=4), st.integers(0, 100)).map(
        lambda parts: parts[0][: parts[2]] + parts[1] + parts[0][parts[2] :]
    )
    other = plain.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return st.one_of(
        near, near, other, cut, spoilt, st.binary(max_size=200), near.map(gzip.compress)
    )


_token = st.text("abcdefghijklmnopqrstuvwxyz-_.!", min_size=1, max_size=12)
_latin = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, blacklist_characters="\x7f"))
# What frames the request stays right: a server that waits for promised bytes is not hanging.
_FRAMING = {"content-length", "transfer-encoding", "connection", "expect", "upgrade", "host"}
headers = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {},
        optional={
            "Content-Type": st.sampled_from(
                ["application/json", "APPLICATION/JSON; charset=x", "text/plain", "", "/", ";"]
            ),
            "Content-Encoding": st.sampled_from(["gzip", "x-gzip", "identity", "br", "", ","]),
            "Accept-Encoding": st.sampled_from(["gzip", "*", "gzip;q=x", ";;", ""]),
            "Accept": _latin,
            "Idempotency-Key": _latin,
            "Authorization": _latin,
        },
    ),
    st.dictionaries(_token.filter(lambda name: name not in _FRAMING), _latin, max_size=5),
)


@pytest.mark.parametrize(
    "route", ROUTES_WITH_BODY, ids=lambda route: f"{route.method} {route.path}"
)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(choices=st.data())
def test_hostile_bodies_are_answered(route: Route, server: Server, choices: st.DataObject) -> None:
    """Any body is answered within two seconds, in the envelope, without a 5xx."""
    content = choices.draw(bodies(route.operation.request_example or {}))
    extra = choices.draw(headers)
    name = choices.draw(st.sampled_from(["fuzz0", "fuzz1", "%00", "%ff", "a%2Fb", "x" * 256]))
    query = choices.draw(st.sampled_from(["", "?return_seqs=false", "?return_seqs=x", "?%ff=%ff"]))
    target = route.path.replace(":topic", name).replace(":stream", name) + query
    request = build_request(route.method, target, content, extra)
    with RawConnection(server.address, DEADLINE_S) as connection:
        connection.send_tolerant(request)
        answer = connection.receive()
    if route.any_body and answer.status < 300:
        # What a stream answers to a write is in its headers.
        assert answer.content == b""
    else:
        check_answer(answer)


def check_answer(answer: RawResponse) -> None:
    """A success is bare JSON; a refusal is the envelope of API 0.5; nothing is a 5xx."""
    assert answer.status < 500, answer.content[:500]
    assert answer.headers["content-type"] == "application/json"
    packed = answer.headers.get("content-encoding") == "gzip"
    content = gzip.decompress(answer.content) if packed else answer.content
    # Payloads may be deeper than Python's own decoder can go.
    members = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    performance = msgspec.json.decode(members["performance"])
    assert performance["server_total_ms"] >= 0
    if answer.status < 400:
        assert "error" not in members
        return
    assert set(members) == {"error", "performance"}
    error = msgspec.json.decode(members["error"])
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}

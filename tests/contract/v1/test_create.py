"""PUT: create (spec 1.3, decisions 2.4, 2.6, 2.12, 2.14)."""

from __future__ import annotations

import pytest

from tests.harness.clock import ServerClock
from tests.harness.streams import BYTES, JSON, TEXT, Streams, failed, is_closed, offset_of

FAR = "2199-01-01T00:00:00Z"


def test_a_new_stream_is_201_with_its_place(streams: Streams, name: str) -> None:
    """Spec 1.3: Location is an absolute URL that ends in the path; the tail is a real offset."""
    answer = streams.put(name)
    assert answer.status_code == 201
    assert answer.headers["location"] == streams.server.url + streams.path(name)
    assert answer.headers["content-type"] == TEXT
    assert offset_of(answer) not in ("-1", "now", "")
    assert "stream-closed" not in answer.headers


def test_an_existing_stream_is_200(streams: Streams, name: str) -> None:
    """Spec 1.3: the same configuration again is 200 with the tail, and the body is ignored."""
    tail = streams.create(name, b"a")
    answer = streams.put(name, b"other")
    assert (answer.status_code, offset_of(answer)) == (200, tail)
    assert streams.read(name) == b"a"


@pytest.mark.parametrize(
    "kind",
    [
        TEXT,
        JSON,
        BYTES,
        "text/plain; charset=utf-8",
        "Application/JSON;a=b",
        "application/x-ndjson",
    ],
)
def test_the_content_type_is_echoed_exactly(streams: Streams, name: str, kind: str) -> None:
    """Decision 2.12: with its parameters and its letter case, on PUT, HEAD and GET."""
    assert streams.put(name, content_type=kind).headers["content-type"] == kind
    assert streams.head(name).headers["content-type"] == kind
    assert streams.get(name).headers["content-type"] == kind


@pytest.mark.parametrize("kind", [None, "nonsense", "a/b/c", "/"])
def test_no_type_or_no_real_type_is_bytes(streams: Streams, name: str, kind: str | None) -> None:
    """Spec 1.3: the default also replaces a type that is syntactically invalid."""
    answer = streams.put(name, content_type=kind)
    assert (answer.status_code, answer.headers["content-type"]) == (201, BYTES)


SAME: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("letter case of the type", {"content_type": TEXT}, {"content_type": "TEXT/Plain"}),
    ("parameters of the type", {"content_type": TEXT}, {"content_type": "text/plain;charset=x"}),
    ("ttl", {"stream_ttl": "3600"}, {"stream_ttl": "3600"}),
    ("ttl in another unit", {"stream_ttl": "3600"}, {"stream_ttl": "1h"}),
    ("expiry", {"stream_expires_at": FAR}, {"stream_expires_at": FAR}),
    (
        "expiry in another spelling",
        {"stream_expires_at": FAR},
        {"stream_expires_at": "2199-01-01T00:00:00+00:00"},
    ),
    ("closed", {"stream_closed": "true"}, {"stream_closed": "TRUE"}),
    ("not closed", {}, {"stream_closed": "false"}),
]
OTHER: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("type", {"content_type": TEXT}, {"content_type": JSON}),
    ("ttl", {"stream_ttl": "3600"}, {"stream_ttl": "7200"}),
    ("ttl dropped", {"stream_ttl": "3600"}, {}),
    ("ttl added", {}, {"stream_ttl": "3600"}),
    ("expiry", {"stream_expires_at": FAR}, {"stream_expires_at": "2198-01-01T00:00:00Z"}),
    ("ttl for expiry", {"stream_expires_at": FAR}, {"stream_ttl": "3600"}),
    ("closed", {}, {"stream_closed": "true"}),
    ("open", {"stream_closed": "true"}, {}),
]


@pytest.mark.parametrize("first, again", [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_the_same_configuration_is_200(
    streams: Streams, name: str, first: dict[str, str], again: dict[str, str]
) -> None:
    """Spec 1.3: configurations are compared by what they mean."""
    assert streams.put(name, **first).status_code == 201
    assert streams.put(name, **again).status_code == 200


@pytest.mark.parametrize("first, again", [row[1:] for row in OTHER], ids=[row[0] for row in OTHER])
def test_another_configuration_is_409(
    streams: Streams, name: str, first: dict[str, str], again: dict[str, str]
) -> None:
    """Spec 1.3, decision 2.6: and nothing changes."""
    assert streams.put(name, **first).status_code == 201
    failed(streams.put(name, **again), 409)
    assert streams.put(name, **first).status_code == 200


def test_ttl_and_expiry_together_are_400(streams: Streams, name: str) -> None:
    """Spec 1.3: at most one of them, and nothing is created."""
    failed(streams.put(name, stream_ttl="60", stream_expires_at=FAR), 400)
    assert streams.head(name).status_code == 404


BAD_TTLS = ["abc", "-1", "+60", "00060", "60.5", "1e3", "", "1w", "h", "1h30m", "1500ms", "0x10"]


@pytest.mark.parametrize("ttl", BAD_TTLS)
def test_a_bad_ttl_is_400(streams: Streams, name: str, ttl: str) -> None:
    """Spec 1.3, decision 2.4: strict integers or a duration of whole seconds."""
    failed(streams.put(name, stream_ttl=ttl), 400)
    assert streams.head(name).status_code == 404


@pytest.mark.parametrize(
    "ttl, seconds",
    [
        ("60", "60"),
        ("2000ms", "2"),
        ("15s", "15"),
        ("30m", "1800"),
        ("24h", "86400"),
        ("1d", "86400"),
    ],
)
def test_a_ttl_is_printed_in_seconds(streams: Streams, name: str, ttl: str, seconds: str) -> None:
    """Decision 2.4: durations are accepted, HEAD prints seconds."""
    assert streams.put(name, stream_ttl=ttl).status_code == 201
    assert streams.head(name).headers["stream-ttl"] == seconds


@pytest.mark.parametrize(
    "expiry", ["tomorrow", "", "2199-01-01", "2199-13-01T00:00:00Z", "2199-01-01T00:00:00", "7"]
)
def test_a_bad_expiry_is_400(streams: Streams, name: str, expiry: str) -> None:
    """Spec 1.3: not RFC 3339."""
    failed(streams.put(name, stream_expires_at=expiry), 400)


@pytest.mark.parametrize(
    "expiry", [FAR, "2199-01-01T00:00:00+00:00", "2199-01-01T00:00:00.123456789Z"]
)
def test_an_rfc_3339_expiry_is_taken(streams: Streams, name: str, expiry: str) -> None:
    """Spec 1.3: Z and +00:00 alike; seed 000 3.2: nanoseconds too."""
    assert streams.put(name, stream_expires_at=expiry).status_code == 201


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
def test_a_stream_can_be_created_closed(streams: Streams, name: str, value: str) -> None:
    """Spec 1.3, decision 2.14: the answer says so, and the body is its last content."""
    answer = streams.put(name, b"all", stream_closed=value)
    assert (answer.status_code, is_closed(answer)) == (201, True)
    assert is_closed(streams.post(name, b"more"))
    assert streams.read(name) == b"all"


@pytest.mark.parametrize("value", ["false", "1", "yes", ""])
def test_other_values_of_closed_are_ignored(streams: Streams, name: str, value: str) -> None:
    """Spec 1.3: anything but true is ignored without error."""
    answer = streams.put(name, stream_closed=value)
    assert (answer.status_code, "stream-closed" in answer.headers) == (201, False)
    assert streams.post(name, b"a").status_code == 204


@pytest.mark.parametrize(
    "body, expected",
    [
        (b"[]", b"[]"),
        (b"", b"[]"),
        (b'{"a":1}', b'[{"a":1}]'),
        (b"[1,2]", b"[1,2]"),
        (b"[[1,2]]", b"[[1,2]]"),
        (b'"x"', b'["x"]'),
    ],
)
def test_a_json_body_is_flattened_once(
    streams: Streams, name: str, body: bytes, expected: bytes
) -> None:
    """Spec 1.3: PUT [] is an empty stream, other bodies flatten one level."""
    assert streams.put(name, body, content_type=JSON).status_code == 201
    assert streams.read(name) == expected


@pytest.mark.parametrize("body", [b"{", b"[1,]", b"nope", b"\xff", b"1 2"])
def test_an_invalid_json_body_creates_nothing(streams: Streams, name: str, body: bytes) -> None:
    """Spec 1.3: 400, and the name stays free."""
    failed(streams.put(name, body, content_type=JSON), 400)
    assert streams.head(name).status_code == 404


def test_an_initial_body_is_the_first_content(streams: Streams, name: str) -> None:
    """Spec 1.3: Stream-Next-Offset of the creation is the tail after it."""
    tail = offset_of(streams.put(name, b"first"))
    assert streams.read(name) == b"first"
    assert streams.read(name, tail) == b""


@pytest.mark.parametrize(
    "headers", [{"stream_ttl": "0"}, {"stream_expires_at": "2001-01-01T00:00:00Z"}]
)
def test_a_stream_may_be_born_dead(streams: Streams, name: str, headers: dict[str, str]) -> None:
    """Spec 2: TTL 0 and a past expiry answer 201 and then 404, not 500."""
    assert streams.put(name, b"x", **headers).status_code == 201
    failed(streams.get(name), 404)


def test_a_name_is_free_after_expiry(streams: Streams, name: str, clock: ServerClock) -> None:
    """Spec 1.3: 201 with another configuration and no old data."""
    streams.create(name, b"old", stream_ttl="10")
    clock.advance(10_001)
    assert streams.put(name, content_type=JSON).status_code == 201
    assert streams.read(name) == b"[]"

"""Bodies: type, size, encoding, UTF-8 and JSON, each refused in its own way."""

from __future__ import annotations

import gzip
import tracemalloc

import msgspec
import pytest

from topicsd.model.errors import TopicsError
from topicsd.web import body
from topicsd.web.request import Request

LIMIT = 1000


def make(method: str = "POST", **headers: str) -> Request:
    table = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method, "/", "", table, 0)


def refused(code: str, function: object, *arguments: object) -> TopicsError:
    with pytest.raises(TopicsError) as caught:
        function(*arguments)  # type: ignore[operator]
    assert code == caught.value.code
    return caught.value


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json; charset=latin-1",
     " application/json ;x"],
)  # fmt: skip
def test_json_is_recognised_without_case_and_parameters(content_type: str) -> None:
    """Spec 2.9: only the media type itself counts."""
    body.check_head(make(content_length="5", content_type=content_type), LIMIT)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/jsonx", "json"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_another_content_type_is_refused(method: str, content_type: str) -> None:
    """API 0.3: every POST and PUT with a body says that it is JSON."""
    request = make(method, content_length="5", content_type=content_type)
    refused("unsupported_media_type", body.check_head, request, LIMIT)


def test_no_body_needs_no_content_type() -> None:
    """Spec 2.9: absent and empty bodies are fine; other methods may say what they like."""
    body.check_head(make(), LIMIT)
    body.check_head(make(content_length="0"), LIMIT)
    body.check_head(make("DELETE", content_length="5", content_type="text/plain"), LIMIT)


def test_a_chunked_body_needs_a_content_type() -> None:
    """A body is announced by Transfer-Encoding too."""
    request = make(transfer_encoding="chunked")
    refused("unsupported_media_type", body.check_head, request, LIMIT)


def test_a_length_over_the_limit_is_refused_from_the_head() -> None:
    """The limit itself is allowed."""
    body.check_head(make(content_length="1000", content_type="application/json"), LIMIT)
    request = make(content_length="1001", content_type="application/json")
    assert refused("payload_too_large", body.check_head, request, LIMIT).detail == {
        "max_bytes": LIMIT
    }


def test_gzip_bodies_are_decoded() -> None:
    """Several members are one body, as gzip defines it."""
    packed = gzip.compress(b"[1,", mtime=0) + gzip.compress(b"2]")
    assert body.decode_content(make(content_encoding="GZIP"), packed, LIMIT) == b"[1,2]"


def test_a_gzip_bomb_is_stopped_at_the_limit() -> None:
    """Output never grows past the limit, whatever the input promises."""
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    refused("payload_too_large", body.decode_content, make(content_encoding="gzip"), bomb, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_gzip_output_at_the_limit_passes() -> None:
    """One byte more is too much."""
    request = make(content_encoding="gzip")
    assert len(body.decode_content(request, gzip.compress(bytes(LIMIT)), LIMIT)) == LIMIT
    too_much = gzip.compress(bytes(LIMIT + 1))
    refused("payload_too_large", body.decode_content, request, too_much, LIMIT)


@pytest.mark.parametrize("content", [b"nonsense", gzip.compress(b"{}", mtime=0)[:-9], b"\x1f\x8b"])
def test_broken_gzip_is_refused(content: bytes) -> None:
    """Garbage and cut-short streams are the client's mistake."""
    refused("invalid_request", body.decode_content, make(content_encoding="gzip"), content, LIMIT)


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
def test_an_unknown_encoding_is_unsupported(encoding: str) -> None:
    """Only gzip is understood."""
    request = make(content_encoding=encoding)
    refused("unsupported_media_type", body.decode_content, request, b"x", LIMIT)


@pytest.mark.parametrize(
    "content", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"']
)
def test_utf8_is_checked_strictly(content: bytes) -> None:
    """Stray bytes, encoded surrogates, overlong forms and code points past the end."""
    assert refused("invalid_request", body.check_utf8, content).detail == {"position": 1}


class Sample(msgspec.Struct):
    number: int = 0
    words: list[str] = []


DECODER = msgspec.json.Decoder(Sample)


@pytest.mark.parametrize("content", [b'{"number":12.0}', b'{"words":[],"number":1.2e1}'])
def test_a_number_without_a_fraction_is_an_integer(content: bytes) -> None:
    """However it was written: JSON has one type of number."""
    number = body.decode_json(DECODER, content).number
    assert (12, int) == (number, type(number))


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b'{"number":"1"}', "number"),
        (b'{"number":1.5}', "number"),
        (b'{"number":true}', "number"),
        (b'{"number":null}', "number"),
        (b'{"words":["a",2]}', "words[1]"),
    ],
)
def test_a_mistyped_field_is_named(content: bytes, field: str) -> None:
    """The refusal says which field it is, in its text and in its detail."""
    error = refused("invalid_request", body.decode_json, DECODER, content)
    assert {"field": field} == error.detail
    assert field in error.message


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"{}x", b"{},", b'{"a":NaN}', b'{"a":Infinity}', b"\xef\xbb\xbf{}", b"[]", b"1",
     b"{'a':1}", b'{"a":1,}', b"[" * 100_000, b'{"a":' * 100_000],
)  # fmt: skip
def test_what_is_not_a_json_object_is_refused(content: bytes) -> None:
    """Malformed, trailing, not a number, nested without end: 400, never 500."""
    refused("invalid_request", body.decode_json, DECODER, content)

"""Request bodies: content type, size, encoding, UTF-8, JSON; each refused in its own way.

The checks that need only the head run before a byte of the body is read. What comes out of
`decode_json` was well-formed JSON in strict UTF-8 with the declared field types. Payloads
stay raw bytes (`msgspec.Raw`): they are checked for syntax and never rebuilt.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, TypeVar

import msgspec

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.topic import whole
from topicsd.web.request import Request
from topicsd.web.surrogates import Masked, mask

T = TypeVar("T")

_JSON = "application/json"
_WITH_BODY = frozenset({"POST", "PUT"})
_GZIP_WBITS = 31
_GZIP_NAMES = frozenset({"gzip", "x-gzip"})
_MISSING = re.compile(r"missing required field `(?P<field>\w+)`")
_FLOAT_FOR_INT = re.compile(r"^Expected `int[^`]*`, got `float`")
_PATH = re.compile(r" - at `(?:key in )?\$\.?(?P<field>[^`]*)`$")

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def check_head(request: Request, max_body_bytes: int, *, any_type: bool = False) -> None:
    """Refuse from the head alone: 415 for another content type, 413 for a length too large."""
    length = request.headers.get("content-length")
    if length is None and request.headers.get("transfer-encoding") is None:
        return
    if request.method in _WITH_BODY and length != "0" and not any_type:
        found = request.headers.get("content-type") or ""
        # The first comparison is the common spelling; the second ignores case and parameters.
        if found != _JSON and found.partition(";")[0].strip().lower() != _JSON:
            raise errors.unsupported_media_type(found)
    if length is not None and int(length) > max_body_bytes:
        raise errors.payload_too_large(max_body_bytes)


def decode_content(request: Request, body: bytes, max_body_bytes: int) -> bytes:
    """Undo the content encoding, never producing more than `max_body_bytes`."""
    if request.method not in _WITH_BODY:
        # Nobody looks at it.
        return body
    encoding = (request.header("content-encoding") or "identity").lower()
    if encoding == "identity" or not body:
        return body
    if encoding not in _GZIP_NAMES:
        raise TopicsError(
            "unsupported_media_type",
            "the only content encoding understood is gzip",
            {"content_encoding": encoding},
        )
    return _gunzip(body, max_body_bytes)


def _gunzip(body: bytes, limit: int) -> bytes:
    """Decompress every member of a gzip body; stop as soon as the limit is passed."""
    parts: list[bytes] = []
    size = 0
    while body:
        unpacker = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = unpacker.decompress(body, limit + 1 - size)
        except zlib.error:
            raise errors.invalid_request("the body is not valid gzip") from None
        size += len(part)
        if size > limit:
            raise errors.payload_too_large(limit)
        if not unpacker.eof:
            raise errors.invalid_request("the gzip body is cut short")
        parts.append(part)
        body = unpacker.unused_data
    return b"".join(parts)


def check_utf8(body: bytes) -> None:
    """Raise `invalid_request` unless the whole body is strict UTF-8."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise errors.invalid_request(
            f"the body is not valid UTF-8 at byte {error.start}", position=error.start
        ) from None


def decode_json(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode, or raise `invalid_request` naming the field that has the wrong type."""
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            if not _FLOAT_FOR_INT.search(str(error)):
                raise
            return _decode_whole(decoder, body)
    except msgspec.ValidationError as error:
        raise _mistyped(str(error)) from None
    except msgspec.DecodeError as error:
        raise errors.invalid_request(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise errors.invalid_request("the body is nested too deeply") from None


def _decode_whole(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode again, taking `10.0` for 10: rare, so the first attempt does not look for it."""
    kind: Any = decoder.type
    values = {
        name: whole(_VALUE.decode(raw))
        for name, raw in _FIELDS.decode(body).items()
        if name in kind.__struct_encode_fields__
    }
    return msgspec.convert(values, kind)


def decode_masked(decoder: msgspec.json.Decoder[T], content: bytes) -> tuple[T, Masked | None]:
    """Decode a body in which lone surrogates may stand, as JSON's grammar allows.

    What is kept as text must not contain the stand-in of what comes with it.
    """
    check_utf8(content)
    try:
        return decoder.decode(content), None
    except (msgspec.DecodeError, RecursionError):
        masked = mask(content)
        return decode_json(decoder, content if masked is None else masked.body), masked


def decode_text(decoder: msgspec.json.Decoder[T], content: bytes, texts: tuple[str, ...]) -> T:
    """Decode a body without payloads; `texts` are its fields that hold our text."""
    asked, masked = decode_masked(decoder, content)
    if masked is not None:
        stand_in = masked.stand_in.encode()
        for field in texts:
            value = getattr(asked, field)
            if value is not msgspec.UNSET and stand_in in msgspec.json.encode(value):
                raise errors.invalid_request(f"{field} contains a lone surrogate", field=field)
    return asked


def _mistyped(message: str) -> TopicsError:
    """`Expected str, got int - at $.records[0].tag` becomes a sentence about the field."""
    missing = _MISSING.search(message)
    if missing is not None:
        return errors.invalid_request(f"{missing['field']} is missing", field=missing["field"])
    found = _PATH.search(message)
    problem = message if found is None else message[: found.start()]
    problem = problem[:1].lower() + problem[1:].replace("`", "")
    if found is None or not found["field"]:
        return errors.invalid_request(f"the body: {problem}")
    field = found["field"]
    return errors.invalid_request(f"{field}: {problem}", field=field)


def decode_fields(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, their values left raw."""
    return decode_masked(_FIELDS, bytes(body))[0]

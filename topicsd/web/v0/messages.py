"""What a client says on a WebSocket: the commands of `/v0/ws` (API 7).

A message is read twice: for its op and id, then as that command. Payloads of a publish stay
raw bytes, as in an append. A `request_id` may be a string or a number and is echoed as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.watch import TopicOptions, WatchBody
from topicsd.web import body
from topicsd.web.surrogates import Masked
from topicsd.web.v0.records import ABSENT, AppendBody, Envelope, traits_of


class Subscribe(WatchBody, kw_only=True):
    """Follow topics; `from_seq`, `tail` and `match` here belong to `topic`."""

    topic: str | msgspec.UnsetType = msgspec.UNSET
    from_seq: int = 0
    tail: bool = False
    match: Any = msgspec.UNSET

    def all_topics(self) -> dict[str, TopicOptions]:
        if self.topic is msgspec.UNSET:
            return self.topics
        return {**self.topics, self.topic: TopicOptions(self.from_seq, self.tail, self.match)}


class Unsubscribe(msgspec.Struct, kw_only=True):
    """Stop following topics; those of a prefix with it."""

    topic: str | msgspec.UnsetType = msgspec.UNSET
    # A list, or the map that a subscribe has.
    topics: list[str] | dict[str, Any] = []
    prefixes: list[str] = []

    def all_topics(self) -> list[str]:
        named = [] if self.topic is msgspec.UNSET else [self.topic]
        return list(dict.fromkeys([*named, *self.topics]))


class Publish(AppendBody, kw_only=True):
    """Append to a topic, as `POST /v0/topics/:topic` does."""

    topic: str
    return_seqs: bool = True


class Ping(msgspec.Struct):
    """Answered by a pong, for clients that cannot send control frames."""


class _Head(msgspec.Struct):
    """What every command has."""

    op: Any = None
    request_id: msgspec.Raw = ABSENT


Command = Subscribe | Unsubscribe | Envelope | Ping

_HEAD = msgspec.json.Decoder(_Head)
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
_SUBSCRIBE = msgspec.json.Decoder(Subscribe)
_UNSUBSCRIBE = msgspec.json.Decoder(Unsubscribe)
_PUBLISH = msgspec.json.Decoder(Publish)
_ID_STARTS = frozenset(b'"-0123456789')
_NULL = b"null"


class Message(NamedTuple):
    """A message, or what is wrong with it; the id is JSON text, empty when there is none."""

    request_id: bytes
    command: Command | TopicsError


def read_message(text: bytes) -> Message:
    """Decode a message; never raises."""
    request_id = b""
    try:
        head, masked = _read_head(text)
        request_id = _read_id(head.request_id, masked)
        read = _COMMANDS.get(head.op) if isinstance(head.op, str) else None
        if read is None:
            raise errors.invalid_request(f"op must be one of {', '.join(_COMMANDS)}", field="op")
        return Message(request_id, read(text))
    except TopicsError as error:
        return Message(request_id, error)


def _read_head(text: bytes) -> tuple[_Head, Masked | None]:
    """Tell a message that is no JSON from one that is no command."""
    try:
        return body.decode_masked(_HEAD, text)
    except TopicsError:
        try:
            body.decode_masked(_SYNTAX, text)
        except TopicsError as problem:
            raise errors.invalid_json(problem.message) from None
        raise


def _read_id(raw: msgspec.Raw, masked: Masked | None) -> bytes:
    if raw is ABSENT:
        return b""
    content = bytes(raw) if masked is None else masked.cut(raw)
    if content == _NULL:
        return b""
    if content[0] not in _ID_STARTS:
        raise errors.invalid_request("request_id must be a string or a number", field="request_id")
    return content


def _read_subscribe(text: bytes) -> Subscribe:
    return body.decode_text(_SUBSCRIBE, text, ("topic", "topics", "prefixes", "node", "match"))


def _read_unsubscribe(text: bytes) -> Unsubscribe:
    return body.decode_text(_UNSUBSCRIBE, text, ("topic", "topics", "prefixes"))


def _read_publish(text: bytes) -> Envelope:
    asked, masked = body.decode_masked(_PUBLISH, text)
    return Envelope(asked, masked, *traits_of(text))


def _read_ping(text: bytes) -> Ping:
    return Ping()


_COMMANDS: dict[str, Callable[[bytes], Command]] = {
    "subscribe": _read_subscribe,
    "unsubscribe": _read_unsubscribe,
    "publish": _read_publish,
    "ping": _read_ping,
}

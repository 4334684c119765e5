"""What a client may say on a WebSocket."""

from __future__ import annotations

from typing import Any

import pytest

from topicsd.model.errors import TopicsError
from topicsd.model.watch import TopicOptions
from topicsd.web.v0.messages import Ping, Publish, Subscribe, Unsubscribe, read_message
from topicsd.web.v0.records import Envelope


def command(text: bytes) -> Any:
    found = read_message(text).command
    assert not isinstance(found, TopicsError), found.message
    return found


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"nope",
        b"[1,",
        b'{"op":"ping"',
        b'{"op":}',
        b"{}{}",
        b'{"op":"ping",}',
        b'{"op":"\x01"}',
    ],
)
def test_what_is_no_json_is_told_apart(text: bytes) -> None:
    """Decision 13: invalid_json."""
    error = read_message(text).command
    assert isinstance(error, TopicsError)
    assert error.code == "invalid_json"


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"[]",
        b"5",
        b"null",
        b'"ping"',
        b'{"op":5}',
        b'{"op":["ping"]}',
        b'{"op":"PING"}',
        b'{"op":"publish"}',
        b'{"op":"publish","topic":5,"records":[]}',
        b'{"op":"publish","topic":"a","records":[],"return_seqs":0}',
        b'{"op":"subscribe","topic":5}',
        b'{"op":"subscribe","from_seq":"1"}',
        b'{"op":"subscribe","from_seq":1.5}',
        b'{"op":"unsubscribe","topics":5}',
        b'{"op":"ping","request_id":{}}',
        b'{"op":"ping","request_id":[1]}',
        b'{"op":"ping","request_id":true}',
        b'["\\ud800"]',
    ],
)
def test_what_is_no_command_is_told_apart(text: bytes) -> None:
    """Decision 13: invalid_request."""
    error = read_message(text).command
    assert isinstance(error, TopicsError)
    assert error.code == "invalid_request"


@pytest.mark.parametrize(
    "written, echoed",
    [
        (b'"p1"', b'"p1"'),
        (b"7", b"7"),
        (b"-1.50e2", b"-1.50e2"),
        (b'"\\u00e9\\ud800"', b'"\\u00e9\\ud800"'),
        ('"é"'.encode(), '"é"'.encode()),
        (b"null", b""),
    ],
)
@pytest.mark.parametrize("op", [b"ping", b"dance"])
def test_an_id_is_kept_as_written(op: bytes, written: bytes, echoed: bytes) -> None:
    """Also when the command is refused."""
    text = b'{"op":"%b","request_id":%b}' % (op, written)
    assert echoed == read_message(text).request_id


def test_a_mistyped_command_keeps_its_id() -> None:
    """The client learns which of its commands failed, and in which field."""
    message = read_message(b'{"op":"subscribe","topic":5,"request_id":"s"}')
    assert message.request_id == b'"s"'
    assert isinstance(message.command, TopicsError)
    assert message.command.detail == {"field": "topic"}


def test_a_subscription_names_topics_in_two_ways() -> None:
    """API 7: `topic` with options beside it, or a map; both add up."""
    found = command(b'{"op":"subscribe","topic":"a","from_seq":3,"topics":{"b":{"tail":true}}}')
    assert isinstance(found, Subscribe)
    assert {
        "a": TopicOptions(from_seq=3),
        "b": TopicOptions(tail=True),
    } == found.all_topics()


def test_numbers_may_be_written_as_floats() -> None:
    """API 0.3: 3.0 is the integer 3, as in every body."""
    found = command(b'{"op":"subscribe","topic":"a","from_seq":3.0,"limit":1e1,"request_id":"s"}')
    assert (found.from_seq, found.limit) == (3, 10)


def test_text_must_be_unicode() -> None:
    """A lone surrogate is refused in what we keep as text, and ignored elsewhere."""
    refused = read_message(b'{"op":"subscribe","topic":"a","node":"\\ud800"}').command
    assert isinstance(refused, TopicsError)
    assert isinstance(command(b'{"op":"ping","note":"\\ud800"}'), Ping)


@pytest.mark.parametrize("topics", [b'["b","a","b"]', b'{"b":{},"a":5}'])
def test_leaving_takes_a_list_or_a_map(topics: bytes) -> None:
    """Each name once."""
    found = command(b'{"op":"unsubscribe","topic":"c","topics":%b}' % topics)
    assert isinstance(found, Unsubscribe)
    assert found.all_topics() == ["c", "b", "a"]


def test_a_publish_keeps_its_payloads() -> None:
    """API 0.3: bytes as they came, on one line, lone surrogates included."""
    envelope = command(
        b'{"op":"publish","topic":"a","records":[{"data":{"b":1.50,\n"a":"\\ud800"}}]}'
    )
    assert isinstance(envelope, Envelope)
    assert isinstance(envelope.asked, Publish)
    payload = envelope.payload(envelope.asked.records[0].data)
    assert payload == b'{"b":1.50, "a":"\\ud800"}'
    assert envelope.asked.return_seqs is True

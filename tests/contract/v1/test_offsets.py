"""Offsets: two spellings of one position (spec 1.2, 2; seed 000 5)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.harness.server import Server
from tests.harness.streams import (
    JSON,
    PAST_EVERYTHING,
    START,
    Streams,
    decode_offset,
    encode_base32,
    encode_padded,
    failed,
    offset_of,
)

BASE32 = r"[0-9A-HJKMNP-TV-Z]{26}"
PADDED = r"[0-9]{16}_[0-9]{16}"


def test_each_mount_has_its_spelling(streams: Streams, free: Streams, name: str) -> None:
    """Spec 2: base32 below /v1/stream, padded decimals on free paths, one position."""
    tail = streams.create(name, b"a", b"b")
    other = free.head(name).headers["stream-next-offset"]
    assert re.fullmatch(BASE32, tail) and re.fullmatch(PADDED, other)
    assert decode_offset(tail) == decode_offset(other)


@pytest.mark.parametrize(
    "setting, spelling", [("padded", PADDED), ("base32", BASE32), ("auto", None)]
)
def test_a_setting_chooses_the_spelling(
    launch: Callable[..., Server], name: str, setting: str, spelling: str | None
) -> None:
    """Spec 2: TOPICS_STREAM_OFFSETS overrides what a mount emits."""
    server = launch(TOPICS_STREAM_OFFSETS=setting)
    for root, own in (("/v1/stream/", BASE32), ("/", PADDED)):
        client = Streams(server, root=root)
        assert re.fullmatch(spelling or own, offset_of(client.put(name)))
        client.close()


@pytest.mark.parametrize("spell", [encode_base32, encode_padded])
def test_both_spellings_are_read_on_both_mounts(
    streams: Streams, free: Streams, name: str, spell: Callable[[int, int], str]
) -> None:
    """Spec 2: both are accepted everywhere, base32 in any letter case."""
    streams.create(name, b"a", b"b")
    epoch, number = decode_offset(streams.head(name).headers["stream-next-offset"])
    for mount in (streams, free):
        for given in (spell(epoch, number - 1), spell(epoch, number - 1).lower()):
            answer = mount.get(name, offset=given)
            assert (answer.status_code, answer.content) == (200, b"b")
        assert mount.get(name, offset=spell(epoch, number - 2)).content == b"ab"


def test_offsets_grow_with_every_append(streams: Streams, free: Streams, name: str) -> None:
    """Spec 1.2: strictly, compared as text, in both spellings."""
    for mount in (streams, free):
        own = f"{name}-{len(mount.root)}"
        seen = [mount.create(own)]
        seen += [offset_of(mount.post(own, b"x")) for _ in range(40)]
        assert seen == sorted(set(seen))
        assert not any(re.search(r"[,&=?/\s]", offset) for offset in seen)


def test_an_offset_inside_a_batch_can_be_read(streams: Streams, name: str) -> None:
    """Decision 2.17: offsets count entries."""
    epoch, tail = decode_offset(streams.json(name, b"[1,2,3,4]"))
    for back in range(5):
        answer = streams.get(name, offset=encode_base32(epoch, tail - back))
        assert answer.json() == [1, 2, 3, 4][4 - back :]


MALFORMED = [
    "",
    "a,b",
    "a b",
    " ",
    "a/b",
    "..",
    "../x",
    "\0",
    "\n",
    "\r\n",
    f"{START}\n",
    f" {START}",
    "a&b",
    "a=b",
    "a?b",
    "0",
    "1",
    "17",
    "-2",
    "NOW",
    "Now",
    "-1\n",
    "0" * 25,
    "0" * 27,
    "U" * 26,
    "Z" * 26,
    "0_0",
    "0000000000000000_000000000000000",
    "0000000000000000-0000000000000000",
    "٠" * 26,
    "x" * 300,
]


@pytest.mark.parametrize("offset", MALFORMED, ids=ascii)
@pytest.mark.parametrize("live", [None, "long-poll", "sse"])
def test_a_malformed_offset_is_400(
    streams: Streams, name: str, offset: str, live: str | None
) -> None:
    """Spec 1.2, 2: bare decimals too; a full match, so that no newline slips through."""
    streams.create(name, b"a")
    query = {"offset": offset, **({"live": live, "timeout": "0s"} if live else {})}
    failed(streams.get(name, **query), 400)


def test_a_repeated_offset_is_400(streams: Streams, name: str) -> None:
    """Spec 1.2: even when both say the same."""
    streams.create(name)
    failed(streams.request("GET", streams.path(name) + "?offset=-1&offset=-1"), 400)
    failed(streams.request("GET", streams.path(name) + "?offset="), 400)


@pytest.mark.parametrize("kind", ["text/plain", JSON])
def test_the_zero_literal_is_the_start(streams: Streams, name: str, kind: str) -> None:
    """Spec 1.2, 2: accepted on input like any padded offset."""
    streams.create(name, b"1", content_type=kind)
    assert streams.get(name, offset=START).content == streams.get(name).content


def test_an_offset_past_the_tail_is_400(streams: Streams, name: str) -> None:
    """Spec 1.2: it was never handed out."""
    epoch, tail = decode_offset(streams.create(name, b"a"))
    failed(streams.get(name, offset=PAST_EVERYTHING), 400)
    failed(streams.get(name, offset=encode_base32(epoch, tail + 1)), 400)


def test_an_offset_of_an_older_life_is_410(streams: Streams, name: str) -> None:
    """Decision 2.10: re-creation starts a new epoch."""
    old = streams.create(name, b"a")
    assert streams.delete(name).status_code == 204
    new = streams.create(name, b"b")
    assert decode_offset(new)[0] > decode_offset(old)[0] and new > old
    failed(streams.get(name, offset=old), 410)
    failed(streams.get(name, offset=old, live="long-poll", timeout="0s"), 410)
    failed(streams.get(name, offset=old, live="sse"), 410)
    assert streams.read(name) == b"b"

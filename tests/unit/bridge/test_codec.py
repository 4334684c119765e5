"""Frames survive any cut of the stream; messages survive the hop."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicsd.bridge import codec
from topicsd.bridge.codec import BadFrame, Framer, Outcome
from topicsd.model import errors
from topicsd.model.commands import (
    Append,
    Appended,
    AttachWatch,
    AwaitSynced,
    CreateWatch,
    CursorsSaved,
    DeleteTopic,
    DetachWatch,
    Failed,
    FindTopic,
    HoldWatch,
    Join,
    Joined,
    Leave,
    PutTopic,
    SaveCursors,
    Synced,
    TopicDeleted,
    TopicFound,
    TopicPut,
    WatchAttached,
    WatchCreated,
    WatchDetached,
    WatchEnded,
)
from topicsd.model.topic import U64_MAX, TopicConfig

CONFIG = TopicConfig(ttl_ms=U64_MAX, priority=-3, dead_letter="dead")
COMMANDS = [
    PutTopic("t", CONFIG, True),
    DeleteTopic("t", False),
    FindTopic("t"),
    Append("t", 2, b"\x00\xff", b"r" * 64, 2),
    Append("t", 1, b"1", b"r", 1, False, CONFIG, "key", True),
    CreateWatch("w", "key", '{"topics":{}}', {"t": (1, U64_MAX)}),
    AttachWatch("w", "", 2**62 - 1, None),
    AttachWatch("w", "", 1, {"t": (1, 5)}),
    HoldWatch("w", 7),
    DetachWatch("w", 7, {}),
    SaveCursors([("w", 7, {"t": (1, 5)}), ("v", 1, {})]),
    Join(2**62 - 1),
    Leave(1),
    AwaitSynced("t"),
]
REPLIES = [
    TopicPut(True, CONFIG),
    TopicDeleted(True, ["a", "b"]),
    TopicFound(False),
    Appended(1, 2, 2, True, False, 17, 250),
    WatchCreated(),
    WatchAttached(7, "{}", {"t": (1, 5)}, [(6, {}), (7, {"t": (1, 5)})], False),
    WatchEnded("taken_over"),
    WatchDetached(True),
    CursorsSaved(),
    Joined(),
    Synced(1, U64_MAX),
    Failed.of(errors.topic_not_found("t")),
    Failed.of(errors.not_ready(0.25)),
]


def body(frame: bytearray) -> memoryview:
    return memoryview(frame)[codec.PREFIX_BYTES :]


def test_every_command_crosses_unchanged() -> None:
    """Requests decode to equal commands with their numbers, in order."""
    requests = list(enumerate(COMMANDS))
    assert codec.read_requests(body(codec.build_frame(requests))) == requests


def test_every_reply_crosses_unchanged() -> None:
    """Outcomes decode to equal replies, rows and flag."""
    outcome = Outcome(list(enumerate(REPLIES)), codec.pack_rows([0, 7, 2**32 - 1]), True)
    assert codec.read_outcome(body(codec.build_frame(outcome))) == outcome


def test_rows_round_trip() -> None:
    """Rows pack into four bytes each and come back in order."""
    packed = codec.pack_rows([3, 1, 2])
    assert (len(packed), list(codec.unpack_rows(packed))) == (12, [3, 1, 2])


@given(sizes=st.lists(st.integers(0, 40), max_size=8), cuts=st.lists(st.integers(0, 200)))
def test_frames_come_out_whole_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    """Any split of the byte stream yields the same frames."""
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    stream = b"".join(codec.PREFIX.pack(len(item)) + item for item in bodies)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    framer = Framer()
    found = [
        bytes(frame)
        for start, end in itertools.pairwise(edges)
        for frame in framer.feed(stream[start:end])
    ]
    assert found == bodies


@pytest.mark.parametrize("garbage", [b"\xc1", b"\x92\x01", b"\x91\x92\x01\x91\xa4Nope"])
def test_nonsense_is_refused(garbage: bytes) -> None:
    """Bytes that are no message raise BadFrame on either side."""
    with pytest.raises(BadFrame):
        codec.read_requests(memoryview(garbage))
    with pytest.raises(BadFrame):
        codec.read_outcome(memoryview(garbage))


def test_an_impossible_length_is_refused_before_anything_is_buffered() -> None:
    """A length above the limit is an error, not an allocation."""
    with pytest.raises(BadFrame):
        Framer().feed(codec.PREFIX.pack(codec.FRAME_BYTES_MAX + 1))

"""Frames of an event stream: shared where they are the same, and ids that say where it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from topicsd.reader import DiffPage
from topicsd.rules.resume import EventId, decode_id
from topicsd.web.live.feed import Subscription
from topicsd.web.live.pages import SharedPage
from topicsd.web.live.session import Session
from topicsd.web.live.sse import SseEncoder

SESSION = cast(Session, SimpleNamespace(generation=3))


EPOCH = 11


def encoder(seqs: dict[str, int], *, made_with: int = EPOCH) -> SseEncoder:
    """A stream at `seqs`, of a session that was created when its topics had that epoch."""
    cursors = {name: (EPOCH, seq) for name, seq in seqs.items()}
    return SseEncoder(cursors, dict.fromkeys(("a", "b"), made_with), SESSION)


def follower(name: str, cursor: int) -> Subscription:
    topic = SimpleNamespace(epoch=EPOCH)
    return cast(Subscription, SimpleNamespace(name=name, cursor=cursor, topic=topic))


def page(seq: int) -> SharedPage:
    found = SimpleNamespace(records=b'{"$seq":%d}' % seq, next_from_seq=seq, head_seq=seq)
    return SharedPage(cast(DiffPage, found))


def id_of(frame: bytes) -> EventId:
    return decode_id(frame.partition(b"id: ")[2].partition(b"\n")[0].decode())


def seqs_in(frame: bytes) -> dict[str, int]:
    """The cursor map of a frame's id."""
    return {name: seq for name, (_, seq) in id_of(frame).cursors.items()}


def test_streams_of_one_topic_share_the_whole_frame() -> None:
    """The second one sends the very bytes of the first."""
    shared = page(5)
    first, second = (encoder({"a": 4}).record(follower("a", 5), shared, 4) for _ in range(2))
    assert second is first
    assert seqs_in(first) == {"a": 5}


def test_a_shared_frame_moves_the_stream_that_did_not_make_it() -> None:
    """Its next frame says where it is."""
    shared = page(5)
    encoder({"a": 4}).record(follower("a", 5), shared, 4)
    other = encoder({"a": 4})
    other.record(follower("a", 5), shared, 4)
    assert seqs_in(other.record(follower("b", 1), page(1), 0)) == {"a": 5, "b": 1}


@pytest.mark.parametrize("seqs", [{"b": 7}, {"a": 4, "b": 7}])
def test_a_stream_of_more_topics_has_ids_of_its_own(seqs: dict[str, int]) -> None:
    """A topic that others follow alone, or that a prefix just brought, hides no other one."""
    shared = page(5)
    encoder({"a": 4}).record(follower("a", 5), shared, 4)
    assert seqs_in(encoder(seqs).record(follower("a", 5), shared, 4)) == {"a": 5, "b": 7}


def test_a_topic_made_anew_is_not_shared_with_those_who_knew_it_only_so() -> None:
    """For one session it is the topic, for the other another one of the same name."""
    shared = page(5)
    sub = follower("a", 5)
    same, other = (encoder({"a": 4}, made_with=epoch).record(sub, shared, 4) for epoch in (11, 7))
    assert same != other
    assert [id_of(frame).cursors for frame in (same, other)] == [{"a": (0, 5)}, {"a": (EPOCH, 5)}]


def test_a_stream_that_opened_with_many_topics_names_its_generation() -> None:
    """Also when only one is left of them."""
    shared = page(5)
    encoder({"a": 4}).record(follower("a", 5), shared, 4)
    many = encoder({"a": 4} | {f"t{number}": 0 for number in range(64)})
    for number in range(64):
        many.forget(f"t{number}")
    assert id_of(many.record(follower("a", 5), shared, 4)).generation == 3

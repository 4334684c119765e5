"""Replies that wait: for a sync, for the catalog, or for both."""

from __future__ import annotations

from topicsd.engine.held import HeldReplies, Need
from topicsd.model.commands import Appended, TopicFound

FOUND = TopicFound(True)


def _need(shard: int = 0, lsn: int = 0, catalog: int = 0, gated: bool = False) -> Need:
    need = Need()
    need.shard, need.lsn, need.catalog, need.gated = shard, lsn, catalog, gated
    return need


def test_a_reply_waits_for_its_shard() -> None:
    """Another shard's progress does not help."""
    held = HeldReplies(2)
    held.hold("a", FOUND, _need(0, 5), 0)
    held.hold("b", FOUND, _need(1, 3), 0)
    assert held.release([4, 3], 0, 0) == [("b", FOUND)]
    assert len(held) == 1
    assert held.release([5, 3], 0, 0) == [("a", FOUND)]


def test_a_reply_waits_for_both_of_its_needs() -> None:
    """Whichever comes last."""
    held = HeldReplies(1)
    for ticket in ("a", "b"):
        held.hold(ticket, FOUND, _need(0, 5, catalog=2), 0)
    assert held.release([5], 1, 0) == []
    assert held.release([5], 2, 0) == [("a", FOUND), ("b", FOUND)]


def test_actions_run_before_the_replies_of_their_number() -> None:
    """What workers must notice is shown before anybody is told."""
    held = HeldReplies(1)
    order: list[str] = []
    held.after_catalog(1, lambda: order.append("first"))
    held.after_catalog(2, lambda: order.append("second"))
    held.hold("a", FOUND, _need(catalog=1), 0)
    order += [ticket for ticket, _ in held.release([0], 1, 0)]
    assert order == ["first", "a"]
    held.release([0], 2, 0)
    assert order == ["first", "a", "second"]


def test_only_a_gated_reply_reports_its_wait() -> None:
    """A disk-class write that waits for its ceiling is not an fsync."""
    held = HeldReplies(1)
    replies = [Appended(1, 1, 1, False, False, 1) for _ in range(2)]
    held.hold("a", replies[0], _need(lsn=1, gated=True), 100)
    held.hold("b", replies[1], _need(lsn=1), 100)
    held.release([1], 0, 350)
    assert [reply.fsync_us for reply in replies] == [250, 0]

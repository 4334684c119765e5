"""Deletes and writes as the machine draws them, and what a topic should be after them.

Written after the contract (API 5, DESIGN 5 and 7), not after the engine.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from hypothesis import strategies as st

from topicsd.model.commands import Append
from topicsd.model.match import Match
from topicsd.model.record import pack_record
from topicsd.model.topic import TopicConfig
from topicsd.storage.board import BoardRow

TTL_MS = 50
CONFIGS = {
    "plain": TopicConfig(),
    "fsync": TopicConfig(durability="fsync"),
    "capped": TopicConfig(cap_records=40),
    "sized": TopicConfig(cap_bytes=900, durability="memory"),
    "aging": TopicConfig(ttl_ms=TTL_MS),
    "both": TopicConfig(ttl_ms=TTL_MS, cap_records=30),
    "resident": TopicConfig(cap_records=120, durability="ephemeral"),
}
TAGS = (None, "a", "ab", "abc", "b:1", "b:2", 'q"\\', "ü", "üx", "日本", "\x01", "")
PREFIXES = ("", "a", "ab", "b:", 'q"', "ü", "\x01", "zz")


class Write(NamedTuple):
    name: str
    tags: list[str | None]
    size: int


class Cut(NamedTuple):
    """A delete; `behind` counts back from the head to its before_seq."""

    name: str
    behind: int | None
    match: Match | None


class Turn(NamedTuple):
    """A change of a topic's limits."""

    name: str
    limits: dict[str, int]


class Kept(NamedTuple):
    tag: str | None
    ts: int
    size: int


class Oracle:
    """One topic: what is left of it, and the floors that involuntary loss moved."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.head = 0
        self.kept: dict[int, Kept] = {}
        self.cap_floor = self.ttl_floor = self.lost_floor = 1

    def clone(self) -> Oracle:
        other = copy.copy(self)
        other.kept = dict(self.kept)
        return other

    def at(self, now_ms: int) -> Oracle:
        """The topic as a reader sees it at an instant."""
        other = self.clone()
        other.expire(now_ms)
        return other

    @property
    def earliest(self) -> int:
        return next(iter(self.kept), self.head + 1)

    @property
    def size(self) -> int:
        return sum(record.size for record in self.kept.values())

    def append(self, move: Write, now_ms: int) -> tuple[int, int]:
        self.expire(now_ms)
        first = self.head + 1
        for tag in move.tags:
            self.head += 1
            self.kept[self.head] = Kept(tag, now_ms, move.size)
        return first, self.head

    def delete(self, before: int | None, match: Match | None, now_ms: int) -> tuple[int, ...]:
        self.expire(now_ms)
        bound = self.head + 1 if before is None else before
        gone = [
            seq
            for seq, record in self.kept.items()
            if seq < bound and (match is None or _matches(match, record.tag))
        ]
        for seq in gone:
            del self.kept[seq]
        return len(gone), self.earliest, self.head, len(self.kept), self.size

    def expire(self, now_ms: int) -> None:
        if self.config.ttl_ms:
            while self.kept and self.kept[self.earliest].ts < now_ms - self.config.ttl_ms:
                self.ttl_floor = self._lose_first() + 1

    def configure(self, config: TopicConfig, now_ms: int) -> None:
        """Other limits: what the old ones took is gone, and so is what the new ones take."""
        self.expire(now_ms)
        self.config = config
        self.enforce(now_ms)

    def enforce(self, now_ms: int) -> None:
        self.expire(now_ms)
        caps = self.config
        while (caps.cap_records and len(self.kept) > caps.cap_records) or (
            caps.cap_bytes and self.size > caps.cap_bytes
        ):
            self.cap_floor = self._lose_first() + 1

    def _lose_first(self) -> int:
        seq = self.earliest
        del self.kept[seq]
        return seq

    def tombstone(self, from_seq: int) -> tuple[int, int] | None:
        """The inclusive gap a cursor is told of; deletes alone never make one."""
        if from_seq > self.head:
            return 1, self.head
        if from_seq + 1 < max(self.cap_floor, self.ttl_floor, self.lost_floor):
            return from_seq + 1, self.earliest - 1
        return None

    def follow_restart(self, row: BoardRow) -> None:
        """An ephemeral topic starts empty, at a head that may be an older one.

        No other changes in anything that a reader can see, also not after a crash.
        """
        if self.config.durability == "ephemeral":
            assert row.head_seq <= self.head
            self.head = row.head_seq
            self.kept.clear()
            self.lost_floor, self.cap_floor = row.lost_floor, row.cap_floor
            self.ttl_floor = row.ttl_floor


def _matches(match: Match, tag: str | None) -> bool:
    if tag is None:
        return False
    return tag[: len(match.text)] == match.text if match.is_prefix else tag == match.text


_names = st.sampled_from(sorted(CONFIGS))
writes = st.builds(
    Write,
    _names,
    st.one_of(
        st.lists(st.sampled_from(TAGS), min_size=1, max_size=8),
        st.builds(
            lambda count, step: [TAGS[at * step % len(TAGS)] for at in range(count)],
            st.integers(20, 170),
            st.integers(1, 11),
        ),
    ),
    st.sampled_from((3, 40)),
)
_predicates = st.one_of(
    st.builds(Match, st.sampled_from([tag for tag in TAGS if tag is not None]), st.just(False)),
    st.builds(Match, st.sampled_from(PREFIXES), st.just(True)),
)
_behinds = st.one_of(st.integers(-2, 8), st.integers(0, 200))
cuts = st.one_of(
    st.builds(Cut, _names, _behinds, st.none()),
    st.builds(Cut, _names, st.none(), _predicates),
    st.builds(Cut, _names, _behinds, _predicates),
)
_limits = st.fixed_dictionaries(
    {
        "ttl_ms": st.sampled_from((0, 20, TTL_MS, 10 * TTL_MS)),
        "cap_records": st.sampled_from((0, 5, 30, 100)),
        "cap_bytes": st.sampled_from((0, 90, 900)),
    }
)
turns = st.builds(Turn, _names, _limits)
_moves: st.SearchStrategy[Write | Cut] = st.one_of(writes, writes, cuts)
pipelines = st.lists(st.lists(_moves, min_size=1, max_size=6), min_size=1, max_size=3)


def before_seq(move: Cut, topic: Oracle) -> int | None:
    return None if move.behind is None else max(topic.head - move.behind, 0)


def append_command(move: Write) -> Append:
    data = b'"' + b"x" * (move.size - 2) + b'"'
    packed = [pack_record(data, tag, None, None) for tag in move.tags]
    forms = b"".join(form for form, _ in packed)
    rows = b"".join(row for _, row in packed)
    return Append(move.name, len(packed), forms, rows, len(packed) * move.size)

"""What a data directory should hold, as plain lists and dicts.

Every record ever written stays in `records` at place seq - 1; floors decide what of it is
visible. Written after the contract (API 1 to 3, DESIGN 5), not after the engine.
"""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

from topicsd.model.topic import TopicConfig
from topicsd.storage.board import BoardRow


class Content(NamedTuple):
    """A record as it was sent."""

    data: bytes
    tag: str | None
    node: str | None
    meta: bytes | None

    @property
    def payload_bytes(self) -> int:
        return len(self.data) + len(self.meta or b"")


class Record(NamedTuple):
    seq: int
    ts: int
    content: Content

    def wire(self, *, tags: bool = True, meta: bool = True) -> bytes:
        """The record as a read returns it."""
        sent = self.content
        members = [b'"$seq":%d' % self.seq, b'"$ts":%d' % self.ts]
        if tags and sent.tag is not None:
            members.append(b'"$tag":' + json.dumps(sent.tag, ensure_ascii=False).encode())
        if sent.node is not None:
            members.append(b'"$node":' + json.dumps(sent.node, ensure_ascii=False).encode())
        members.append(b'"data":' + sent.data)
        if meta and sent.meta is not None:
            members.append(b'"meta":' + sent.meta)
        return b"{" + b",".join(members) + b"}"


class Refused(Exception):
    """The command must fail with this code."""


class OracleTopic:
    """One incarnation of a topic."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.records: list[Record] = []
        self.keys: dict[str, tuple[int, int, int]] = {}
        self.earliest = self.cap_floor = self.ttl_floor = self.lost_floor = 1
        self.last_write_ts = 0

    @property
    def head(self) -> int:
        return len(self.records)

    @property
    def live(self) -> list[Record]:
        """What neither a cap nor a noticed expiry has taken."""
        return self.records[self.earliest - 1 :]

    def copy(self) -> OracleTopic:
        other = copy.copy(self)
        other.records, other.keys = list(self.records), dict(self.keys)
        return other

    def append(
        self, contents: list[Content], key: str | None, now_ms: int
    ) -> tuple[int, int, bool]:
        """First and last seq, and whether it was a retry."""
        known = self.keys.get(key) if key is not None else None
        window = self.config.idempotency_window_ms
        if known is not None and window and now_ms - known[2] <= window:
            return known[0], known[1], True
        self.expire(now_ms)
        self._admit(contents)
        first = self.head + 1
        self.last_write_ts = max(now_ms, self.last_write_ts)
        for content in contents:
            self.records.append(Record(self.head + 1, self.last_write_ts, content))
        if key is not None:
            self.keys[key] = (first, self.head, self.last_write_ts)
        return first, self.head, False

    def _admit(self, contents: list[Content]) -> None:
        if self.config.discard != "reject":
            return
        size = sum(content.payload_bytes for content in contents)
        if self._exceeds(len(contents), size):
            raise Refused("record_too_large")
        if self._exceeds(len(self.live) + len(contents), payload_bytes(self.live) + size):
            raise Refused("topic_full")

    def _exceeds(self, count: int, size: int) -> bool:
        caps = self.config
        return bool(caps.cap_records and count > caps.cap_records) or bool(
            caps.cap_bytes and size > caps.cap_bytes
        )

    def expire(self, now_ms: int) -> None:
        self.ttl_floor = self.ttl_floor_at(now_ms)
        self.earliest = max(self.earliest, self.ttl_floor)

    def enforce(self, now_ms: int) -> None:
        """Give up the oldest records until the caps hold."""
        self.expire(now_ms)
        if self.config.discard != "old":
            return
        size = payload_bytes(self.live)
        while self._exceeds(len(self.live), size):
            size -= self.live[0].content.payload_bytes
            self.earliest += 1
            self.cap_floor = self.earliest

    def ttl_floor_at(self, now_ms: int) -> int:
        """The first seq above all expired ones."""
        floor = self.ttl_floor
        if self.config.ttl_ms:
            for record in self.live:
                if record.ts >= now_ms - self.config.ttl_ms:
                    break
                floor = record.seq + 1
        return floor

    def earliest_at(self, now_ms: int) -> int:
        return max(self.earliest, self.ttl_floor_at(now_ms))

    def visible(self, now_ms: int) -> list[Record]:
        return self.records[self.earliest_at(now_ms) - 1 :]

    def tombstone(self, from_seq: int, now_ms: int) -> tuple[Any, ...] | None:
        """Gap, reason, estimate, earliest and head for a cursor that lost something."""
        earliest = self.earliest_at(now_ms)
        if from_seq > self.head:
            return (1, self.head, "recreated", self.head, earliest, self.head)
        wanted = from_seq + 1
        floors = {
            "cap": self.cap_floor,
            "ttl": self.ttl_floor_at(now_ms),
            "lost": self.lost_floor,
        }
        reasons = [reason for reason, floor in floors.items() if wanted < floor]
        if not reasons:
            return None
        reason = reasons[0] if len(reasons) == 1 else "mixed"
        missed = max(earliest - wanted, 0)
        return (wanted, earliest - 1, reason, missed, earliest, self.head)

    def restart(self) -> None:
        """A clean restart empties an ephemeral topic, visibly, and changes no other."""
        self.empty_ephemeral()

    def empty_ephemeral(self) -> None:
        if self.config.durability == "ephemeral":
            if self.live:
                self.lost_floor = self.head + 1
            self.earliest = self.head + 1

    def follow_crash(self, row: BoardRow, now_ms: int) -> None:
        """Take over the floors a recovery chose: they hide what was hidden, and no more.

        Which of cap and expiry took a record may be told differently. What a change of limits
        took, or limits that were loosened since, stays gone.
        """
        earliest = self.earliest_at(now_ms)
        lost_below = max(self.cap_floor, self.ttl_floor_at(now_ms))
        assert max(row.cap_floor, row.ttl_floor, row.earliest_seq) <= earliest
        if self.config.durability == "ephemeral":
            assert row.head_seq <= self.head
            del self.records[row.head_seq :]
            assert row.earliest_seq == self.head + 1
            assert row.last_write_ts <= self.last_write_ts
            self.last_write_ts = row.last_write_ts
        else:
            assert row.head_seq == self.head
            assert row.lost_floor == self.lost_floor
        self.earliest, self.lost_floor = row.earliest_seq, row.lost_floor
        self.cap_floor, self.ttl_floor = row.cap_floor, row.ttl_floor
        if self.config.durability != "ephemeral":
            assert earliest == self.earliest_at(now_ms)
            assert lost_below == max(self.cap_floor, self.ttl_floor_at(now_ms))


class Oracle:
    """All topics."""

    def __init__(self) -> None:
        self.topics: dict[str, OracleTopic] = {}

    def put(self, name: str, config: TopicConfig, now_ms: int) -> bool:
        """Whether the topic was created."""
        topic = self.topics.get(name)
        if topic is None:
            self.topics[name] = OracleTopic(config)
            return True
        if topic.config != config:
            topic.expire(now_ms)
            topic.config = config
            topic.enforce(now_ms)
        return False


def payload_bytes(records: list[Record]) -> int:
    return sum(record.content.payload_bytes for record in records)

"""Writes under way on a connection that also follows their topics: what must wait for what.

Writes to a topic are answered in the order in which they were sent, and an answer comes before
the records it is about (spec 2.13). So while writes to a topic are under way it is delivered up
to the last seq that was answered: the engine numbers them in the order in which they were
sent, and nothing below belongs to a write that is still to be answered. A client that always
has writes under way is not starved.
"""

from __future__ import annotations

from collections import deque


class Hold:
    """One write under way."""

    __slots__ = ("answer", "last_seq", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.answer: bytes | None = None
        self.last_seq = 0


class Holds:
    """The writes of one connection, by topic."""

    def __init__(self) -> None:
        self._under_way: dict[str, deque[Hold]] = {}
        self._limits: dict[str, int] = {}

    def take(self, name: str) -> Hold:
        """A write to a topic begins; `drop` comes once for each."""
        hold = Hold(name)
        self._under_way.setdefault(name, deque()).append(hold)
        return hold

    def drop(self, hold: Hold, answer: bytes, last_seq: int) -> list[bytes]:
        """It ended, with seq 0 when it wrote nothing; returns the answers whose turn came."""
        hold.answer = answer
        hold.last_seq = last_seq
        name = hold.name
        writes = self._under_way[name]
        answers = []
        while writes and writes[0].answer is not None:
            first = writes.popleft()
            answers.append(first.answer or b"")
            self._limits[name] = max(self._limits.get(name, 0), first.last_seq)
        if not writes:
            del self._under_way[name]
            self._limits.pop(name, None)
        return answers

    def limit(self, name: str) -> int | None:
        """The last seq of a topic that may be delivered; None when there is no bound."""
        if name not in self._under_way:
            return None
        return self._limits.get(name, 0)

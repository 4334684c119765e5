"""A small engine with the real one's interface, and a loop to run tests on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import uvloop

from topicsd.model import errors
from topicsd.model.commands import (
    Append,
    Appended,
    Command,
    DeleteTopic,
    Failed,
    FindTopic,
    Join,
    Joined,
    Leave,
    Reply,
    TopicDeleted,
    TopicFound,
)

T = TypeVar("T")


class FakeEngine:
    """Counts appends by topic; replies to topics named `held*` wait for `sync`."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self.batches: list[int] = []
        self.heads: dict[str, int] = {}
        self.ticks = 0
        # Who joined (positive) and left (negative), in order.
        self.workers: list[int] = []
        # Replies that the next tick hands out.
        self.late: list[tuple[Any, Reply]] = []
        # When it asks to be ticked.
        self.wanted_us: int | None = None
        # Steps of forwarding that are left, how long each takes, and who waits for them.
        self.steps_due = 0
        self.step_s = 0.0
        self.awaited = False
        self.closed = False
        self._notify = notify
        self._moved: list[int] = []
        self._held: list[tuple[Any, Reply]] = []
        self._synced: list[tuple[Any, Reply]] = []

    def apply(self, batch: Sequence[tuple[Any, Command]]) -> list[tuple[Any, Reply]]:
        replies = self._note_workers(batch)
        asked = [each for each in batch if not isinstance(each[1], Join | Leave)]
        if asked:
            self.batches.append(len(asked))
        for ticket, command in asked:
            reply = self._answer(command)
            if command.topic.startswith("held"):
                self._held.append((ticket, reply))
            else:
                replies.append((ticket, reply))
        return replies

    def release(self) -> list[tuple[Any, Reply]]:
        released, self._synced = self._synced, []
        return released

    def take_moved(self) -> list[int]:
        moved, self._moved = self._moved, []
        return moved

    def tick(self) -> list[tuple[Any, Reply]]:
        self.ticks += 1
        late, self.late = self.late, []
        return late

    def wants_tick_us(self) -> int | None:
        return self.wanted_us

    @property
    def forwarding(self) -> bool:
        return self.steps_due > 0

    def forward(self) -> list[tuple[Any, Reply]]:
        self.steps_due -= 1
        threading.Event().wait(self.step_s)
        return []

    def close(self) -> None:
        self.closed = True

    def sync(self) -> None:
        """What a sync thread does: finish the held replies, then ring, from another thread."""

        def finish() -> None:
            held, self._held = self._held, []
            self._synced.extend(held)
            self._notify()

        thread = threading.Thread(target=finish)
        thread.start()
        thread.join()

    def move(self, *rows: int) -> None:
        self._moved.extend(rows)

    def _note_workers(self, batch: Sequence[tuple[Any, Command]]) -> list[tuple[Any, Reply]]:
        for _, command in batch:
            if isinstance(command, Join | Leave):
                sign = 1 if isinstance(command, Join) else -1
                self.workers.append(sign * command.worker)
        return [(ticket, Joined()) for ticket, command in batch if isinstance(command, Join)]

    def _answer(self, command: Command) -> Reply:
        if command.topic == "bug":
            raise ZeroDivisionError("a bug in the engine")
        match command:
            case Append():
                first = self.heads.get(command.topic, 0) + 1
                self.heads[command.topic] = head = first + command.count - 1
                self._moved.append(len(command.topic))
                return Appended(first, head, head, first == 1, False, 1)
            case FindTopic():
                return TopicFound(command.topic in self.heads)
            case DeleteTopic():
                if self.heads.pop(command.topic, None) is None:
                    return Failed.of(errors.topic_not_found(command.topic))
                return TopicDeleted(True, [])
        raise AssertionError(f"unexpected {command}")


def append(topic: str, payload: bytes = b"1", count: int = 1) -> Append:
    return Append(topic, count, payload, b"", len(payload))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a new uvloop; a test that takes 10 s hangs."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, 10))


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until `condition` holds; `run` bounds the wait."""
    while not condition():
        await asyncio.sleep(0.001)

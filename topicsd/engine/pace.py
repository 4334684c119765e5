"""How work beside the engine's thread makes way for it.

A checkpoint seals segments on a thread of its own, but with the same interpreter and the same
cores. One topic routed to ten is ten times the segments, and sealing them at full speed slows
down the writers of that one topic. So such work goes in small pieces, and
rests after each one while commands come: it then gets a bounded share of the time. It gets all
of it when there are no commands, and when there is so much in the WAL since the checkpoint
began that waiting longer would make a recovery slow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

# Less work than this is no piece: a rest has a cost, too.
PIECE_S: Final = 0.001
# While commands come, a piece is followed by this many times its duration without work.
REST_FACTOR: Final = 4
# A piece that was slow because the machine was is not followed by an endless rest.
REST_S_MAX: Final = 0.02

Wait = Callable[[float], object]


class Pace:
    """Called between small steps of work, by the one thread that does it."""

    def __init__(
        self,
        turns: Callable[[], int],
        hurried: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.perf_counter,
        wait: Wait | None = None,
    ) -> None:
        # How many batches of commands there were, and whether there is no time to rest.
        self._turns = turns
        self._hurried = hurried
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._seen = turns()
        self._since = clock()

    def __call__(self) -> None:
        """Rest, if a piece is done and commands came meanwhile."""
        worked = self._clock() - self._since
        if worked < PIECE_S:
            return
        turns = self._turns()
        if turns != self._seen and not self._hurried():
            self._wait(min(REST_FACTOR * worked, REST_S_MAX))
            # What came during the rest says that commands still come.
        self._seen = turns
        self._since = self._clock()

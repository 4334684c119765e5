"""A watch session as the worker that serves it sees it: the hold, and saving its cursors.

The engine owns the session. While a stream is open its worker holds it: a `HoldWatch` that
the engine answers when somebody else takes over. Cursors are saved every few seconds, and for
good when the stream ends. When the engine goes away the stream goes on, and the session is
attached again once there is an engine, with the worker's cursors, which are the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from topicsd.model.commands import (
    AttachWatch,
    DetachWatch,
    HoldWatch,
    Reply,
    SaveCursors,
    WatchAttached,
    WatchEnded,
)
from topicsd.model.errors import TopicsError
from topicsd.rules.resume import Cursors

if TYPE_CHECKING:
    from topicsd.bridge.port import Port

SAVE_S = 3.0
RETRY_S = 0.1
# Why a stream must end: somebody took its session over, or there is no session any more.
TAKEN_OVER = "taken_over"
GONE = "gone"


class Session:
    """The hold on one session, from its attachment to the end of the stream."""

    def __init__(self, sessions: Sessions, wid: str, key: str, generation: int) -> None:
        self._sessions = sessions
        self._port = sessions.port
        self._key = key
        self.wid = wid
        self.generation = generation
        self.changed = False
        self._over = False
        self._ended: Callable[[str], None] = lambda reason: None
        self._cursors: Callable[[], Cursors] = dict

    def begin(self, cursors: Callable[[], Cursors], ended: Callable[[str], None]) -> None:
        """Hold the session; `ended` is called when it is lost to somebody else."""
        self._cursors = cursors
        self._ended = ended
        self._sessions.add(self)
        self._hold()

    def end(self) -> None:
        """Give the session back, with what was delivered."""
        if not self._over:
            self._over = True
            self._sessions.remove(self)
            detach = DetachWatch(self.wid, self.generation, self.cursors())
            self._port.submit(detach).add_done_callback(_ignore)

    def cursors(self) -> Cursors:
        self.changed = False
        return self._cursors()

    def _hold(self) -> None:
        hold = self._port.submit(HoldWatch(self.wid, self.generation))
        hold.add_done_callback(self._hold_ended)

    def _hold_ended(self, done: asyncio.Future[Reply]) -> None:
        if self._over or done.cancelled():
            return
        if done.exception() is not None:
            self._later()
            return
        reply = done.result()
        assert isinstance(reply, WatchEnded)
        self._ended(TAKEN_OVER if reply.reason == TAKEN_OVER else GONE)

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self._attach)

    def _attach(self) -> None:
        """Take the session up again with an engine that started anew."""
        if self._over:
            return
        if not self._port.connected:
            self._later()
            return
        again = AttachWatch(self.wid, self._key, self._port.worker, self.cursors(), self.generation)
        self._port.submit(again).add_done_callback(self._attached)

    def _attached(self, done: asyncio.Future[Reply]) -> None:
        if self._over or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            if isinstance(error, TopicsError) and error.code == "not_found":
                self._ended(GONE)
            else:
                self._later()
            return
        reply = done.result()
        if isinstance(reply, WatchAttached):
            self.generation = reply.generation
            self._hold()
        else:
            self._ended(TAKEN_OVER)


class Sessions:
    """All sessions that a worker holds; saves the cursors of those that moved."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self._open: dict[Session, None] = {}
        self._saving: asyncio.TimerHandle | None = None

    def add(self, session: Session) -> None:
        self._open[session] = None
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_S, self._save)

    def remove(self, session: Session) -> None:
        self._open.pop(session, None)

    def _save(self) -> None:
        self._saving = None
        saves = [
            (session.wid, session.generation, session.cursors())
            for session in self._open
            if session.changed
        ]
        if saves and self.port.connected:
            self.port.submit(SaveCursors(saves)).add_done_callback(_ignore)
        if self._open:
            self._saving = asyncio.get_running_loop().call_later(SAVE_S, self._save)


def _ignore(done: asyncio.Future[Reply]) -> None:
    """Take note of a failure, so that nobody warns about it: the next save repeats it."""
    if not done.cancelled():
        done.exception()

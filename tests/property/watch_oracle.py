"""What watch sessions should do, in the plainest way: one dict, one command at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from topicsd.model import errors
from topicsd.model.commands import (
    AttachWatch,
    Command,
    CreateWatch,
    Cursors,
    CursorsSaved,
    DetachWatch,
    Failed,
    HoldWatch,
    Join,
    Joined,
    Leave,
    Opening,
    Reply,
    SaveCursors,
    WatchAttached,
    WatchCreated,
    WatchDetached,
    WatchEnded,
)

TTL_MS = 60_000
TAKEOVER_MS = 2000
EXPIRE_EVERY_MS = 2000
SESSIONS_MAX = 3
IDLE, OPEN, INTERRUPTED = 0, 1, 2


@dataclass
class Session:
    """One session; `claims` are (ticket, command, since when)."""

    key: str
    spec: str
    cursors: Cursors
    access_ms: int
    generation: int = 0
    state: int = IDLE
    openings: list[Opening] = field(default_factory=list)
    worker: int = 0
    hold: int | None = None
    claims: list[tuple[int, AttachWatch, int]] = field(default_factory=list)


class WatchOracle:
    """All sessions; `answers` collects the replies that a step makes, by ticket."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.sessions: dict[str, Session] = {}
        self.workers: set[int] = set()
        self.answers: dict[int, Reply] = {}
        self._expired_ms = 0

    def run(self, ticket: int, command: Command) -> None:
        """Do one command, answer it now or later."""
        reply = getattr(self, f"_{type(command).__name__.lower()}")(ticket, command)
        if reply is not None:
            self.answers[ticket] = reply

    def tick(self) -> None:
        for session in self.sessions.values():
            while session.claims and self.now_ms - session.claims[0][2] >= TAKEOVER_MS:
                session.state = INTERRUPTED
                self._open_next(session)
        if self.now_ms - self._expired_ms >= EXPIRE_EVERY_MS:
            self._expired_ms = self.now_ms
            self._expire()

    def restart(self) -> None:
        """Whoever waited is gone, and what was open is interrupted."""
        self.workers.clear()
        self._expired_ms = 0
        for session in self.sessions.values():
            session.claims, session.hold = [], None
            if session.state == OPEN:
                session.state, session.access_ms = INTERRUPTED, self.now_ms

    def find_held(self, wid: str, generation: int) -> Session | None:
        session = self.sessions.get(wid)
        if session is None or session.state != OPEN or session.generation != generation:
            return None
        return session

    def _createwatch(self, ticket: int, command: CreateWatch) -> Reply:
        self._expire()
        if len(self.sessions) >= SESSIONS_MAX:
            return Failed.of(errors.throttled("max_watch_sessions", SESSIONS_MAX))
        if command.wid in self.sessions:
            return Failed.of(errors.invalid_request("a watch session of that wid exists already"))
        self.sessions[command.wid] = Session(
            command.key, command.spec, command.cursors, self.now_ms
        )
        return WatchCreated()

    def _attachwatch(self, ticket: int, command: AttachWatch) -> Reply | None:
        self._expire()
        if command.worker not in self.workers:
            return Failed.of(errors.not_ready(1.0))
        session = self.sessions.get(command.wid)
        if session is None:
            return Failed.of(errors.not_found(f"/v0/watch/{command.wid}"))
        if session.key != command.key:
            message = "this key did not create the watch session"
            return Failed.of(errors.unauthorized(message))
        if command.known is not None and command.generation != session.generation:
            return WatchEnded("taken_over")
        if session.state != OPEN:
            return self._open(session, command)
        self._end_hold(session, "taken_over")
        session.claims.append((ticket, command, self.now_ms))
        return None

    def _holdwatch(self, ticket: int, command: HoldWatch) -> Reply | None:
        session = self.find_held(command.wid, command.generation)
        if session is None:
            return WatchEnded("gone")
        if session.claims:
            return WatchEnded("taken_over")
        self._end_hold(session, "gone")
        session.hold = ticket
        return None

    def _detachwatch(self, ticket: int, command: DetachWatch) -> Reply:
        session = self.find_held(command.wid, command.generation)
        if session is None:
            return WatchDetached(False)
        session.state, session.cursors, session.access_ms = IDLE, command.cursors, self.now_ms
        self._end_hold(session, "detached")
        self._open_next(session)
        return WatchDetached(True)

    def _savecursors(self, ticket: int, command: SaveCursors) -> Reply:
        for wid, generation, cursors in command.saves:
            session = self.find_held(wid, generation)
            if session is not None:
                session.cursors, session.access_ms = cursors, self.now_ms
        return CursorsSaved()

    def _join(self, ticket: int, command: Join) -> Reply:
        self.workers.add(command.worker)
        return Joined()

    def _leave(self, ticket: int, command: Leave) -> None:
        self.workers.discard(command.worker)
        for session in self.sessions.values():
            session.claims = [each for each in session.claims if each[1].worker != command.worker]
            if session.state == OPEN and session.worker == command.worker:
                session.state, session.access_ms, session.hold = INTERRUPTED, self.now_ms, None
                self._open_next(session)

    def _open_next(self, session: Session) -> None:
        if session.claims:
            ticket, command, _ = session.claims.pop(0)
            self.answers[ticket] = self._open(session, command)

    def _open(self, session: Session, command: AttachWatch) -> WatchAttached:
        clean = session.state == IDLE or command.known is not None
        if command.known is not None:
            session.cursors = command.known
        session.state, session.worker, session.hold = OPEN, command.worker, None
        session.access_ms = self.now_ms
        session.generation += 1
        opening = (session.generation, session.cursors)
        session.openings = [*session.openings, opening][-4:]
        return WatchAttached(
            session.generation, session.spec, session.cursors, session.openings, clean
        )

    def _end_hold(self, session: Session, reason: str) -> None:
        if session.hold is not None:
            self.answers[session.hold] = WatchEnded(reason)
            session.hold = None

    def _expire(self) -> None:
        self.sessions = {
            wid: session
            for wid, session in self.sessions.items()
            if session.state == OPEN or session.access_ms + TTL_MS >= self.now_ms
        }

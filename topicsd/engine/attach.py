"""Who holds a watch session: streams attach, hold, save, detach, and take over (API 7).

One stream at a time, so that two never split the records between them. Each gets the next
generation of the session. A stream that attaches to a session in use waits until the holder,
who is told at once, has given it back with its cursors; a holder whose worker is gone, or
who says nothing for `TAKEOVER_MS`, is passed over, and then nobody knows how much more it has
sent than it last saved: the new stream is told so (`clean` is False).

What answers an earlier command is added to the batch that made it happen, as one more
outcome, so that it leaves together with what it depends on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.engine import wakes
from topicsd.engine.commit import THIS_BATCH
from topicsd.engine.staging import Batch, Outcome
from topicsd.engine.watches import (
    Claim,
    Parked,
    Watch,
    decode_cursors,
    decode_openings,
    encode,
)
from topicsd.model import errors
from topicsd.model.commands import (
    AttachWatch,
    CursorsSaved,
    DetachWatch,
    HoldWatch,
    Join,
    Joined,
    Leave,
    Reply,
    SaveCursors,
    WatchAttached,
    WatchDetached,
    WatchEnded,
)
from topicsd.storage.catalog import (
    WATCH_IDLE,
    WATCH_INTERRUPTED,
    WATCH_OPEN,
    OpenWatch,
    SaveWatches,
)

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

TAKEOVER_MS = 2000
# Streams that wait for the same session.
CLAIMS_MAX = 16
# How many generations back a client's token can be resolved.
OPENINGS_MAX = 4
EXPIRE_INTERVAL_MS = 2000


def apply_attach(
    engine: Engine, batch: Batch, outcome: Outcome, command: AttachWatch
) -> WatchAttached | WatchEnded | None:
    watches, now_ms = engine.watches, engine.clock.now_ms()
    watches.expire(batch, now_ms)
    if command.worker not in watches.workers:
        # Its connection was lost, so nothing would ever release the session again.
        raise errors.not_ready(1.0)
    watch = watches.find(command.wid)
    if watch is None or watches.is_old(watch, now_ms):
        raise errors.not_found(f"/v0/watch/{command.wid}")
    if watch.key != command.key:
        raise errors.unauthorized("this key did not create the watch session")
    if command.known is not None and command.generation != watch.generation:
        return WatchEnded("taken_over")
    if not watch.open:
        return _open(engine, batch, outcome, watch, command)
    if len(watch.claims) >= CLAIMS_MAX:
        raise errors.throttled("streams that wait for one watch session", CLAIMS_MAX)
    deadline_us = engine.clock.monotonic_us() + TAKEOVER_MS * 1000
    watch.claims.append(Claim(outcome.ticket, command, deadline_us))
    watches.claimed[watch.wid] = watch
    _end_hold(batch, watch, "taken_over")
    return None


def apply_hold(
    engine: Engine, batch: Batch, outcome: Outcome, command: HoldWatch
) -> WatchEnded | None:
    watch = engine.watches.find_held(command.wid, command.generation)
    if watch is None:
        return WatchEnded("gone")
    if watch.claims:
        return WatchEnded("taken_over")
    # One stream holds once; an earlier command of its own would never be answered.
    _end_hold(batch, watch, "gone")
    watch.hold = Parked(outcome.ticket)
    return None


def apply_detach(
    engine: Engine, batch: Batch, outcome: Outcome, command: DetachWatch
) -> WatchDetached:
    watch = engine.watches.find_held(command.wid, command.generation)
    if watch is None:
        return WatchDetached(False)
    now_ms = engine.clock.now_ms()
    watch.state, watch.last_access_ts = WATCH_IDLE, now_ms
    watch.cursors = encode(command.cursors)
    _end_hold(batch, watch, "detached")
    saves = SaveWatches([(watch.wid, watch.cursors, WATCH_IDLE, now_ms)])
    engine.watches.stage(batch, saves, [watch])
    outcome.need.catalog = THIS_BATCH
    _open_next(engine, batch, watch)
    return WatchDetached(True)


def apply_save(
    engine: Engine, batch: Batch, outcome: Outcome, command: SaveCursors
) -> CursorsSaved:
    """Keep what open streams report; the next report makes up for one that is lost."""
    now_ms = engine.clock.now_ms()
    saved: dict[str, Watch] = {}
    for wid, generation, cursors in command.saves:
        watch = engine.watches.find_held(wid, generation)
        if watch is not None:
            watch.cursors, watch.last_access_ts = encode(cursors), now_ms
            saved[wid] = watch
    if saved:
        saves = [(wid, watch.cursors, WATCH_OPEN, now_ms) for wid, watch in saved.items()]
        engine.watches.stage(batch, SaveWatches(saves), list(saved.values()))
    return CursorsSaved()


def apply_join(engine: Engine, batch: Batch, outcome: Outcome, command: Join) -> Joined:
    engine.watches.workers.add(command.worker)
    return Joined()


def apply_leave(engine: Engine, batch: Batch, outcome: Outcome, command: Leave) -> None:
    """Let go of whatever a lost worker held or waited for; it hears no answer any more."""
    watches, now_ms = engine.watches, engine.clock.now_ms()
    watches.workers.discard(command.worker)
    engine.streams.leave(batch, outcome, command.worker)
    engine.claims.leave(command.worker)
    wakes.leave(engine, batch, command.worker)
    for watch in list(watches.claimed.values()):
        for claim in [each for each in watch.claims if each.command.worker == command.worker]:
            watch.claims.remove(claim)
        _forget_claimed(engine, watch)
    left = [watch for watch in watches.list_open() if watch.worker == command.worker]
    if not left:
        return
    for watch in left:
        watch.state, watch.last_access_ts, watch.hold = WATCH_INTERRUPTED, now_ms, None
    saves = [(watch.wid, None, WATCH_INTERRUPTED, now_ms) for watch in left]
    watches.stage(batch, SaveWatches(saves), left)
    for watch in left:
        _open_next(engine, batch, watch)


def poll(engine: Engine, batch: Batch) -> None:
    """Pass over holders that gave no answer in time, and let old sessions expire."""
    watches, now_us = engine.watches, engine.clock.monotonic_us()
    for watch in list(watches.claimed.values()):
        while watch.claims and watch.claims[0].deadline_us <= now_us:
            # Still open, as far as anybody knows: so the next stream begins unclean.
            _open_next(engine, batch, watch)
    if now_us >= watches.expire_due_us:
        more = watches.expire(batch, engine.clock.now_ms())
        watches.expire_due_us = now_us + (0 if more else EXPIRE_INTERVAL_MS * 1000)


def _open_next(engine: Engine, batch: Batch, watch: Watch) -> None:
    """Give a session that was let go to the first stream that waits for it."""
    if watch.claims:
        claim = watch.claims.popleft()
        outcome = Outcome(claim.ticket)
        outcome.reply = _open(engine, batch, outcome, watch, claim.command)
        batch.outcomes.append(outcome)
    _forget_claimed(engine, watch)


def _forget_claimed(engine: Engine, watch: Watch) -> None:
    if not watch.claims:
        engine.watches.claimed.pop(watch.wid, None)


def _open(
    engine: Engine, batch: Batch, outcome: Outcome, watch: Watch, command: AttachWatch
) -> WatchAttached:
    """Begin the next generation; the stream hears of it when a crash cannot undo it."""
    watches, now_ms = engine.watches, engine.clock.now_ms()
    texts = watches.texts(watch)
    known = command.known
    cursors = decode_cursors(texts.cursors) if known is None else known
    clean = known is not None or watch.state == WATCH_IDLE
    watch.generation += 1
    openings = [*decode_openings(texts.openings), (watch.generation, cursors)][-OPENINGS_MAX:]
    watch.state, watch.worker, watch.last_access_ts = WATCH_OPEN, command.worker, now_ms
    watch.hold = None
    watch.cursors, watch.openings = encode(cursors), encode(openings)
    change = OpenWatch(watch.wid, watch.generation, watch.cursors, watch.openings, now_ms)
    watches.stage(batch, change, [watch])
    outcome.need.catalog = THIS_BATCH
    return WatchAttached(watch.generation, texts.spec, cursors, openings, clean)


def _end_hold(batch: Batch, watch: Watch, reason: str) -> None:
    """Answer the stream that holds a session, if it asked already."""
    parked, watch.hold = watch.hold, None
    if parked is not None:
        _answer(batch, parked, WatchEnded(reason))


def _answer(batch: Batch, parked: Parked, reply: Reply) -> None:
    outcome = Outcome(parked.ticket)
    outcome.reply = reply
    batch.outcomes.append(outcome)

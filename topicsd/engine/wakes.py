"""Wakes: how a subscription tells somebody of new entries, and what they answer (spec 1.16).

At most one wake of a subscription is under way. A webhook is sent by a worker, which keeps a
`NextDelivery` open for that; the engine never connects to anybody. A wake event is appended to
the wake stream in the batch that begins the wake. Leases and retries are compared with the
clock at every tick and before every command about their subscription.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topicsd.engine import append, stream_lives
from topicsd.engine.staging import Batch, Outcome
from topicsd.engine.subscriptions import GLOB, Hold, Link, Subscription
from topicsd.model import errors
from topicsd.model.errors import TopicsError
from topicsd.model.record import pack_record
from topicsd.model.stream import StreamWrite
from topicsd.model.subscription import (
    PULL,
    WEBHOOK,
    AckWake,
    ClaimWake,
    Delivery,
    DeliveryDone,
    NextDelivery,
    ReleaseWake,
    SubscriptionChanged,
    WakeAcked,
    WakeClaimed,
)
from topicsd.rules.subscriptions import (
    Phase,
    backoff_ms,
    hash_token,
    is_fenced,
    is_pending,
    is_token,
    may_ack,
)

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine, Ticket

_TOKEN_BYTES: Final = 32
_ID_BYTES: Final = 12
# Wakes of one step may append to streams that others follow; the rest waits for a tick.
_ROUNDS_MAX: Final = 4


def step(engine: Engine) -> list[tuple[Ticket, Any]]:
    """Look at the subscriptions whose streams moved; the replies that come of it."""
    ready: list[tuple[Ticket, Any]] = []
    for _ in range(_ROUNDS_MAX):
        due, engine.subscriptions.due = engine.subscriptions.due, {}
        if not due:
            break
        batch = Batch()
        for found, path in due.items():
            _link_new(engine, batch, found)
            rouse(engine, batch, found, path)
        ready += engine.commits.commit(batch)
    return ready


def poll(engine: Engine, batch: Batch) -> None:
    """End leases that ran out, and repeat what failed when its time has come."""
    now_ms = engine.clock.now_ms()
    for found in engine.subscriptions.list_all():
        if found.phase is not Phase.IDLE:
            expire(engine, batch, found, now_ms)
            rouse(engine, batch, found)


def expire(engine: Engine, batch: Batch, found: Subscription, now_ms: int) -> None:
    if found.phase is Phase.LIVE and found.lease_until <= now_ms:
        _rest(engine, batch, found)


def _link_new(engine: Engine, batch: Batch, found: Subscription) -> None:
    """Link streams that a glob matched at an append, before that append."""
    new = [Link(path, GLOB) for path in found.pending if path not in found.links]
    engine.subscriptions.link(batch, found, new)


def rouse(engine: Engine, batch: Batch, found: Subscription, path: str = "") -> None:
    """Begin a wake if there is a reason to; go on with one whose time has come."""
    subscriptions, now_ms = engine.subscriptions, engine.clock.now_ms()
    if found.phase is Phase.IDLE and subscriptions.has_pending(found):
        _begin(found)
        subscriptions.save(batch, found)
        if found.config.type == PULL:
            _announce(engine, batch, found, path or next(iter(found.pending)))
    elif found.config.type == PULL and _is_unheard(found, now_ms):
        _announce(engine, batch, found, path or next(iter(found.pending)))
    sendable = found.phase is Phase.WAKING and found.worker is None and subscriptions.holds
    if found.config.type == WEBHOOK and sendable and found.next_retry_ts <= now_ms:
        _send(engine, batch, found)


def _is_unheard(found: Subscription, now_ms: int) -> bool:
    """Whether a wake event could not be appended and is to be tried again now."""
    due = 0 < found.next_retry_ts <= now_ms
    return due and found.phase is Phase.WAKING and bool(found.pending)


def _begin(found: Subscription) -> None:
    found.phase = Phase.WAKING
    found.generation += 1
    found.wake_id = f"w_{secrets.token_urlsafe(_ID_BYTES)}"
    found.holder = found.token = found.token_hash = ""
    found.lease_until = found.attempt = found.next_retry_ts = 0
    found.worker = None
    found.snapshot = {}


def _rest(engine: Engine, batch: Batch, found: Subscription) -> None:
    """End a wake; what is not acknowledged begins the next one, in the same batch or later."""
    found.phase, found.holder, found.worker = Phase.IDLE, "", None
    found.lease_until = found.attempt = found.next_retry_ts = 0
    engine.subscriptions.save(batch, found)
    engine.subscriptions.due[found] = ""


def _announce(engine: Engine, batch: Batch, found: Subscription, path: str) -> None:
    """Append the wake event; a wake stream that cannot take it is tried again later."""
    now_ms = engine.clock.now_ms()
    event = {
        "type": "wake",
        "subscription_id": found.id,
        "stream": path,
        "generation": found.generation,
        "ts": now_ms,
    }
    data = msgspec.json.encode(event)
    form, row = pack_record(data, None, None, None)
    write = StreamWrite(1, form, row, len(data))
    outcome = Outcome(None)
    try:
        log = stream_lives.get_live(engine, found.config.wake_stream or "", now_ms)
        if log.closed or not stream_lives.stream_of(log).is_json:
            raise errors.stream_conflict(log.name, "it takes no wake events")
        append.admit(engine, log.config, write, log)
        if log not in batch.chunks:
            engine.retention.notice(log, now_ms)
        append.stage(engine, batch, log, write, now_ms)
        found.attempt = found.next_retry_ts = 0
        outcome.appended = log
    except TopicsError:
        _put_off(engine, found)
    engine.subscriptions.save(batch, found)


def _put_off(engine: Engine, found: Subscription) -> None:
    found.attempt += 1
    wait_ms = backoff_ms(found.attempt, random.random())
    found.next_retry_ts = engine.clock.now_ms() + wait_ms


def _send(engine: Engine, batch: Batch, found: Subscription) -> None:
    """Give a webhook to the worker that waits longest; it leaves when the catalog has it."""
    subscriptions = engine.subscriptions
    hold = subscriptions.holds.popleft()
    links = subscriptions.wake_links(found)
    if not found.token:
        # Only its hash outlives the engine: after a restart the same wake has another one.
        found.token = secrets.token_urlsafe(_TOKEN_BYTES)
        found.token_hash = hash_token(found.token)
    found.worker = hold.worker
    found.snapshot = {each.path: each.tail for each in links if each.tail is not None}
    outcome = Outcome(hold.ticket)
    outcome.reply = Delivery(
        id=found.id,
        wake_id=found.wake_id,
        generation=found.generation,
        url=found.config.webhook_url or "",
        token=found.token,
        place=found.place,
        links=links,
        seed=subscriptions.seed(batch, outcome),
    )
    subscriptions.save(batch, found, outcome)
    batch.outcomes.append(outcome)


def apply_next(engine: Engine, batch: Batch, outcome: Outcome, command: NextDelivery) -> None:
    engine.subscriptions.holds.append(Hold(outcome.ticket, command.worker))
    for found in engine.subscriptions.list_all():
        if not engine.subscriptions.holds:
            break
        rouse(engine, batch, found)


def apply_delivered(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeliveryDone
) -> SubscriptionChanged:
    """Acknowledge, wait for callbacks, or try again later; nothing if the wake is over."""
    found = engine.subscriptions.find(command.id)
    if found is None or found.wake_id != command.wake_id or found.worker is None:
        return SubscriptionChanged()
    found.worker = None
    if found.phase is not Phase.WAKING:
        return SubscriptionChanged()
    if not command.ok:
        _put_off(engine, found)
        engine.subscriptions.save(batch, found)
    elif command.done:
        for path, tail in found.snapshot.items():
            link = found.links.get(path)
            if link is not None and is_pending(link.acked, tail):
                _move(engine, batch, found, link, tail)
        _rest(engine, batch, found)
    else:
        _lease(engine, found)
        engine.subscriptions.save(batch, found)
    return SubscriptionChanged()


def _lease(engine: Engine, found: Subscription) -> None:
    found.phase = Phase.LIVE
    found.lease_until = engine.clock.now_ms() + found.config.lease_ttl_ms
    found.attempt = found.next_retry_ts = 0


def _move(
    engine: Engine, batch: Batch, found: Subscription, link: Link, acked: tuple[int, int]
) -> None:
    link.acked = acked
    engine.subscriptions.save_links(batch, found, [link])
    if not is_pending(acked, engine.subscriptions.tail(link.path)):
        found.pending.pop(link.path, None)


def leave(engine: Engine, batch: Batch, worker: int) -> None:
    """A worker is gone: what it was sending is sent by another one, from the start."""
    subscriptions = engine.subscriptions
    for hold in [each for each in subscriptions.holds if each.worker == worker]:
        subscriptions.holds.remove(hold)
    for found in subscriptions.list_all():
        if found.worker == worker:
            found.worker = None
            subscriptions.due[found] = ""


def get_allowed(engine: Engine, name: str, allow: tuple[str, ...]) -> Subscription:
    """A subscription, of which the key may touch all names; others do not exist for it."""
    found = engine.subscriptions.find(name)
    if found is None or not is_allowed(found, allow):
        raise errors.subscription_not_found(name)
    return found


def is_allowed(found: Subscription, allow: tuple[str, ...]) -> bool:
    if not allow:
        return True
    config = found.config
    names = [path for path, link in found.links.items() if link.link_type != GLOB]
    names += [each for each in (config.pattern, config.wake_stream) if each is not None]
    return all(each.startswith(allow) for each in names)


def apply_claim(engine: Engine, batch: Batch, outcome: Outcome, command: ClaimWake) -> WakeClaimed:
    found = get_allowed(engine, command.id, command.allow)
    if found.config.type != PULL:
        raise errors.invalid_subscription("only a pull-wake subscription can be claimed")
    subscriptions = engine.subscriptions
    expire(engine, batch, found, engine.clock.now_ms())
    _link_new(engine, batch, found)
    if found.phase is Phase.LIVE:
        raise errors.already_claimed(found.holder, found.generation)
    if not subscriptions.has_pending(found):
        if found.phase is Phase.WAKING:
            _rest(engine, batch, found)
        raise errors.no_pending_work()
    if found.phase is Phase.IDLE:
        _begin(found)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    found.token_hash, found.holder = hash_token(token), command.holder
    _lease(engine, found)
    subscriptions.save(batch, found, outcome)
    links = subscriptions.wake_links(found)
    return WakeClaimed(found.wake_id, found.generation, token, found.config.lease_ttl_ms, links)


def _get_held(engine: Engine, batch: Batch, command: AckWake | ReleaseWake) -> Subscription:
    """The subscription, if its wake is the one of the command."""
    found = engine.subscriptions.find(command.id)
    if found is None:
        raise errors.subscription_not_found(command.id)
    expire(engine, batch, found, engine.clock.now_ms())
    current = (found.wake_id, found.generation)
    if is_fenced((command.wake_id, command.generation), current, found.phase):
        raise errors.fenced(found.generation)
    if not is_token(command.token, found.token_hash):
        raise errors.token_invalid()
    return found


def apply_ack(engine: Engine, batch: Batch, outcome: Outcome, command: AckWake) -> WakeAcked:
    """All positions or none; then the lease goes on, or ends."""
    found = _get_held(engine, batch, command)
    subscriptions = engine.subscriptions
    moves: dict[str, tuple[int, int]] = {}
    for ack in command.acks:
        link, tail = found.links.get(ack.path), subscriptions.tail(ack.path)
        acked = moves.get(ack.path) or (None if link is None else link.acked)
        asked = (ack.epoch, ack.entries)
        if acked is None or not may_ack(asked, acked, tail, _inherited(engine, ack.path)):
            raise errors.invalid_offset(ack.path)
        assert tail is not None
        moves[ack.path] = (tail[0], ack.entries)
    for path, acked in moves.items():
        _move(engine, batch, found, found.links[path], acked)
    if command.done:
        _rest(engine, batch, found)
    else:
        _lease(engine, found)
    subscriptions.save(batch, found, outcome)
    return WakeAcked(command.done and subscriptions.has_pending(found))


def _inherited(engine: Engine, path: str) -> int:
    log = engine.registry.find(path)
    fork = None if log is None else stream_lives.stream_of(log).fork
    return 0 if fork is None else fork.seq


def apply_release(
    engine: Engine, batch: Batch, outcome: Outcome, command: ReleaseWake
) -> SubscriptionChanged:
    found = _get_held(engine, batch, command)
    _rest(engine, batch, found)
    engine.subscriptions.save(batch, found, outcome)
    return SubscriptionChanged()


WAKE_COMMANDS: dict[type, Callable[..., Any]] = {
    ClaimWake: apply_claim,
    AckWake: apply_ack,
    ReleaseWake: apply_release,
    NextDelivery: apply_next,
    DeliveryDone: apply_delivered,
}

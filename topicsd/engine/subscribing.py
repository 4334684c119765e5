"""Subscriptions come, change and go: the control plane of `subscriptions`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from topicsd.engine import wakes
from topicsd.engine.commit import THIS_BATCH
from topicsd.engine.staging import Batch, Outcome
from topicsd.engine.subscriptions import EXPLICIT, GLOB, Link, Subscription
from topicsd.model import errors
from topicsd.model.subscription import (
    DeleteSubscription,
    GetSigningKey,
    GetSubscription,
    LinkStreams,
    PutSubscription,
    SigningKey,
    SubscriptionChanged,
    SubscriptionConfig,
    SubscriptionFound,
)
from topicsd.rules.subscriptions import compile_glob
from topicsd.storage.catalog import DropLinks, DropSubscription

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def _hash(config: SubscriptionConfig) -> str:
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()


def apply_put(
    engine: Engine, batch: Batch, outcome: Outcome, command: PutSubscription
) -> SubscriptionFound:
    subscriptions, config = engine.subscriptions, command.config
    found = subscriptions.find(command.id)
    created = found is None
    if found is None:
        now_ms = engine.clock.now_ms()
        found = Subscription(command.id, config, command.place, _hash(config), now_ms)
        subscriptions.save(batch, found)
        subscriptions.link(batch, found, [_explicit(engine, path) for path in config.streams])
        subscriptions.link_existing(batch, found, at_tail=True)
        subscriptions.add(found)
    elif found.config_hash != _hash(config) or not wakes.is_allowed(found, command.allow):
        raise errors.subscription_exists(command.id)
    # A repeated request is told that it is done: that must not be too early.
    outcome.need.catalog = THIS_BATCH
    return _found(engine, batch, outcome, found, created=created)


def _explicit(engine: Engine, path: str) -> Link:
    return Link(path, EXPLICIT, engine.subscriptions.tail(path) or (0, 0))


def _found(
    engine: Engine, batch: Batch, outcome: Outcome, found: Subscription, *, created: bool = False
) -> SubscriptionFound:
    seed = engine.subscriptions.seed(batch, outcome)
    links = engine.subscriptions.describe(found, sorted(found.links))
    return SubscriptionFound(found.id, found.config, found.created_ts, links, created, seed)


def apply_get(
    engine: Engine, batch: Batch, outcome: Outcome, command: GetSubscription
) -> SubscriptionFound:
    found = wakes.get_allowed(engine, command.id, command.allow)
    return _found(engine, batch, outcome, found)


def apply_delete(
    engine: Engine, batch: Batch, outcome: Outcome, command: DeleteSubscription
) -> SubscriptionChanged:
    found = engine.subscriptions.find(command.id)
    if found is not None and wakes.is_allowed(found, command.allow):
        engine.subscriptions.remove(found)
        batch.changes.append(DropSubscription(found.id))
    outcome.need.catalog = THIS_BATCH
    return SubscriptionChanged()


def apply_link(
    engine: Engine, batch: Batch, outcome: Outcome, command: LinkStreams
) -> SubscriptionChanged:
    found = wakes.get_allowed(engine, command.id, command.allow)
    added = []
    for path in command.add:
        link = found.links.get(path)
        if link is None:
            added.append(_explicit(engine, path))
        elif link.link_type != EXPLICIT:
            added.append(Link(path, EXPLICIT, link.acked))
    engine.subscriptions.link(batch, found, added)
    _unlink(engine, batch, found, command.remove)
    engine.subscriptions.forget_followers()
    outcome.need.catalog = THIS_BATCH
    return SubscriptionChanged()


def _unlink(engine: Engine, batch: Batch, found: Subscription, paths: tuple[str, ...]) -> None:
    """Remove explicit links; a stream that the glob matches goes on being followed by it."""
    glob = found.config.pattern
    dropped = []
    for path in paths:
        link = found.links.get(path)
        if link is None or link.link_type != EXPLICIT:
            continue
        if glob is not None and compile_glob(glob)(path):
            engine.subscriptions.link(batch, found, [Link(path, GLOB, link.acked)])
        else:
            del found.links[path]
            found.pending.pop(path, None)
            dropped.append(path)
    if dropped:
        batch.changes.append(DropLinks(found.id, dropped))


def apply_key(engine: Engine, batch: Batch, outcome: Outcome, command: GetSigningKey) -> SigningKey:
    return SigningKey(engine.subscriptions.seed(batch, outcome))


SUBSCRIPTION_COMMANDS: dict[type, Callable[..., Any]] = {
    PutSubscription: apply_put,
    GetSubscription: apply_get,
    DeleteSubscription: apply_delete,
    LinkStreams: apply_link,
    GetSigningKey: apply_key,
    **wakes.WAKE_COMMANDS,
}

"""Subscriptions in the catalog: their rows, and the changes that make, move and forget them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw


class SubscriptionRecord(NamedTuple):
    """A subscription with the state of its wake."""

    id: str
    config_json: str
    config_hash: str
    created_ts: int
    phase: str
    generation: int
    wake_id: str
    holder: str
    token_hash: str
    lease_until: int
    attempt: int
    next_retry_ts: int


class LinkRecord(NamedTuple):
    """A stream that a subscription follows, and the position it has acknowledged."""

    subscription: str
    path: str
    link_type: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class SaveSubscription:
    """Insert a subscription, or replace the state of the one of that id."""

    record: SubscriptionRecord


@dataclass(frozen=True, slots=True)
class SaveLinks:
    """Insert or move links; those of a subscription that is gone are skipped."""

    links: Sequence[LinkRecord]


@dataclass(frozen=True, slots=True)
class DropLinks:
    subscription: str
    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """Forget a subscription and its links; nothing happens when it is gone."""

    id: str


SubscriptionChange = SaveSubscription | SaveLinks | DropLinks | DropSubscription

_SAVE = """
INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET config = excluded.config, config_hash = excluded.config_hash, phase = excluded.phase,
    generation = excluded.generation, wake_id = excluded.wake_id, holder = excluded.holder,
    token_hash = excluded.token_hash, lease_until = excluded.lease_until,
    attempt = excluded.attempt, next_retry_ts = excluded.next_retry_ts
"""
_SAVE_LINK = """
INSERT INTO subscription_links
SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM subscriptions WHERE id = ?1)
ON CONFLICT (subscription, path) DO UPDATE
SET link_type = excluded.link_type, epoch = excluded.epoch, seq = excluded.seq
"""
LIST_SUBSCRIPTIONS = """
SELECT id, config, config_hash, created_ts, phase, generation, wake_id, holder, token_hash,
       lease_until, attempt, next_retry_ts
FROM subscriptions ORDER BY id
"""
LIST_LINKS = """
SELECT subscription, path, link_type, epoch, seq FROM subscription_links
ORDER BY subscription, path
"""


def _save_subscription(connection: apsw.Connection, change: SaveSubscription) -> None:
    connection.execute(_SAVE, change.record)


def _save_links(connection: apsw.Connection, change: SaveLinks) -> None:
    connection.executemany(_SAVE_LINK, change.links)


def _drop_links(connection: apsw.Connection, change: DropLinks) -> None:
    connection.executemany(
        "DELETE FROM subscription_links WHERE subscription = ? AND path = ?",
        [(change.subscription, path) for path in change.paths],
    )


def _drop_subscription(connection: apsw.Connection, change: DropSubscription) -> None:
    connection.execute("DELETE FROM subscription_links WHERE subscription = ?", (change.id,))
    connection.execute("DELETE FROM subscriptions WHERE id = ?", (change.id,))


APPLY_SUBSCRIPTIONS: dict[type, Callable[[apsw.Connection, Any], None]] = {
    SaveSubscription: _save_subscription,
    SaveLinks: _save_links,
    DropLinks: _drop_links,
    DropSubscription: _drop_subscription,
}

"""Subscriptions to streams: what one is, and what workers ask the engine about it (spec 1.16).

A subscription follows streams by a glob, by name, or both. When one of them has entries that
are not acknowledged it wakes somebody: by a webhook, or by an event in a wake stream.
"""

from __future__ import annotations

from typing import Final

import msgspec

WEBHOOK: Final = "webhook"
PULL: Final = "pull-wake"
LEASE_MS_MIN, LEASE_MS_MAX, LEASE_MS_DEFAULT = 1000, 600_000, 30_000


class SubscriptionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription was created with, in its normal form."""

    type: str
    pattern: str | None = None
    streams: tuple[str, ...] = ()
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int = LEASE_MS_DEFAULT
    description: str | None = None


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where the creating client reached the server, and how offsets are spelled there."""

    url: str
    spelling: str


class LinkedStream(msgspec.Struct, array_like=True, frozen=True):
    """A stream of a subscription; positions are epoch and entries, (0, 0) for the start."""

    path: str
    link_type: str
    acked: tuple[int, int]
    # None when there is no such stream.
    tail: tuple[int, int] | None = None
    has_pending: bool = False


class PutSubscription(msgspec.Struct, array_like=True, tag=True, frozen=True):
    id: str
    config: SubscriptionConfig
    place: Place
    # Prefixes of the names that the key may touch; none for all.
    allow: tuple[str, ...] = ()


class GetSubscription(msgspec.Struct, array_like=True, tag=True, frozen=True):
    id: str
    allow: tuple[str, ...] = ()


class DeleteSubscription(msgspec.Struct, array_like=True, tag=True, frozen=True):
    id: str
    allow: tuple[str, ...] = ()


class LinkStreams(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Add and remove explicit links; both may be repeated."""

    id: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


class ClaimWake(msgspec.Struct, array_like=True, tag=True, frozen=True):
    id: str
    holder: str
    allow: tuple[str, ...] = ()


class Ack(msgspec.Struct, array_like=True, frozen=True):
    """A position that is done with."""

    path: str
    epoch: int
    entries: int


class AckWake(msgspec.Struct, array_like=True, tag=True, frozen=True, kw_only=True):
    """Acknowledge positions, prolong the lease, or with `done` give it back."""

    id: str
    token: str
    wake_id: str
    generation: int
    acks: tuple[Ack, ...] = ()
    done: bool = False


class ReleaseWake(msgspec.Struct, array_like=True, tag=True, frozen=True):
    id: str
    token: str
    wake_id: str
    generation: int


class GetSigningKey(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """The seed of the Ed25519 key, made when it is first asked for."""


class NextDelivery(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Answered when there is a webhook to send, and not before."""

    worker: int


class DeliveryDone(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """What became of a webhook: whether it was taken, and whether its work is done."""

    id: str
    wake_id: str
    ok: bool
    done: bool


class SubscriptionFound(msgspec.Struct, array_like=True, tag=True, frozen=True):
    id: str
    config: SubscriptionConfig
    created_ts: int
    links: list[LinkedStream]
    created: bool = False
    # For those that are told the signing key.
    seed: bytes = b""


class SubscriptionChanged(msgspec.Struct, array_like=True, tag=True, frozen=True):
    pass


class WakeClaimed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    wake_id: str
    generation: int
    token: str
    lease_ttl_ms: int
    links: list[LinkedStream]


class WakeAcked(msgspec.Struct, array_like=True, tag=True, frozen=True):
    next_wake: bool


class SigningKey(msgspec.Struct, array_like=True, tag=True, frozen=True):
    seed: bytes


class Delivery(msgspec.Struct, array_like=True, tag=True, frozen=True, kw_only=True):
    """A webhook to send."""

    id: str
    wake_id: str
    generation: int
    url: str
    token: str
    place: Place
    links: list[LinkedStream]
    seed: bytes


SubscriptionCommand = (
    PutSubscription
    | GetSubscription
    | DeleteSubscription
    | LinkStreams
    | ClaimWake
    | AckWake
    | ReleaseWake
    | GetSigningKey
    | NextDelivery
    | DeliveryDone
)
SubscriptionReply = (
    SubscriptionFound | SubscriptionChanged | WakeClaimed | WakeAcked | SigningKey | Delivery
)

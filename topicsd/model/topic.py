"""The topic configuration object of API 0.10: its fields, defaults, clamps and echo.

`TopicConfig` is always complete and already clamped. `parse` turns a decoded JSON object
into one; unknown fields are ignored, a known field of the wrong type or an unknown value
of a known enum is refused. JSON has one type of number, so `10.0` and `1e1` are the integer
10. Stored in the catalog as JSON and echoed in full.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from topicsd.model import errors, names
from topicsd.model.stream import StreamConfig

TYPES = ("log", "queue")
DISCARDS = ("old", "reject")
DURABILITIES = ("ephemeral", "memory", "disk", "fsync")

U64_MAX = 2**64 - 1
PRIORITY_MAX = 1000
LEASE_MS_MIN, LEASE_MS_MAX = 100, 86_400_000
CLAIM_JITTER_MS_MAX = 5000
DELAY_MS_MAX = 86_400_000


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All seventeen fields of a topic, resolved and clamped, in the order they are echoed."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Literal["ephemeral", "memory", "disk", "fsync"] = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False
    # Of a durable stream only; left out of what is stored and echoed of a topic.
    stream: StreamConfig | msgspec.UnsetType = msgspec.UNSET


DEFAULT = TopicConfig()


def limits_of(config: TopicConfig) -> tuple[object, ...]:
    """What decides which records a topic loses to caps and expiry."""
    return config.ttl_ms, config.cap_records, config.cap_bytes, config.discard


def parse(raw: Any, topic: str) -> TopicConfig:
    """Read a configuration object for `topic`, or raise `invalid_request`."""
    if not isinstance(raw, dict):
        raise errors.invalid_request("config must be an object")
    return TopicConfig(
        type=_choice(raw, "type", TYPES, "log"),
        ttl_ms=_u64(raw, "ttl_ms", 0),
        cap_records=_u64(raw, "cap_records", 0),
        cap_bytes=_u64(raw, "cap_bytes", 0),
        discard=_choice(raw, "discard", DISCARDS, "old"),
        priority=_priority(raw),
        auto_priority=_bool(raw, "auto_priority", True),
        auto_create=_bool(raw, "auto_create", True),
        idempotency_window_ms=_u64(raw, "idempotency_window_ms", 120_000),
        dedupe_node=_bool(raw, "dedupe_node", True),
        lease_ms=min(max(_u64(raw, "lease_ms", 30_000), LEASE_MS_MIN), LEASE_MS_MAX),
        claim_jitter_ms=min(_u64(raw, "claim_jitter_ms", 0), CLAIM_JITTER_MS_MAX),
        max_deliveries=_u64(raw, "max_deliveries", 0),
        dead_letter=_dead_letter(raw, topic),
        leases_durable=_bool(raw, "leases_durable", False),
        **_durability(raw),
    )


def whole(value: Any) -> Any:
    """A number without a fraction as an integer, however it was written; others as they are."""
    return int(value) if type(value) is float and value.is_integer() else value


def _durability(raw: dict[str, Any]) -> dict[str, Any]:
    """An explicit `durability` wins; otherwise `durable` picks fsync or disk (API 0.10)."""
    durable = _bool(raw, "durable", False)
    resolved = _choice(raw, "durability", DURABILITIES, "fsync" if durable else "disk")
    return {"durable": resolved == "fsync", "durability": resolved}


def _choice(raw: dict[str, Any], field: str, allowed: tuple[str, ...], default: str) -> Any:
    value = raw.get(field, default)
    if value not in allowed or not isinstance(value, str):
        raise errors.invalid_request(f"{field} must be one of {', '.join(allowed)}", field=field)
    return value


def _u64(raw: dict[str, Any], field: str, default: int) -> int:
    value = whole(raw.get(field, default))
    if type(value) is not int or not 0 <= value <= U64_MAX:
        raise errors.invalid_request(f"{field} must be an unsigned 64-bit integer", field=field)
    return value


def _bool(raw: dict[str, Any], field: str, default: bool) -> bool:
    value = raw.get(field, default)
    if not isinstance(value, bool):
        raise errors.invalid_request(f"{field} must be true or false", field=field)
    return value


def _priority(raw: dict[str, Any]) -> int | None:
    value = whole(raw.get("priority"))
    if value is None:
        return None
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise errors.invalid_request("priority must be a 32-bit integer or null", field="priority")
    return min(max(value, -PRIORITY_MAX), PRIORITY_MAX)


def _dead_letter(raw: dict[str, Any], topic: str) -> str | None:
    value = raw.get("dead_letter")
    if value is None:
        return None
    if not isinstance(value, str) or not names.is_topic_name(value):
        raise errors.invalid_request(
            "dead_letter must name a topic or be null", field="dead_letter"
        )
    if value == topic:
        raise errors.invalid_request("dead_letter must differ from the topic", field="dead_letter")
    return value

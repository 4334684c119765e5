"""Effective priority of a topic (DESIGN 3): a manual part and a recency part.

    P = clamp(priority) + 500 * 2^(-idle / 30 s)

A manual priority overrides the recency part; after five idle minutes recency is 0. The
ageing part belongs to a waiting request, not to a topic, and is added by the scheduler.
"""

from __future__ import annotations

from topicsd.model.topic import TopicConfig

AUTO_MAX = 500
HALF_LIFE_MS = 30_000
AUTO_FLOOR_MS = 300_000
AGE_RATE_PER_S = 100
AGE_CAP_MS = 10_000
_STEPS = 64
# 2^-x for x in [0, 1), in steps of 1/64: the fractional part of the exponent.
_FRACTIONS = tuple(2.0 ** (-step / _STEPS) for step in range(_STEPS))


def recency(idle_ms: int) -> int:
    """The recency part after `idle_ms` without a read."""
    if idle_ms >= AUTO_FLOOR_MS:
        return 0
    halvings, remainder = divmod(max(idle_ms, 0), HALF_LIFE_MS)
    fraction: float = _FRACTIONS[remainder * _STEPS // HALF_LIFE_MS]
    return round(AUTO_MAX * fraction / (1 << halvings))


def age_boost(waited_ms: int) -> int:
    """The ageing part of a request that has waited: it climbs, and stops climbing."""
    return AGE_RATE_PER_S * min(max(waited_ms, 0), AGE_CAP_MS) // 1000


def effective(config: TopicConfig, last_read_ts: int | None, now_ms: int) -> int:
    """The priority the scheduler uses right now."""
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or last_read_ts is None:
        return 0
    return recency(now_ms - last_read_ts)

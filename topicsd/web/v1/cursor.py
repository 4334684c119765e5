"""Cursors that let caches collapse requests of the same moment (streams spec 1.11)."""

from __future__ import annotations

import random
import re
from typing import Final

INTERVAL_MS: Final = 20_000
# 2024-10-09T00:00:00Z
EPOCH_MS: Final = 1_728_432_000_000
JITTER_S_MAX: Final = 3600

_NUMBER = re.compile(r"[0-9]{1,18}")


def next_cursor(sent: str | None, now_ms: int) -> str:
    """The interval of now, or one past what the client has: never the same, never back."""
    current = (now_ms - EPOCH_MS) // INTERVAL_MS
    if sent is None or _NUMBER.fullmatch(sent) is None or int(sent) < current:
        return str(current)
    jitter_s = random.randint(1, JITTER_S_MAX)
    return str(int(sent) + max(1, -(-jitter_s * 1000 // INTERVAL_MS)))

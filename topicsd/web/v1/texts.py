"""Header and parameter values of streams as text: durations, times, numbers (streams spec 2)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from topicsd.model import errors

SAFE_INTEGER_MAX: Final = 2**53 - 1
# The last moment of the year 9999.
TIME_MS_MAX: Final = 253_402_300_799_999
DURATION_MS_MAX: Final = 2**53 - 1

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(0|[1-9][0-9]{0,15})(ms|s|m|h|d)?")
_WHOLE = re.compile(r"[0-9]{1,16}")
_COUNT = re.compile(r"0|[1-9][0-9]{0,15}")
_NANOS = re.compile(r"[0-9]{1,20}")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def parse_duration_ms(text: str, field: str) -> int:
    """`0`, whole seconds without leading zeros, or a number with a unit."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise errors.invalid_request(f"{field} must be seconds or a duration", field=field)
    return min(int(found[1]) * _UNITS_MS[found[2] or "s"], DURATION_MS_MAX)


def parse_ttl_ms(text: str) -> int:
    """A lifetime: a duration that makes whole seconds."""
    ttl_ms = parse_duration_ms(text, "Stream-TTL")
    if ttl_ms % 1000:
        raise errors.invalid_request("Stream-TTL must be whole seconds", field="Stream-TTL")
    return ttl_ms


def parse_time_ms(text: str, field: str) -> int:
    """RFC 3339 with up to nanoseconds, in milliseconds, rounded down."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise errors.invalid_request(f"{field} must be an RFC 3339 time", field=field)
    date, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError:
        raise errors.invalid_request(f"{field} must be an RFC 3339 time", field=field) from None
    return int(moment.timestamp()) * 1000 + int((fraction or "0").ljust(9, "0")[:3])


def parse_stamp_ms(text: str, field: str) -> int:
    """The same, or nanoseconds since 1970."""
    if _NANOS.fullmatch(text) is not None:
        stamp_ms = int(text) // 1_000_000
    else:
        stamp_ms = parse_time_ms(text, field)
    if not 0 <= stamp_ms <= TIME_MS_MAX:
        raise errors.invalid_request(f"{field} is out of range", field=field)
    return stamp_ms


def build_time(time_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def parse_number(text: str, field: str) -> int:
    """A producer's number: digits only, within what JavaScript counts exactly."""
    if _WHOLE.fullmatch(text) is None or int(text) > SAFE_INTEGER_MAX:
        raise errors.invalid_request(f"{field} must be an integer below 2^53", field=field)
    return int(text)


def parse_count(text: str, field: str) -> int:
    """A number without leading zeros."""
    if _COUNT.fullmatch(text) is None:
        raise errors.invalid_request(f"{field} must be an unsigned integer", field=field)
    return int(text)

"""Names of topics and routers: what they may contain (API 1.1, 12).

A name is compared byte for byte and never becomes a path component.
"""

from __future__ import annotations

import re

from topicsd.model import errors

_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")


_ROUTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")
# No control characters, nothing that a path could be normalised away by.
_STREAM_SEGMENT = re.compile(r"[^\x00-\x1f\x7f\ufffd/]+\Z")
_STREAM_RESERVED = frozenset({"pk", "touch", ".", ".."})
STREAM_NAME_BYTES_MAX = 512
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z|\Z")


def check_prefix(prefix: str) -> str:
    """Return what names may start with, or raise `invalid_request`; empty means any name."""
    if _PREFIX.match(prefix) is None:
        raise errors.invalid_request("a prefix is the beginning of a topic name", field="prefixes")
    return prefix


def is_topic_name(name: str) -> bool:
    return _TOPIC.match(name) is not None


def is_stream_name(name: str) -> bool:
    """Whether a stream may have this name: path segments that stand for nothing else."""
    segments = name.split("/")
    return (
        all(_STREAM_SEGMENT.match(segment) is not None for segment in segments)
        and _STREAM_RESERVED.isdisjoint(segments)
        and not segments[-1].startswith("_")
        and segments[0] != "__ds"
        and len(name.encode(errors="replace")) <= STREAM_NAME_BYTES_MAX
    )


def check_stream_name(name: str) -> str:
    """Return `name`, or raise `invalid_request`."""
    if not is_stream_name(name):
        raise errors.invalid_request(
            f"a stream name has 1 to {STREAM_NAME_BYTES_MAX} bytes in segments that are not "
            "empty, `pk` or `touch`; the last one does not start with _",
            stream=name[:300],
        )
    return name


def is_router_name(name: str) -> bool:
    return _ROUTER.match(name) is not None


def check_router_name(name: str) -> str:
    """Return `name`, or raise `invalid_request`."""
    if not is_router_name(name):
        raise errors.invalid_request(
            "a router name has 1 to 255 characters of A-Z a-z 0-9 . _ : - > "
            "and starts with a letter or digit",
            router=name[:300],
        )
    return name


def check_topic_name(name: str) -> str:
    """Return `name`, or raise `invalid_request`."""
    if not is_topic_name(name):
        raise errors.invalid_request(
            "a topic name has 1 to 255 characters of A-Z a-z 0-9 . _ : - "
            "and starts with a letter or digit",
            topic=name[:300],
        )
    return name

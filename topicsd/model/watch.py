"""What a watch asks for: the body of `POST /v0/watch`, and the definition a session keeps.

The WebSocket's `subscribe` has the same fields, so both parse with the same rules.
"""

from __future__ import annotations

from typing import Any

import msgspec

from topicsd.model import errors, names
from topicsd.model.match import Match, parse_match
from topicsd.model.topic import U64_MAX

KIB = 1024
MIB = 1024 * KIB
LIMIT_DEFAULT = 256
BATCH_BYTES_DEFAULT = 256 * KIB
BATCH_BYTES_SERVER = MIB
BATCH_BYTES_MAX = 8 * MIB
HEARTBEAT_MS_DEFAULT = 15_000
HEARTBEAT_MS_MIN = 1000
HEARTBEAT_MS_MAX = 60_000
CONSISTENCIES = ("eventual", "strong")


class TopicOptions(msgspec.Struct):
    """Options of one topic, or of a prefix."""

    from_seq: int = 0
    tail: bool = False
    match: Any = msgspec.UNSET


class PrefixOptions(TopicOptions, kw_only=True):
    """A prefix with options, as our extension takes it."""

    prefix: str


class View(msgspec.Struct, kw_only=True):
    """How records are delivered, whatever the topic."""

    node: str | list[str] | None = None
    limit: int = LIMIT_DEFAULT
    max_batch_bytes: int = BATCH_BYTES_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: str = "eventual"


class WatchBody(View, kw_only=True):
    """The request."""

    topics: dict[str, TopicOptions] = msgspec.field(default_factory=dict)
    prefixes: list[str | PrefixOptions] = msgspec.field(default_factory=list)
    heartbeat_ms: int = HEARTBEAT_MS_DEFAULT


class Filter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session remembers of a prefix or of a topic's filter."""

    from_seq: int = 0
    tail: bool = False
    match: Match | None = None


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The definition of a session: everything but its cursors."""

    nodes: tuple[str, ...] = ()
    limit: int = LIMIT_DEFAULT
    max_batch_bytes: int = BATCH_BYTES_DEFAULT
    heartbeat_ms: int = HEARTBEAT_MS_DEFAULT
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    strong: bool = False
    matches: dict[str, Match] = {}
    prefixes: dict[str, Filter] = {}
    # Which topics the session was created with, for its event ids.
    epochs: dict[str, int] = {}

    def follows(self, name: str) -> bool:
        """Whether a prefix finds a topic of that name."""
        return name.startswith(tuple(self.prefixes))


def build_spec(body: WatchBody, *, limit_max: int, heartbeat_ms_min: int) -> Spec:
    """Check and clamp a request."""
    for field in ("limit", "max_batch_bytes", "heartbeat_ms"):
        if getattr(body, field) < 0:
            raise errors.invalid_request(f"{field} must not be negative", field=field)
    if body.consistency not in CONSISTENCIES:
        raise errors.invalid_request("consistency must be eventual or strong", field="consistency")
    node = body.node
    return Spec(
        nodes=() if node is None else (node,) if isinstance(node, str) else tuple(node),
        limit=min(body.limit or LIMIT_DEFAULT, limit_max),
        max_batch_bytes=min(body.max_batch_bytes or BATCH_BYTES_SERVER, BATCH_BYTES_MAX),
        heartbeat_ms=min(max(body.heartbeat_ms, heartbeat_ms_min), HEARTBEAT_MS_MAX),
        include_meta=body.include_meta,
        include_tags=body.include_tags,
        include_data=body.include_data,
        strong=body.consistency == "strong",
        matches={
            name: match
            for name, options in body.topics.items()
            if (match := read_match(options)) is not None
        },
        prefixes=dict(_read_prefix(asked) for asked in body.prefixes),
    )


def check_options(name: str, options: TopicOptions) -> None:
    """A topic's name and where it starts."""
    names.check_topic_name(name)
    check_from_seq(options.from_seq, f"topics.{name}.from_seq")


def check_from_seq(from_seq: int, field: str = "from_seq") -> None:
    if not 0 <= from_seq <= U64_MAX:
        raise errors.invalid_request(f"{field} must be an unsigned 64-bit integer", field=field)


def read_match(options: TopicOptions) -> Match | None:
    return None if options.match is msgspec.UNSET else parse_match(options.match)


def _read_prefix(asked: str | PrefixOptions) -> tuple[str, Filter]:
    options = PrefixOptions(prefix=asked) if isinstance(asked, str) else asked
    names.check_prefix(options.prefix)
    check_from_seq(options.from_seq, "prefixes.from_seq")
    return options.prefix, Filter(options.from_seq, options.tail, read_match(options))

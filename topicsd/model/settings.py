"""Every setting of the server: one table, which is the `Settings` class itself.

A field's annotation carries its bounds and its one line of documentation; the variable is
`TOPICS_` plus the field's name in capitals, the key in a TOML file the name itself.
`topicsd.model.sources` parses against this table, `topicsd config` prints it, and a law test
compares README.md and etc/topicsd.toml with it, so a setting exists in one place.

Settings are values: parsed once, frozen, safe to pickle and to fork. They hold digests of
the API keys, never the keys.
"""

from __future__ import annotations

import ipaddress
import os
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from topicsd.model.keys import KeyRing

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
DAY_MS = 86_400_000
COUNT_MAX = 2**31 - 1
U63_MAX = 2**63 - 1

_SHARED_MEMORY = Path("/dev/shm")
_WAL_SHARDS_MAX = 8
# Compared by identity: stands for a directory derived from data_dir.
_DERIVED = Path("derived")


class Doc(NamedTuple):
    """What the table says of a setting beside its name, type and default."""

    text: str
    low: int | None = None
    high: int | None = None
    secret: bool = False


def _default_wal_shards() -> int:
    return min(os.cpu_count() or 1, _WAL_SHARDS_MAX)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings; every field has a default, so tests name only what matters."""

    host: Annotated[str, Doc("address to bind, `host` or `host:port`")] = "127.0.0.1"
    port: Annotated[int, Doc("TCP port; 0 takes any free one", 0, 65535)] = 4000
    port_file: Annotated[
        Path | None, Doc("file that receives `host:port` once the server accepts")
    ] = None
    api_keys: Annotated[
        KeyRing, Doc("comma-separated `key[:scopes[:prefixes]]`; unset = no auth", secret=True)
    ] = KeyRing()
    allow_insecure_no_auth: Annotated[bool, Doc("allow a non-loopback bind without API keys")] = (
        False
    )
    probe_auth: Annotated[bool, Doc("require a key on health and readiness probes too")] = False
    data_dir: Annotated[Path, Doc("directory that holds everything the server stores")] = Path(
        "data"
    )
    cold_dir: Annotated[
        Path | None, Doc("directory for sealed segments moved off the hot disk")
    ] = None
    ephemeral_dir: Annotated[
        Path, Doc("where ephemeral topics get a directory; unset = /dev/shm, else <data>/ephemeral")
    ] = _DERIVED
    workers: Annotated[int, Doc("HTTP worker processes", 1, 256)] = 1
    single_process: Annotated[bool, Doc("run the engine inside one worker process")] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Doc("least severe log line written")
    ] = "info"
    drain_timeout_ms: Annotated[
        int, Doc("how long a stopping server waits for requests in flight", 0, 600_000)
    ] = 8000

    wal_shards: Annotated[
        int, Doc("write-ahead logs, each with a sync thread; default min(cores, 8)", 1, 64)
    ] = msgspec.field(default_factory=_default_wal_shards)
    wal_file_bytes: Annotated[
        int, Doc("preallocated size of one write-ahead log file", 64 * KIB, GIB)
    ] = 64 * MIB
    wal_sync_interval_ms: Annotated[
        int, Doc("how soon disk-class records are synced", 1, 60_000)
    ] = 5
    checkpoint_bytes: Annotated[
        int, Doc("write-ahead log bytes after which a checkpoint is taken", 64 * KIB, TIB)
    ] = 256 * MIB
    checkpoint_frames: Annotated[
        int, Doc("write-ahead log frames after which one is taken, too", 1000, COUNT_MAX)
    ] = 250_000
    checkpoint_interval_ms: Annotated[
        int, Doc("longest time between checkpoints while there are writes", 100, DAY_MS)
    ] = 60_000

    segment_max_events: Annotated[
        int, Doc("records after which a segment is sealed", 1, 10_000_000)
    ] = 1_000_000
    segment_max_bytes: Annotated[
        int, Doc("bytes after which a segment is sealed", 4 * KIB, GIB)
    ] = 64 * MIB
    segment_max_age_ms: Annotated[
        int, Doc("age after which a segment is sealed; 0 = never by age", 0, U63_MAX)
    ] = 3_600_000
    hot_retain_segments: Annotated[
        int, Doc("sealed segments of a topic kept on the hot disk when tiering", 0, COUNT_MAX)
    ] = 4
    hot_retain_bytes: Annotated[
        int, Doc("sealed bytes of a topic kept on the hot disk; 0 = no limit", 0, U63_MAX)
    ] = 0
    open_segments: Annotated[
        int, Doc("segment files each process keeps open and mapped", 8, 1_000_000)
    ] = 512
    topic_cache: Annotated[
        int, Doc("topic descriptions each process keeps in memory", 16, 10_000_000)
    ] = 20_000
    throttle_lag_ms: Annotated[
        int, Doc("event-loop lag above which requests wait their turn; 0 = never", 0, 60_000)
    ] = 250
    throttle_wait_ms: Annotated[
        int, Doc("longest wait for a turn before a request is throttled", 1, 60_000)
    ] = 2000
    metrics_topics: Annotated[
        int, Doc("topics that get lines of their own in metrics; 0 = none", 0, 100_000)
    ] = 1000

    watch_session_ttl_ms: Annotated[
        int, Doc("how long a watch session without a stream is kept", 1000, COUNT_MAX)
    ] = 300_000
    watch_buffer_grace_ms: Annotated[
        int, Doc("how long a stream may lag before lossy topics skip ahead", 0, DAY_MS)
    ] = 5000
    slow_consumer_timeout_ms: Annotated[
        int, Doc("how long a stream may be stuck before it is closed", 1, DAY_MS)
    ] = 30_000
    stream_buffer_bytes: Annotated[
        int, Doc("outbound bytes after which a stream waits for its client", KIB, 64 * MIB)
    ] = 64 * KIB

    stream_long_poll_ms: Annotated[
        int | None, Doc("default and longest long poll of streams; unset = 3 s, 30 s", 1, 60_000)
    ] = None
    stream_offsets: Annotated[
        Literal["auto", "padded", "base32"], Doc("spelling of stream offsets; auto = by path")
    ] = "auto"
    stream_durability: Annotated[
        Literal["ephemeral", "memory", "disk", "fsync"], Doc("durability class of new streams")
    ] = "fsync"
    stream_max_body_bytes: Annotated[int, Doc("largest body of an append", KIB, GIB)] = 64 * MIB
    stream_retention_age_ms: Annotated[
        int, Doc("age at which entries of new streams are dropped; 0 = never", 0, U63_MAX)
    ] = 0
    stream_retention_bytes: Annotated[
        int, Doc("payload bytes that new streams keep; 0 = all", 0, U63_MAX)
    ] = 0
    public_url: Annotated[
        str, Doc("where clients reach this server; unset = what they put in Host")
    ] = ""

    max_body_bytes: Annotated[int, Doc("largest request body", KIB, GIB)] = 64 * MIB
    max_batch_records: Annotated[int, Doc("records in one write", 1, 1_000_000)] = 10_000
    max_record_bytes: Annotated[int, Doc("bytes of data plus meta of one record", 1, 256 * MIB)] = (
        MIB
    )
    # The index row counts the bytes around a payload in 16 bits; escaping a tag or node can
    # make it six times as long.
    max_meta_bytes: Annotated[int, Doc("bytes of meta of one record", 2, 65_000)] = 16 * KIB
    max_tag_bytes: Annotated[int, Doc("bytes of a tag", 1, 4096)] = 256
    max_node_bytes: Annotated[int, Doc("bytes of a node name", 1, 4096)] = 128
    max_limit: Annotated[int, Doc("records one read may ask for", 1, 1_000_000)] = 1000
    max_response_bytes: Annotated[
        int, Doc("byte budget of one read's records; one record always fits", KIB, 8 * MIB)
    ] = MIB
    max_claim: Annotated[int, Doc("jobs in one claim, ack, nack or extend", 1, 100_000)] = 1000
    max_watch_topics: Annotated[int, Doc("topics in one watch session", 1, 100_000)] = 256

    max_topics: Annotated[int, Doc("topics; 0 = unlimited", 0, COUNT_MAX)] = 100_000
    max_streams: Annotated[int, Doc("streams; 0 = unlimited", 0, COUNT_MAX)] = 0
    max_routers: Annotated[int, Doc("routers; 0 = unlimited", 0, COUNT_MAX)] = 10_000
    max_watch_sessions: Annotated[int, Doc("watch sessions; 0 = unlimited", 0, COUNT_MAX)] = 10_000
    max_sse_connections: Annotated[
        int, Doc("open event streams and WebSockets; 0 = unlimited", 0, COUNT_MAX)
    ] = 10_000
    max_sse_connections_per_key: Annotated[
        int, Doc("open event streams and WebSockets of one key; 0 = unlimited", 0, COUNT_MAX)
    ] = 1000
    max_inflight_per_key: Annotated[
        int, Doc("requests of one key served at the same time; 0 = unlimited", 0, COUNT_MAX)
    ] = 1000
    max_total_bytes: Annotated[
        int, Doc("payload bytes retained over all topics; 0 = unlimited", 0, U63_MAX)
    ] = 0

    test_clock_file: Annotated[
        Path | None, Doc("tests only: 8-byte file of milliseconds added to the clock")
    ] = None
    test_lag_file: Annotated[
        Path | None, Doc("tests only: 8-byte file of the event-loop lag to believe, milliseconds")
    ] = None
    test_min_heartbeat_ms: Annotated[
        int | None, Doc("tests only: lowest heartbeat interval a client may ask for", 1, 1000)
    ] = None

    def __post_init__(self) -> None:
        if self.ephemeral_dir is _DERIVED:
            msgspec.structs.force_setattr(
                self, "ephemeral_dir", _derive_ephemeral_dir(self.data_dir)
            )


class Spec(NamedTuple):
    """One row of the table, as parsing, printing and tests read it."""

    name: str
    kind: type
    choices: tuple[str, ...]
    optional: bool
    doc: Doc

    @property
    def variable(self) -> str:
        return variable(self.name)


class SettingsError(ValueError):
    """A setting that the server refuses to start with; the text is for people."""


def variable(name: str) -> str:
    """The environment variable of the setting `name`."""
    return f"TOPICS_{name.upper()}"


@cache
def specs() -> dict[str, Spec]:
    """Every setting by name, in the order of the table."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: _describe(name, hints[name]) for name in Settings.__struct_fields__}


def _describe(name: str, hint: Any) -> Spec:
    declared, doc = get_args(hint)
    members = get_args(declared)
    if NoneType in members:
        return Spec(name, members[0], (), True, doc)
    if members:
        return Spec(name, str, members, False, doc)
    return Spec(name, declared, (), False, doc)


def _derive_ephemeral_dir(data_dir: Path) -> Path:
    """Shared memory where the machine has it, else a directory beside the data."""
    if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        return _SHARED_MEMORY
    return data_dir / "ephemeral"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`; a name other than localhost cannot be
    known without asking a resolver, so it counts as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(settings: Settings) -> None:
    """Refuse a bind that would let strangers in: reachable from outside and without keys."""
    if settings.api_keys or settings.allow_insecure_no_auth or is_loopback(settings.host):
        return
    raise SettingsError(
        f"TOPICS_HOST={settings.host} is reachable from other machines and no API keys are set: "
        "set TOPICS_API_KEYS, bind 127.0.0.1, or accept the risk with "
        "TOPICS_ALLOW_INSECURE_NO_AUTH=1"
    )

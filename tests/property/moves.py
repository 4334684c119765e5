"""What the state machine may do: operations, how they are drawn, and what they contain."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.property.oracle import Content
from topicsd.model.commands import Append
from topicsd.model.record import pack_record
from topicsd.model.topic import DURABILITIES, TopicConfig

NAMES = ("a", "b:1", "b:2", "c-")
NODES = ("n1", "n2", 'quoted "n" ü')
_TAGS = (None, None, "t", "tenant:ä\\1", "100%d")
_METAS = (None, None, b"{}", b'{"trace":"abc", "n":[1,2.50]}')


class Write(NamedTuple):
    name: str
    contents: list[Content]
    key: str | None
    config: TopicConfig | None


class Put(NamedTuple):
    name: str
    config: TopicConfig


class Delete(NamedTuple):
    name: str
    if_empty: bool


Move = Write | Put | Delete

_limits: dict[str, st.SearchStrategy[Any]] = {
    "ttl_ms": st.sampled_from((0, 0, 50, 5000)),
    "cap_records": st.sampled_from((0, 0, 3, 40, 200)),
    "cap_bytes": st.sampled_from((0, 0, 600, 20_000)),
    "discard": st.sampled_from(("old", "old", "reject")),
    "dedupe_node": st.sampled_from((True, True, False)),
}
configs = st.builds(
    TopicConfig,
    durability=st.sampled_from(DURABILITIES),
    idempotency_window_ms=st.sampled_from((120_000, 120_000, 0, 500)),
    **_limits,
)
names = st.sampled_from(NAMES)


def contents(count: int, size_max: int, seed: int) -> list[Content]:
    """Records of pseudo-random sizes and members; the same arguments give the same ones."""
    rng = random.Random(f"{count}/{size_max}/{seed}")
    nodes = (None, *NODES)
    return [
        Content(
            _data(rng, rng.randint(1, size_max)),
            rng.choice(_TAGS),
            rng.choice(nodes),
            rng.choice(_METAS),
        )
        for _ in range(count)
    ]


def _data(rng: random.Random, size: int) -> bytes:
    """A JSON value of exactly `size` bytes."""
    if size < 4:
        return b"%d" % rng.randint(10 ** (size - 1), 10**size - 1)
    body = rng.choice((b"z", b" ", b"\xc3\xa4", b'\\"', b"%d")) * (size - 2)
    body = body[: (size - 2) // 2 * 2]
    return b'"' + body + b"x" * (size - 2 - len(body)) + b'"'


_contents_drawn = st.builds(
    contents,
    st.one_of(st.integers(1, 6), st.integers(1, 60), st.integers(1, 300)),
    st.sampled_from((3, 60, 700, 5000)),
    st.integers(0, 2**16),
)
writes = st.builds(
    Write,
    names,
    _contents_drawn,
    st.sampled_from((None, None, None, "k1", "k2", "k3")),
    st.one_of(st.none(), configs),
)
puts = st.builds(Put, names, configs)
deletes = st.builds(Delete, names, st.booleans())
_moves: st.SearchStrategy[Move] = st.one_of(writes, writes, writes, puts, deletes)


def _to_one_topic(batch: list[Write], name: str) -> list[Write]:
    return [write._replace(name=name) for write in batch]


# Several writes to one log in a batch are one chunk, which may outgrow its segment midway.
_bursts = st.builds(_to_one_topic, st.lists(writes, min_size=2, max_size=4), names)
# Batches applied back to back, before the first one's replies are taken.
pipelines = st.lists(
    st.one_of(st.lists(_moves, min_size=1, max_size=5), _bursts), min_size=1, max_size=3
)


class Page(NamedTuple):
    """A read; the cursor counts back from the head, below 0 it is ahead of it."""

    behind_head: int
    limit: int
    nodes: tuple[str, ...]
    tags: bool
    meta: bool
    max_bytes: int


pages = st.builds(
    Page,
    st.one_of(st.integers(-3, 8), st.integers(0, 700), st.just(10_000)),
    st.one_of(st.integers(1, 8), st.integers(1, 400)),
    st.lists(st.sampled_from(NODES), unique=True, max_size=2).map(tuple),
    st.booleans(),
    st.booleans(),
    st.sampled_from((1, 300, 20_000, 1 << 30)),
)


def append_command(move: Write, key: str | None) -> Append:
    """The command a worker would send."""
    packed = [pack_record(*content) for content in move.contents]
    return Append(
        move.name,
        len(move.contents),
        b"".join(rest for rest, _ in packed),
        b"".join(row for _, row in packed),
        sum(content.payload_bytes for content in move.contents),
        config=move.config,
        idempotency_key=key,
    )

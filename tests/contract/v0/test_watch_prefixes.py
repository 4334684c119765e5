"""Our extensions of a watch: `prefixes` follows topics by name, `match` filters by tag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import EventStream, Watching, delivered

AsKey = Callable[[str], Api]
WatchingAs = Callable[[str], Watching]


def follow(watching: Watching, *prefixes: Any, **fields: Any) -> EventStream:
    body = good(watching.api.watch(prefixes=list(prefixes), **fields))
    return watching.open(body["wid"])


def tagged(api: Api, topic: str, *tags: str) -> None:
    records = [{"data": number, "tag": tag} for number, tag in enumerate(tags, start=1)]
    assert api.write(topic, records).status_code in (200, 201)


def test_a_prefix_follows_what_exists_and_what_comes(
    api: Api, topic: str, watching: Watching
) -> None:
    """Existing topics from their beginning, future ones from their first record."""
    old, new, other = f"{topic}:old", f"{topic}:new", f"x{topic}:other"
    good(api.append(old, 1, 2), 201)
    good(api.append(other, 1), 201)
    body = good(api.watch(prefixes=[f"{topic}:"]))
    assert body["topics"] == {old: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}}
    stream = watching.open(body["wid"])
    assert stream.payloads(old, 2) == [1, 2]
    stream.until("caught-up", old)
    good(api.append(new, "first"), 201)
    assert stream.payloads(new, 1) == ["first"]
    good(api.append(new, "second"))
    good(api.append(old, 3))
    assert stream.payloads(new, 1) + stream.payloads(old, 1) == ["second", 3]
    assert not delivered(stream.frames, other)


def test_a_prefix_may_match_nothing_yet(api: Api, topic: str, watching: Watching) -> None:
    """A session of no topics waits for the first."""
    body = good(api.watch(prefixes=[f"{topic}:"]))
    assert body["topics"] == {}
    stream = watching.open(body["wid"])
    assert stream.is_quiet(0.05)
    good(api.put(f"{topic}:a"), 201)
    good(api.append(f"{topic}:a", 1))
    assert stream.payloads(f"{topic}:a", 1) == [1]


def test_tail_of_a_prefix_skips_the_past_only(api: Api, topic: str, watching: Watching) -> None:
    """What exists starts at its head; a topic made later is new from its first record."""
    old, new = f"{topic}:old", f"{topic}:new"
    good(api.append(old, 1, 2), 201)
    stream = follow(watching, {"prefix": f"{topic}:", "tail": True})
    stream.until("caught-up", old)
    good(api.append(old, 3))
    good(api.append(new, "first", "second"), 201)
    assert stream.payloads(old, 1) == [3]
    assert stream.payloads(new, 2) == ["first", "second"]


def test_a_prefix_has_the_options_of_a_topic(api: Api, topic: str, watching: Watching) -> None:
    """from_seq and match hold for every topic of the prefix, also for future ones."""
    old, new = f"{topic}:old", f"{topic}:new"
    tagged(api, old, "a", "b", "a", "b")
    stream = follow(watching, {"prefix": f"{topic}:", "from_seq": 1, "match": "a"})
    assert stream.payloads(old, 1) == [3]
    stream.until("caught-up", old)
    tagged(api, new, "b", "a", "a")
    assert stream.payloads(new, 2) == [2, 3]
    assert not [frame for frame in stream.frames if frame.event == "tombstone"]


def test_a_topic_named_itself_keeps_its_own_options(
    api: Api, topic: str, watching: Watching
) -> None:
    """A topic that is both named and under a prefix is followed once."""
    named, other = f"{topic}:named", f"{topic}:other"
    for name in (named, other):
        good(api.append(name, 1, 2, 3), 201)
    body = good(api.watch({named: {"from_seq": 2}}, prefixes=[f"{topic}:"]))
    assert body["topics"][named]["from_seq"] == 2
    stream = watching.open(body["wid"])
    for _ in range(2):
        stream.until("caught-up")
    assert delivered(stream.frames, named) == [3]
    assert delivered(stream.frames, other) == [1, 2, 3]


def test_overlapping_prefixes_deliver_once(api: Api, topic: str, watching: Watching) -> None:
    """However many prefixes a name has, its records come once."""
    stream = follow(watching, f"{topic}:", f"{topic}:a", f"{topic}:a:")
    good(api.append(f"{topic}:a:b", 1, 2), 201)
    assert stream.payloads(f"{topic}:a:b", 2) == [1, 2]
    assert stream.is_quiet(0.1) or stream.frames[-1].event == "caught-up"
    assert delivered(stream.frames, f"{topic}:a:b") == [1, 2]


def test_a_topic_made_again_is_followed_again(api: Api, topic: str, watching: Watching) -> None:
    """topic-deleted ends the topic, not the prefix."""
    name = f"{topic}:a"
    good(api.append(name, "old"), 201)
    stream = follow(watching, f"{topic}:")
    stream.until("caught-up", name)
    good(api.delete(name))
    assert stream.until("topic-deleted").body["topic"] == name
    good(api.append(name, "new"), 201)
    assert stream.payloads(name, 1) == ["new"]


def test_a_session_remembers_its_prefixes(api: Api, topic: str, watching: Watching) -> None:
    """Topics made while nobody listened are delivered from their first record."""
    body = good(api.watch(prefixes=[f"{topic}:"]))
    first = watching.open(body["wid"])
    good(api.append(f"{topic}:a", 1), 201)
    assert first.payloads(f"{topic}:a", 1) == [1]
    first.until("caught-up")
    last_id = first.last_id
    first.close()
    good(api.append(f"{topic}:a", 2))
    good(api.append(f"{topic}:b", 1), 201)
    again = watching.open(body["wid"], last_id)
    for _ in range(2):
        again.until("caught-up")
    assert delivered(again.frames, f"{topic}:a") == [2]
    assert delivered(again.frames, f"{topic}:b") == [1]


def test_a_prefix_survives_a_crash(mortal: Server, mortal_watching: Watching, topic: str) -> None:
    """Topics made after an engine was lost are found by the streams that were open."""
    api = mortal_watching.api
    body = good(api.watch(prefixes=[f"{topic}:"]))
    stream = mortal_watching.open(body["wid"])
    good(api.append(f"{topic}:a", 1, config={"durability": "fsync"}), 201)
    assert stream.payloads(f"{topic}:a", 1) == [1]
    last_id = stream.last_id
    mortal.crash()
    if mortal.shape.single_process:
        stream = mortal_watching.open(body["wid"], last_id)
    good(api.append(f"{topic}:b", 1), 201)
    good(api.append(f"{topic}:a", 2))
    stream.until("record", f"{topic}:b")
    while delivered(stream.frames, f"{topic}:a")[-1:] != [2]:
        stream.next()


def test_a_prefix_survives_a_killed_worker(
    mortal: Server, mortal_watching: Watching, topic: str
) -> None:
    """API 7.4: with Last-Event-ID nothing is repeated, also of topics that are new."""
    api = mortal_watching.api
    body = good(api.watch(prefixes=[f"{topic}:"]))
    stream = mortal_watching.open(body["wid"])
    good(api.append(f"{topic}:a", 1, 2, config={"durability": "fsync"}), 201)
    assert stream.payloads(f"{topic}:a", 2) == [1, 2]
    mortal.lose_worker_of(stream.connection.socket)
    good(api.append(f"{topic}:a", 3))
    good(api.append(f"{topic}:b", 1), 201)
    again = mortal_watching.open(body["wid"], stream.last_id)
    for _ in range(2):
        again.until("caught-up")
    assert delivered(again.frames, f"{topic}:a") == [3]
    assert delivered(again.frames, f"{topic}:b") == [1]


def test_a_prefix_that_outgrows_the_limit_is_told(launch: Callable[..., Server]) -> None:
    """API 7.2: TOPICS_MAX_WATCH_TOPICS binds prefixes too; what is left out is named."""
    with Watching(launch(TOPICS_MAX_WATCH_TOPICS="2")) as watching:
        api = watching.api
        body = good(api.watch(prefixes=["p:"]))
        stream = watching.open(body["wid"])
        for name in ("p:a", "p:b", "p:c"):
            good(api.append(name, name), 201)
        error = stream.until("error").body
        assert (error["code"], error["topics"]) == (429, ["p:c"])
        good(api.append("p:a", "on"))
        while delivered(stream.frames, "p:a") != ["p:a", "on"]:
            stream.next()
        assert not delivered(stream.frames, "p:c")
        refused(api.watch(prefixes=["p:"]), 400, "invalid_request")


@pytest.mark.parametrize(
    "prefixes",
    [
        "a",
        5,
        {},
        [5],
        [None],
        [["a"]],
        ["a/b"],
        ["_a"],
        [{"prefix": 5}],
        [{"from_seq": 1}],
        [{"prefix": "a", "from_seq": -1}],
        [{"prefix": "a", "tail": 1}],
        [{"prefix": "a", "match": 5}],
        [{"prefix": "a", "match": ["tag", "Glob", "a"]}],
    ],
)
def test_malformed_prefixes_are_refused(api: Api, prefixes: Any) -> None:
    """Prefixes are strings that a name can start with, or objects with one."""
    refused(api.watch(prefixes=prefixes), 400, "invalid_request")


def test_a_session_needs_topics_or_prefixes(api: Api) -> None:
    """API 7.2: at least one; an empty list is none."""
    refused(api.watch(prefixes=[]), 400, "invalid_request")
    refused(api.watch({}, prefixes=[]), 400, "invalid_request")


def test_a_prefix_is_inside_the_keys_prefixes(
    as_key: AsKey, watching_as: WatchingAs, topic: str
) -> None:
    """API 0.2: a key follows only names that it may touch, all of them."""
    tenant = as_key("tenant-reader")
    for prefix in ("tenant", "tenant43:", "shared.", "t"):
        refused(tenant.watch(prefixes=[prefix]), 403, "forbidden")
        refused(tenant.watch(prefixes=["tenant42:", prefix]), 403, "forbidden")
    full = as_key("full")
    good(full.append(f"tenant42:{topic}", "mine"), 201)
    good(full.append(f"tenant43:{topic}", "theirs"), 201)
    stream = follow(watching_as("tenant-reader"), f"tenant42:{topic}")
    assert stream.payloads(f"tenant42:{topic}", 1) == ["mine"]
    good(full.append(f"tenant42:{topic}-later", "mine too"), 201)
    assert stream.payloads(f"tenant42:{topic}-later", 1) == ["mine too"]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("user:1", [1, 4]),
        (["tag", "Eq", "user:1"], [1, 4]),
        (["tag", "Glob", "user:*"], [1, 2, 4]),
        (["tag", "Glob", "none*"], []),
    ],
)
def test_match_delivers_only_records_whose_tag_matches(
    api: Api, topic: str, watching: Watching, match: Any, expected: list[int]
) -> None:
    """As on a diff: others are skipped silently and advance the cursor, backlog and live."""
    tagged(api, topic, "user:1", "user:2", "order:1", "user:1")
    stream = watching.watch({topic: {"match": match}})
    caught_up = stream.until("caught-up")
    assert delivered(stream.frames, topic) == expected
    assert caught_up.cursor == {topic: 4}
    tagged(api, topic, "user:1", "user:2", "order:1", "user:1")
    while len(delivered(stream.frames, topic)) < 2 * len(expected):
        stream.next()
    assert delivered(stream.frames, topic) == expected * 2
    assert stream.is_quiet(0.05)


def test_each_topic_has_its_own_match(api: Api, topic: str, watching: Watching) -> None:
    """The option is the topic's; a topic without it is not filtered."""
    first, second = f"{topic}-a", f"{topic}-b"
    for name in (first, second):
        tagged(api, name, "x", "y", "x")
    stream = watching.watch({first: {"match": "y"}, second: {}})
    for _ in range(2):
        stream.until("caught-up")
    assert delivered(stream.frames, first) == [2]
    assert delivered(stream.frames, second) == [1, 2, 3]


@pytest.mark.parametrize("match", [None, 7, {}, [], ["tag", "Eq"], ["node", "Eq", "a"]])
def test_what_is_no_predicate_is_refused(api: Api, topic: str, match: Any) -> None:
    """The language of deletes, and nothing else."""
    good(api.put(topic), 201)
    refused(api.watch({topic: {"match": match}}), 400, "invalid_request")


def test_many_topics_come_under_one_prefix(api: Api, topic: str, watching: Watching) -> None:
    """More than 64 future topics: none is missed, ids stay usable."""
    body = good(api.watch(prefixes=[f"{topic}:"]))
    stream = watching.open(body["wid"])
    names = [f"{topic}:{number:03d}" for number in range(80)]
    for name in names:
        good(api.append(name, name), 201)
    found = {stream.until("record").body["topic"] for _ in names}
    assert found == set(names)
    last_id = stream.last_id
    stream.close()
    good(api.append(names[7], "end"))
    again = watching.open(body["wid"], last_id)
    frame = again.until("record")
    assert (frame.body["topic"], delivered([frame], names[7])) == (names[7], ["end"])

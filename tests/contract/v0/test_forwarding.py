"""What routers forward: copies, filters, destinations that refuse, losses, cycles (API 6)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.harness.answers import good, payloads
from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.server import Server
from tests.harness.sse import Watching


def read(api: Api, topic: str, from_seq: int = 0, **fields: Any) -> dict[str, Any]:
    return good(api.diff(topic, from_seq, include_tags=True, **fields))


def test_copies_are_verbatim(api: Api, topic: str) -> None:
    """API 6: data, meta, node and tag carry through; seq and time are the destination's."""
    dest = f"{topic}.b"
    good(api.append(dest, "own"), 201)
    good(api.put_router(topic, topic, dest), 201)
    body = (
        b'{"records":[{"data":{"b":1e2,"a":123456789012345678901234567890.10,"p":"100%"},'
        b'"tag":"t","node":"n","meta":{"z":"1",  "a":"\\u0041"}}]}'
    )
    good(api.write_bytes(topic, body))
    answer = api.diff(dest, 1, include_tags=True)
    assert good(answer)["records"][0]["$seq"] == 2
    stored = (
        b'"$tag":"t","$node":"n","data":{"b":1e2,"a":123456789012345678901234567890.10,'
        b'"p":"100%"},"meta":{"z":"1",  "a":"\\u0041"}}'
    )
    assert stored in answer.content


@pytest.mark.parametrize("node", [True, False])
@pytest.mark.parametrize("tag", [True, False])
def test_node_and_tag_are_cut_when_not_preserved(
    api: Api, topic: str, node: bool, tag: bool
) -> None:
    """API 6.1: preserve_node and preserve_tag, each by itself."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest, preserve_node=node, preserve_tag=tag), 201)
    full = {"data": {"x": 1}, "tag": "t:1", "node": "n", "meta": {"k": "v"}}
    good(api.write(topic, [full, {"data": 2}, {"data": 3, "tag": "t:2"}, {"data": 4, "node": "n"}]))
    found = read(api, dest)["records"]
    assert [record["data"] for record in found] == [{"x": 1}, 2, 3, 4]
    assert found[0]["meta"] == {"k": "v"}
    assert [record.get("$node") for record in found] == (
        ["n", None, None, "n"] if node else 4 * [None]
    )
    assert [record.get("$tag") for record in found] == (
        ["t:1", None, "t:2", None] if tag else 4 * [None]
    )
    # The copies can be found and deleted by what they carry.
    assert len(read(api, dest, node="n")["records"]) == (2 if node else 4)
    matched = api.request(
        "POST", f"/v0/topics/{dest}/delete", json={"match": ["tag", "Glob", "t*"]}
    )
    assert good(matched)["deleted"] == (2 if tag else 0)


def test_a_filter_lets_matching_tags_through(api: Api, topic: str) -> None:
    """API 6.1: the same predicates as deletes; the total counts copies."""
    good(api.put_router(f"{topic}1", topic, f"{topic}.b", filter=["tag", "Glob", "public:*"]), 201)
    good(api.put_router(f"{topic}2", topic, f"{topic}.c", filter="private"), 201)
    tags = ("public:a", "private", None, "public:b", "publi")
    good(api.write(topic, [{"data": tag, **({"tag": tag} if tag else {})} for tag in tags]))
    assert payloads(read(api, f"{topic}.b")) == ["public:a", "public:b"]
    assert payloads(read(api, f"{topic}.c")) == ["private"]
    assert good(api.router(f"{topic}1"))["forwarded_total"] == 2


def test_two_routers_between_two_topics(api: Api, topic: str) -> None:
    """Each makes its own copies, record by record."""
    dest = f"{topic}.b"
    good(api.put_router(f"{topic}1", topic, dest, preserve_tag=False), 201)
    good(api.put_router(f"{topic}2", topic, dest, filter="x"), 201)
    good(api.write(topic, [{"data": 1, "tag": "x"}, {"data": 2}]))
    found = [(record["data"], record.get("$tag")) for record in read(api, dest)["records"]]
    assert found == [(1, None), (1, "x"), (2, None)]


def test_history_is_not_forwarded(api: Api, topic: str) -> None:
    """Spec 2.3: a router forwards what comes after it."""
    good(api.append(topic, "before"), 201)
    good(api.put_router(topic, topic, f"{topic}.b"), 201)
    good(api.append(topic, "after"))
    assert payloads(read(api, f"{topic}.b")) == ["after"]


def test_reads_of_a_destination_see_what_was_written(api: Api, topic: str) -> None:
    """Spec 2.4: diff, state, router and a new watch, also at the end of a chain."""
    chain = [topic, f"{topic}.b", f"{topic}.c"]
    for source, dest in pairwise(chain):
        good(api.put_router(f"{source}->{dest}", source, dest), 201)
    for count in range(1, 100, 4):
        good(api.append(topic, count))
        assert good(api.state(chain[2]))["head_seq"] == count
        good(api.append(topic, count))
        assert read(api, chain[1], count)["next_from_seq"] == count + 1
        good(api.append(topic, count))
        assert good(api.router(f"{chain[1]}->{chain[2]}"))["forwarded_total"] == count + 2
        good(api.append(topic, count))
        told = good(api.watch({chain[2]: {"tail": True}}))["topics"][chain[2]]
        assert told["from_seq"] == count + 3
    good(api.append(topic, *range(2000)))
    assert good(api.state(chain[2]))["head_seq"] == 2100


def test_one_append_is_one_frame_whatever_the_fan_out(launch: Callable[..., Server]) -> None:
    """Spec 2.16: one source append routed to N destinations adds exactly 1 to wal.frames."""
    api = Api(launch())
    for number in range(8):
        good(api.put_router(f"r{number}", "s", f"d{number}"), 201)
    good(api.append("s", "first"))
    before = api.metrics()["wal"]
    good(api.append("s", "second"))
    for number in range(8):
        assert payloads(read(api, f"d{number}")) == ["first", "second"]
    after = api.metrics()["wal"]
    assert after["frames"] == before["frames"] + 1
    api.close()


def test_writes_of_its_own_interleave_with_copies(api: Api, topic: str) -> None:
    """DESIGN 8.1: a destination can be written to; copies keep the source's order."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    for number in range(20):
        good(api.append(topic, number))
        good(api.append(dest, f"own {number}"))
    found = payloads(read(api, dest))
    assert [each for each in found if isinstance(each, int)] == list(range(20))
    assert [each for each in found if isinstance(each, str)] == [f"own {n}" for n in range(20)]


def test_a_full_destination_holds_the_router_back(api: Api, topic: str) -> None:
    """DESIGN 8.4: discard "reject" refuses, the cursor stays, and it goes on when there is room."""
    dest = f"{topic}.b"
    good(api.put(dest, {"cap_records": 3, "discard": "reject"}), 201)
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, *range(5)))
    assert payloads(read(api, dest)) == [0, 1, 2]
    assert good(api.router(topic))["forwarded_total"] == 3
    good(api.request("POST", f"/v0/topics/{dest}/delete", json={"before_seq": 3}))
    assert payloads(read(api, dest)) == [2, 3, 4]
    assert good(api.router(topic))["forwarded_total"] == 5


def test_a_capped_destination_evicts(api: Api, topic: str) -> None:
    """DESIGN 8.4: discard "old" makes room; readers hear of it as of any cap."""
    dest = f"{topic}.b"
    good(api.put(dest, {"cap_records": 2}), 201)
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, *range(5)))
    page = read(api, dest)
    assert payloads(page) == [3, 4]
    assert (page["tombstone"]["reason"], page["tombstone"]["gap_to"]) == ("cap", 3)


def test_what_the_source_lost_is_a_source_trim(api: Api, topic: str, watching: Watching) -> None:
    """API 3: evicted before it could be forwarded is told in the destination, once."""
    dest = f"{topic}.b"
    good(api.put(topic, {"cap_records": 2}), 201)
    good(api.put(dest, {"cap_records": 1, "discard": "reject"}), 201)
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, "a"))
    assert payloads(read(api, dest)) == ["a"]
    for data in "bcde":
        good(api.append(topic, data))
    good(api.put(dest, {}))
    page = read(api, dest, 1)
    assert payloads(page) == ["d", "e"]
    tombstone = page["tombstone"]
    assert tombstone["reason"] == "source_trim"
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (2, 2)
    assert [record["$seq"] for record in page["records"]] == [3, 4]
    whole = read(api, dest)
    assert payloads(whole) == ["a"] and whole["tombstone"] is None
    assert read(api, dest, 2)["tombstone"] is None
    told = watching.watch({dest: {"from_seq": 1}}).until("tombstone").body
    assert (told["reason"], told["gap_from"], told["gap_to"]) == ("source_trim", 2, 2)
    assert good(api.state(dest))["count"] == 3
    # The router counts copies, and a loss is none.
    assert good(api.router(topic))["forwarded_total"] == 3


def test_time_counts_in_the_destination(api: Api, topic: str, clock: ServerClock) -> None:
    """DESIGN 8.4: a copy expires by its own time; an expired source record is a source_trim."""
    dest = f"{topic}.b"
    good(api.put(topic, {"ttl_ms": 1000}), 201)
    good(api.put(dest, {"cap_records": 1, "discard": "reject"}), 201)
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, "copied"))
    assert payloads(read(api, dest)) == ["copied"]
    good(api.append(topic, "expires"))
    clock.advance(5000)
    assert payloads(read(api, dest)) == ["copied"]
    good(api.append(topic, "fresh"))
    good(api.put(dest, {"ttl_ms": 1000, "cap_records": 5}))
    page = read(api, dest)
    assert payloads(page) == ["fresh"]
    assert page["tombstone"]["reason"] in ("mixed", "ttl")


def test_deletes_do_not_propagate(api: Api, topic: str) -> None:
    """DESIGN 8.3: a delete in the source leaves copies alone, and what it took is not copied."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, 1, 2))
    assert payloads(read(api, dest)) == [1, 2]
    good(api.request("POST", f"/v0/topics/{topic}/delete", json={"before_seq": 3}))
    page = read(api, dest)
    assert payloads(page) == [1, 2] and page["tombstone"] is None


def test_exactly_once_stamps_a_key(api: Api, topic: str) -> None:
    """API 6: meta._topics_router names router, source and seq; other meta stays verbatim."""
    mid, dest = f"{topic}.b", f"{topic}.c"
    good(api.put_router(f"{topic}1", topic, mid, guarantee="exactly_once"), 201)
    good(api.put_router(f"{topic}2", mid, dest, guarantee="exactly_once"), 201)
    body = b'{"records":[{"data":1,"meta":{"a" : "\\u00e9"}},{"data":2}]}'
    good(api.write_bytes(topic, body))
    answer = api.diff(mid)
    first, second = good(answer)["records"]
    assert b'"meta":{"a" : "\\u00e9","_topics_router":{' in answer.content
    stamp = second["meta"]["_topics_router"]
    assert second["meta"].keys() == {"_topics_router"}
    assert {field: stamp[field] for field in ("router", "source", "seq")} == {
        "router": f"{topic}1",
        "source": topic,
        "seq": 2,
    }
    keys = {first["meta"]["_topics_router"]["key"], stamp["key"]}
    assert len(keys) == 2 and all(key.startswith(f"{topic}1/") for key in keys)
    last = good(api.diff(dest))["records"]
    assert [each["meta"]["_topics_router"]["router"] for each in last] == 2 * [f"{topic}2"]
    assert last[0]["meta"]["a"] == "\u00e9"


def test_a_cycle_ends(api: Api, topic: str) -> None:
    """DESIGN 8.5: allow_cycle copies a record eight times around, and no trace is on the wire."""
    a, b = topic, f"{topic}.b"
    good(api.put_router(f"{topic}1", a, b, allow_cycle=True), 201)
    good(api.put_router(f"{topic}2", b, a, allow_cycle=True), 201)
    good(api.write(a, [{"data": "x", "node": "A"}]))
    for _ in range(20):
        good(api.state(a)), good(api.state(b))
    found = read(api, a)["records"] + read(api, b)["records"]
    assert len(found) == 9
    assert all(set(each) == {"$seq", "$ts", "$node", "data"} for each in found)
    # A reader that names itself never hears its own record.
    assert read(api, a, node="A")["records"] == []


def test_a_watch_of_a_destination_gets_copies(api: Api, topic: str, watching: Watching) -> None:
    """API 7: copies wake streams like any record."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    stream = watching.live([dest])
    good(api.append(topic, "hello"))
    assert stream.payloads(dest, 1) == ["hello"]


def test_a_queue_can_be_either_end(api: Api, topic: str) -> None:
    """DESIGN 10.5: a router into a queue is a producer, one out of it a reader."""
    jobs, audit = f"{topic}.jobs", f"{topic}.audit"
    good(api.put(jobs, {"type": "queue"}), 201)
    good(api.put_router(f"{topic}1", topic, jobs), 201)
    good(api.put_router(f"{topic}2", jobs, audit), 201)
    good(api.append(topic, "job"))
    assert payloads(read(api, audit)) == ["job"]
    assert good(api.state(jobs))["queue"]["ready"] == 1


@pytest.mark.parametrize("source_class", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("dest_class", ["ephemeral", "memory", "disk", "fsync"])
def test_every_durability_class_can_be_either_end(
    api: Api, topic: str, source_class: str, dest_class: str
) -> None:
    """API 0.10: a copy honours the destination's class."""
    dest = f"{topic}.b"
    good(api.put(topic, {"durability": source_class}), 201)
    good(api.put(dest, {"durability": dest_class}), 201)
    good(api.put_router(topic, topic, dest), 201)
    for number in range(3):
        good(api.append(topic, number))
    assert payloads(read(api, dest)) == [0, 1, 2]


def test_routers_survive_restarts_and_crashes(mortal: Server, mortal_api: Api, topic: str) -> None:
    """DESIGN 8.2: copies, cursors and totals are there again, each copy at its seq."""
    api, dest = mortal_api, f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    expected: list[Any] = []
    for round_ in range(4):
        for number in range(5):
            good(api.append(topic, [round_, number]))
            expected.append([round_, number])
            assert payloads(read(api, dest)) == expected
            if number == 2:
                good(api.append(dest, f"own {round_}"))
                expected.append(f"own {round_}")
        if round_ % 2:
            mortal.crash()
        else:
            mortal.restart()
        page = read(api, dest)
        assert payloads(page) == expected and page["tombstone"] is None
        assert good(api.router(topic))["forwarded_total"] == 5 * (round_ + 1)

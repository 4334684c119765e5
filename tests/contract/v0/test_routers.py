"""Routers as a resource: PUT, GET, list, DELETE /v0/routers (API 6, 1.4)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.api import Api
from tests.harness.server import Server

DEFAULTS = {
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
}
PUBLIC = ["tag", "Glob", "public:*"]


def names(body: dict[str, Any]) -> list[str]:
    return [entry["router"] for entry in body["routers"]]


def test_a_new_router_is_echoed_with_its_defaults(api: Api, topic: str) -> None:
    """API 6.1: 201 with every field; both topics come into being."""
    name = f"{topic}->{topic}.b"
    body = good(api.put_router(name, topic, f"{topic}.b"), 201)
    del body["performance"]
    ends = {"source": topic, "dest": f"{topic}.b"}
    assert body == {"router": name, "created": True, **ends, **DEFAULTS}
    assert good(api.state(topic))["head_seq"] == 0
    assert good(api.state(f"{topic}.b"))["head_seq"] == 0


def test_put_is_idempotent_and_a_change_is_no_creation(api: Api, topic: str) -> None:
    """API 6.1: identical and changed PUTs answer 200; GET shows the change."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    assert good(api.put_router(topic, topic, dest))["created"] is False
    changed = {
        "preserve_node": False,
        "preserve_tag": False,
        "filter": PUBLIC,
        "allow_cycle": True,
        "guarantee": "exactly_once",
    }
    body = good(api.put_router(topic, topic, dest, **changed))
    assert {field: body[field] for field in changed} == changed
    body = good(api.router(topic))
    assert {field: body[field] for field in changed} == changed


def test_get_shows_the_router_and_its_total(api: Api, topic: str) -> None:
    """API 6.2: configuration and forwarded_total, which counts what was written before."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, 1, 2, 3))
    body = good(api.router(topic))
    del body["performance"]
    expected = {"router": topic, "source": topic, "dest": dest, **DEFAULTS, "forwarded_total": 3}
    assert body == expected
    assert refused(api.router(f"{topic}.none"), 404, "router_not_found")["detail"] == {
        "router": f"{topic}.none"
    }


def test_a_bare_filter_is_short_for_eq(api: Api, topic: str) -> None:
    """API 5: the echo is the tuple."""
    body = good(api.put_router(topic, topic, f"{topic}.b", filter="x"), 201)
    assert body["filter"] == ["tag", "Eq", "x"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"source": None}, "source"),
        ({"dest": 7}, "dest"),
        ({"source": ""}, "source"),
        ({"dest": "no spaces"}, "dest"),
        ({"dest": "SAME"}, "dest"),
        ({"filter": ["tag", "Like", "x"]}, "filter"),
        ({"filter": ["tag", "Glob", "x"]}, "filter"),
        ({"filter": ["node", "Eq", "x"]}, "filter"),
        ({"filter": 7}, "filter"),
        ({"preserve_node": "yes"}, "preserve_node"),
        ({"preserve_tag": 1}, "preserve_tag"),
        ({"create_dest": "no"}, "create_dest"),
        ({"allow_cycle": None}, "allow_cycle"),
        ({"guarantee": "at_most_once"}, "guarantee"),
    ],
)
def test_bad_requests_name_their_field(
    api: Api, topic: str, fields: dict[str, Any], named: str
) -> None:
    """API 6.1: 400 invalid_request, and nothing is created."""
    body = {"source": topic, "dest": f"{topic}.b", **fields}
    if body["dest"] == "SAME":
        body["dest"] = topic
    answer = api.request("PUT", f"/v0/routers/{topic}", json=body)
    assert refused(answer, 400, "invalid_request")["detail"]["field"] == named
    refused(api.router(topic), 404, "router_not_found")
    refused(api.state(topic), 404, "topic_not_found")


@pytest.mark.parametrize("missing", ["source", "dest"])
def test_source_and_dest_are_required(api: Api, topic: str, missing: str) -> None:
    """API 6.1: a request without one of the ends is refused."""
    body = {"source": topic, "dest": f"{topic}.b"}
    del body[missing]
    error = refused(api.request("PUT", f"/v0/routers/{topic}", json=body), 400, "invalid_request")
    assert error["detail"]["field"] == missing


@pytest.mark.parametrize("name", ["-x", "a b", "x" * 256, "%C3%A9", ">a"])
def test_router_names_have_their_charset(api: Api, topic: str, name: str) -> None:
    """API 6.1, 12: the charset of topics and `>`, which only may not begin a name."""
    refused(api.put_router(name, topic, f"{topic}.b"), 400, "invalid_request")
    refused(api.router(name), 400, "invalid_request")
    refused(api.delete_router(name), 400, "invalid_request")


def test_without_create_dest_the_destination_must_exist(api: Api, topic: str) -> None:
    """API 6.1: 404, and the source is not created either."""
    dest = f"{topic}.b"
    error = refused(api.put_router(topic, topic, dest, create_dest=False), 404, "topic_not_found")
    assert error["detail"]["topic"] == dest
    refused(api.state(topic), 404, "topic_not_found")
    good(api.put(dest), 201)
    good(api.put_router(topic, topic, dest, create_dest=False), 201)
    good(api.state(topic))


def test_a_cycle_is_refused_and_shown(api: Api, topic: str) -> None:
    """API 6.1: 409 router_cycle with the cycle in its detail."""
    a, b, c = (f"{topic}.{letter}" for letter in "abc")
    good(api.put_router(f"{topic}1", a, b), 201)
    good(api.put_router(f"{topic}2", b, c), 201)
    error = refused(api.put_router(f"{topic}3", c, a), 409, "router_cycle")
    assert error["detail"] == {"cycle": [c, a, b, c]}
    refused(api.router(f"{topic}3"), 404, "router_not_found")
    good(api.put_router(f"{topic}3", c, a, allow_cycle=True), 201)


def test_a_destination_has_one_source(api: Api, topic: str) -> None:
    """API 6: a second source is 409 with router_dest_fan_in; a second router is not."""
    dest = f"{topic}.b"
    good(api.put_router(f"{topic}1", topic, dest), 201)
    error = refused(
        api.put_router(f"{topic}2", f"{topic}.other", dest), 409, "topic_exists_incompatible"
    )
    assert error["detail"]["reason"] == "router_dest_fan_in"
    refused(api.state(f"{topic}.other"), 404, "topic_not_found")
    good(api.put_router(f"{topic}3", topic, dest, filter=PUBLIC), 201)


def test_delete_is_idempotent_and_keeps_the_copies(api: Api, topic: str) -> None:
    """API 6.4: forwarding stops, copies stay, an absent router is deleted: false."""
    dest = f"{topic}.b"
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, "before"))
    assert payloads(good(api.diff(dest))) == ["before"]
    body = good(api.delete_router(topic))
    assert (body["router"], body["deleted"]) == (topic, True)
    assert good(api.delete_router(topic))["deleted"] is False
    refused(api.router(topic), 404, "router_not_found")
    good(api.append(topic, "after"))
    assert payloads(good(api.diff(dest))) == ["before"]


def test_deleting_a_topic_takes_its_routers(api: Api, topic: str) -> None:
    """API 1.4: routers_removed names those from it and to it, and nothing else goes."""
    a, b, c, d = (f"{topic}.{letter}" for letter in "abcd")
    for source, dest in ((a, b), (b, c), (b, d)):
        good(api.put_router(f"{source}->{dest}", source, dest), 201)
    good(api.append(a, "kept"))
    assert payloads(good(api.diff(c))) == ["kept"]
    body = good(api.delete(b))
    assert body["routers_removed"] == [f"{a}->{b}", f"{b}->{c}", f"{b}->{d}"]
    assert names(good(api.routers(prefix=topic))) == []
    assert payloads(good(api.diff(c))) == ["kept"]
    assert good(api.delete(f"{topic}.none"))["routers_removed"] == []
    # The destination is free for another source now.
    good(api.put_router(f"{a}->{c}", a, c), 201)


def test_a_listing_is_filtered_and_paged(api: Api, topic: str) -> None:
    """API 6.3: prefix, source, dest, page_size, cursor; next_cursor only when there is more."""
    a, b, c, d = (f"{topic}.{letter}" for letter in "abcd")
    made = [f"{a}->{b}", f"{a}->{c}", f"{b}->{d}"]
    for name in made:
        good(api.put_router(name, *name.split("->")), 201)
    body = good(api.routers(prefix=topic))
    assert set(body) == {"routers", "performance"}
    assert body["routers"][0] == {
        "router": made[0],
        "source": a,
        "dest": b,
        "guarantee": "at_least_once",
        "forwarded_total": 0,
    }
    assert names(body) == made
    assert names(good(api.routers(source=a))) == made[:2]
    assert names(good(api.routers(dest=d))) == made[2:]
    assert names(good(api.routers(source=a, dest=c))) == made[1:2]
    assert names(good(api.routers(source=f"{topic}.none"))) == []
    page = good(api.routers(prefix=topic, page_size=2))
    assert names(page) == made[:2]
    assert json.loads(base64.b64decode(page["next_cursor"])) == {"after": made[1]}
    last = good(api.routers(prefix=topic, page_size=2, cursor=page["next_cursor"]))
    assert names(last) == made[2:] and "next_cursor" not in last


def test_a_listing_refuses_what_it_did_not_say(api: Api) -> None:
    """API 0.7: a cursor of nobody's making, and a page size that is no number."""
    refused(api.routers(cursor="x"), 400, "invalid_request")
    refused(api.routers(page_size="x"), 400, "invalid_request")


def test_another_source_starts_at_its_head(api: Api, topic: str) -> None:
    """Spec 2.2: a re-PUT with other ends is allowed and forwards what comes then."""
    dest, other = f"{topic}.b", f"{topic}.other"
    good(api.put_router(topic, topic, dest), 201)
    good(api.append(topic, "first"))
    good(api.append(other, "history"), 201)
    assert payloads(good(api.diff(dest))) == ["first"]
    assert good(api.put_router(topic, other, dest))["created"] is False
    good(api.append(topic, "old source"))
    good(api.append(other, "second"))
    assert payloads(good(api.diff(dest))) == ["first", "second"]
    assert good(api.put_router(topic, other, f"{topic}.c"))["dest"] == f"{topic}.c"
    good(api.append(other, "third"))
    assert payloads(good(api.diff(dest))) == ["first", "second"]
    assert payloads(good(api.diff(f"{topic}.c"))) == ["third"]


def test_routers_are_capped(launch: Callable[..., Server]) -> None:
    """API 11: 429 before any topic is made; what exists can be changed and deleted."""
    api = Api(launch(TOPICS_MAX_ROUTERS="1", TOPICS_MAX_TOPICS="3"))
    good(api.put_router("r", "a", "b"), 201)
    error = refused(api.put_router("s", "c", "d"), 429, "throttled")
    assert (error["detail"]["limit"], error["detail"]["max"]) == ("max_routers", 1)
    refused(api.state("c"), 404, "topic_not_found")
    good(api.put_router("r", "a", "b", filter="x"))
    good(api.delete_router("r"))
    error = refused(api.put_router("s", "c", "d"), 429, "throttled")
    assert error["detail"]["limit"] == "max_topics"
    refused(api.state("c"), 404, "topic_not_found")
    good(api.put_router("s", "a", "c"), 201)
    api.close()


def test_metrics_count_routers(launch: Callable[..., Server]) -> None:
    """Spec 2.16: `routers` in JSON, `topics_routers` in text."""
    server = launch()
    api = Api(server)
    assert api.metrics()["routers"] == 0
    good(api.put_router("r", "a", "b"), 201)
    good(api.put_router("s", "a", "c"), 201)
    assert api.metrics()["routers"] == 2
    assert "\ntopics_routers 2" in api.request("GET", "/v0/metrics").text
    api.close()


def test_scopes(as_key: Callable[[str], Api], topic: str) -> None:
    """API 0.2: PUT needs admin, GET read, DELETE delete."""
    good(as_key("admin").put_router(topic, topic, f"{topic}.b"), 201)
    for name in ("read", "write", "delete", "rw"):
        refused(as_key(name).put_router(topic, topic, f"{topic}.b"), 403, "forbidden")
    for name in ("write", "delete", "admin"):
        refused(as_key(name).router(topic), 403, "forbidden")
        refused(as_key(name).routers(), 403, "forbidden")
    for name in ("read", "write", "admin", "rw"):
        refused(as_key(name).delete_router(topic), 403, "forbidden")
    good(as_key("read").router(topic))
    good(as_key("delete").delete_router(topic))
    refused(as_key("").router(topic), 401, "unauthorized")


def test_prefixes_bind_names_and_ends(as_key: Callable[[str], Api], topic: str) -> None:
    """API 0.2: router name, source and dest must be allowed; a listing shows no others."""
    full, tenant = as_key("full"), as_key("tenant")
    mine, theirs = f"tenant42:{topic}", f"other:{topic}"
    refused(tenant.put_router(topic, mine, f"{mine}.b"), 403, "forbidden")
    refused(tenant.put_router(mine, theirs, f"{mine}.b"), 403, "forbidden")
    refused(tenant.put_router(mine, mine, theirs), 403, "forbidden")
    refused(full.state(theirs), 404, "topic_not_found")
    good(tenant.put_router(mine, mine, f"{mine}.b"), 201)
    good(full.put_router(f"{mine}.x", theirs, f"{mine}.c"), 201)
    good(full.put_router(topic, mine, f"{mine}.d"), 201)
    assert names(good(tenant.routers(prefix=mine))) == [mine]
    assert topic not in names(good(tenant.routers()))
    refused(tenant.router(topic), 403, "forbidden")
    refused(tenant.delete_router(topic), 403, "forbidden")
    good(tenant.delete_router(mine))

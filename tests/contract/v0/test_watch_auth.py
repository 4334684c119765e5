"""Who may open a watch (API 0.2, 7.1): the creating key, by header or by `?token=`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.answers import good, refused
from tests.harness.api import Api
from tests.harness.raw import build_request, exchange
from tests.harness.server import Server
from tests.harness.sse import EventStream, Watching

AsKey = Callable[[str], Api]
WatchingAs = Callable[[str], Watching]

# Its characters must be escaped in a query string.
ODD_KEY = "p+c%/&=?#"
ODD_KEY_ESCAPED = "p%2Bc%25%2F%26%3D%3F%23"


def unauthorized(stream: EventStream) -> None:
    assert stream.answer is not None, "the stream opened"
    refused(stream.answer, 401, "unauthorized")


@pytest.fixture
def mine(as_key: AsKey, topic: str) -> str:
    """A topic that every key with the read scope may watch."""
    name = f"tenant42:{topic}"
    good(as_key("full").append(name, "secret"), 201)
    return name


def test_the_creating_key_opens_its_stream(watching_as: WatchingAs, mine: str) -> None:
    """API 7.1: the GET presents the key of the POST."""
    for name in ("full", "read", "tenant", "tenant-reader"):
        stream = watching_as(name).watch([mine])
        assert stream.payloads(mine, 1) == ["secret"]


def test_the_wid_alone_is_no_credential(watching_as: WatchingAs, mine: str) -> None:
    """API 7.1: without a key, or with a wrong one, a leaked wid opens nothing."""
    owner = watching_as("read")
    wid = owner.create([mine])
    nobody = Watching(owner.server)
    with nobody:
        unauthorized(nobody.attempt(wid))
        for header in ("Bearer nobody", "Bearer read-ke", "Basic read-key", "read-key"):
            unauthorized(nobody.attempt(wid, headers={"Authorization": header}))
        unauthorized(nobody.attempt(wid, query="?token=nobody"))
        unauthorized(nobody.attempt(wid, query="?token="))
    assert owner.open(wid).payloads(mine, 1) == ["secret"]


@pytest.mark.parametrize("other", ["full", "rw", "tenant", "tenant-reader"])
def test_another_valid_key_is_rejected(watching_as: WatchingAs, mine: str, other: str) -> None:
    """API 7.1: a different key, however mighty, is like an invalid one, and changes nothing."""
    owner = watching_as("read")
    wid = owner.create([mine])
    stream = owner.open(wid)
    stream.until("caught-up")
    unauthorized(watching_as(other).attempt(wid))
    assert stream.is_quiet()


def test_a_key_is_wanted_before_the_wid_is_looked_at(watching_as: WatchingAs) -> None:
    """Decision 8: 401 before anything, so that nobody learns which sessions exist."""
    server = watching_as("full").server
    for wid in ("x", "wid_" + "A" * 22):
        answer = exchange(server.address, build_request("GET", f"/v0/watch/{wid}"))
        refused(answer, 401, "unauthorized")


def test_without_keys_the_wid_opens_the_stream(api: Api, topic: str, watching: Watching) -> None:
    """API 7.1: in dev mode the wid alone authorizes; a header or token is ignored."""
    good(api.append(topic, 1), 201)
    wid = watching.create([topic])
    for options in ({}, {"headers": {"Authorization": "Bearer x"}}, {"query": "?token=x"}):
        watching.open(wid, **options)


@pytest.fixture(scope="module")
def odd(launch_once: Callable[..., Server]) -> Iterator[Server]:
    """A server with a key that needs escaping, which never gets into its log."""
    started = launch_once(TOPICS_API_KEYS=f"{ODD_KEY},other-key")
    yield started
    log = started.log()
    assert not [secret for secret in (ODD_KEY, ODD_KEY_ESCAPED, "other-key") if secret in log]


@pytest.fixture
def session(odd: Server, topic: str) -> Iterator[tuple[Watching, str]]:
    """A session of the odd key, and a client that sends no header."""
    with Watching(odd, ODD_KEY) as owner, Watching(odd) as browser:
        good(owner.api.append(topic, "seen"), 201)
        yield browser, owner.create([topic])


@pytest.mark.parametrize(
    "query",
    [
        f"token={ODD_KEY_ESCAPED}",
        f"x=1&token={ODD_KEY_ESCAPED}&y=2",
        f"token={ODD_KEY_ESCAPED}&token=other-key",
        f"token={ODD_KEY_ESCAPED}&token=",
        "token=" + "".join(f"%{ord(letter):02x}" for letter in ODD_KEY),
        f"%74oken={ODD_KEY_ESCAPED}",
    ],
)
def test_a_browser_may_send_its_key_in_the_query(
    session: tuple[Watching, str], topic: str, query: str
) -> None:
    """API 7.1: decoded like a form; the first of several tokens counts."""
    browser, wid = session
    assert browser.open(wid, query=f"?{query}").payloads(topic, 1) == ["seen"]


@pytest.mark.parametrize(
    "query",
    [
        "token=p+c%25%2F%26%3D%3F%23",
        f"token=other-key&token={ODD_KEY_ESCAPED}",
        f"token=&token={ODD_KEY_ESCAPED}",
        f"Token={ODD_KEY_ESCAPED}",
        f"key={ODD_KEY_ESCAPED}",
        f"token={ODD_KEY_ESCAPED}%20",
        "token=%ff%fe",
        "token",
    ],
)
def test_any_other_query_opens_nothing(session: tuple[Watching, str], query: str) -> None:
    """API 7.1: a plus is a space, a second token is not looked at, names are exact."""
    browser, wid = session
    unauthorized(browser.attempt(wid, query=f"?{query}"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v0/topics"),
        ("GET", "/v0/topics/t"),
        ("GET", "/v0/topics/t/diff"),
        ("GET", "/v0/metrics"),
        ("GET", "/v0/ws"),
        ("PUT", "/v0/topics/t"),
        ("POST", "/v0/watch"),
        ("DELETE", "/v0/topics/t"),
    ],
)
def test_ordinary_routes_take_no_token(odd: Server, method: str, path: str) -> None:
    """API 7.1: the query parameter is for stream GETs only."""
    body = b"{}" if method in ("PUT", "POST") else None
    request = build_request(method, f"{path}?token={ODD_KEY_ESCAPED}", body)
    refused(exchange(odd.address, request), 401, "unauthorized")

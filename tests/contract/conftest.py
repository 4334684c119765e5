"""Servers for contract tests: every test runs on one worker, on two, and in a single process.

`server` and `guarded` are shared by all tests of a shape, so tests use topics of their own
(`topic`). A shared clock only moves forward. Every server that starts here ends by SIGTERM with
exit code 0 and a data directory that `topicsd check` finds clean.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.api import Api
from tests.harness.clock import ServerClock
from tests.harness.raw import RawConnection
from tests.harness.server import SHAPES, Server, Shape, start_server
from tests.harness.sse import Watching
from tests.harness.ws import Sockets

# Small limits, so that their edges can be reached with small bodies.
GUARDED_LIMITS = {
    "TOPICS_MAX_BODY_BYTES": "100000",
    "TOPICS_MAX_BATCH_RECORDS": "10",
    "TOPICS_MAX_RECORD_BYTES": "2000",
    "TOPICS_MAX_META_BYTES": "300",
    "TOPICS_MAX_TAG_BYTES": "20",
    "TOPICS_MAX_NODE_BYTES": "10",
    "TOPICS_MAX_LIMIT": "5",
}
GUARDED_KEYS = {
    "full": "full-key",
    "read": "read-key:read",
    "write": "write-key:w",
    "delete": "delete-key:d",
    "admin": "admin-key:admin",
    "rw": "rw-key:rw",
    "tenant": "tenant-key::tenant42:|shared.",
    "tenant-reader": "tenant-read-key:r:tenant42:",
}

# The shared server lets clients ask for heartbeats as often as this.
MIN_HEARTBEAT_MS = 50

_numbers = itertools.count(1)


def token_of(name: str) -> str:
    """The secret of a key of the guarded server."""
    return GUARDED_KEYS[name].partition(":")[0]


@pytest.fixture(scope="session", params=SHAPES, ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest) -> Shape:
    """The process shape under test."""
    return request.param


@pytest.fixture(scope="session")
def clock(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> ServerClock:
    """The clock of the shared server."""
    return ServerClock(tmp_path_factory.mktemp(shape.name) / "clock")


@pytest.fixture(scope="session")
def server(shape: Shape, clock: ServerClock) -> Iterator[Server]:
    """The shared server of a shape: default limits, no keys, a clock that tests may advance."""
    started = start_server(
        clock.path.parent,
        shape,
        TOPICS_TEST_CLOCK_FILE=str(clock.path),
        TOPICS_TEST_MIN_HEARTBEAT_MS=str(MIN_HEARTBEAT_MS),
    )
    yield started
    started.finish()
    assert "Traceback" not in started.log(), started.log()[-8000:]


@pytest.fixture(scope="session")
def api(server: Server) -> Iterator[Api]:
    """A client of the shared server."""
    client = Api(server)
    yield client
    client.close()


@pytest.fixture
def watching(server: Server) -> Iterator[Watching]:
    """Watch sessions and streams on the shared server."""
    with Watching(server) as opened:
        yield opened


@pytest.fixture
def sockets(server: Server) -> Iterator[Sockets]:
    """WebSockets to the shared server."""
    with Sockets(server) as opened:
        yield opened


@pytest.fixture
def raw(server: Server) -> Iterator[RawConnection]:
    """A fresh raw connection to the shared server."""
    with RawConnection(server.address) as connection:
        yield connection


@pytest.fixture(scope="session")
def guarded(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A shared server with API keys and small limits."""
    directory = tmp_path_factory.mktemp(f"guarded-{shape.name}")
    keys = ",".join(GUARDED_KEYS.values())
    started = start_server(directory, shape, TOPICS_API_KEYS=keys, **GUARDED_LIMITS)
    yield started
    started.finish()
    assert "Traceback" not in started.log(), started.log()[-8000:]


@pytest.fixture(scope="session")
def as_key(guarded: Server) -> Iterator[Callable[[str], Api]]:
    """Clients of the guarded server, by the name of their key."""
    clients: dict[str, Api] = {}

    def client(name: str) -> Api:
        if name not in clients:
            clients[name] = Api(guarded, token_of(name) if name else "")
        return clients[name]

    yield client
    for opened in clients.values():
        opened.close()


@pytest.fixture(scope="session")
def shared_mortal(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The process behind `mortal`."""
    started = start_server(tmp_path_factory.mktemp(f"mortal-{shape.name}"), shape)
    yield started
    started.finish()


@pytest.fixture
def mortal(shared_mortal: Server) -> Server:
    """A shared server that tests may restart and crash; it is ready when a test begins."""
    if not shared_mortal.running:
        shared_mortal.start()
    shared_mortal.wait_ready()
    return shared_mortal


@pytest.fixture
def mortal_api(mortal: Server) -> Iterator[Api]:
    """A client of the server that tests may restart and crash."""
    client = Api(mortal)
    yield client
    client.close()


@pytest.fixture
def mortal_watching(mortal: Server) -> Iterator[Watching]:
    """Watch sessions and streams on the server that tests may restart and crash."""
    with Watching(mortal) as opened:
        yield opened


@pytest.fixture
def watching_as(guarded: Server) -> Iterator[Callable[[str], Watching]]:
    """Watch sessions and streams on the guarded server, by the name of their key."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(Watching(guarded, token_of(name)))


@pytest.fixture
def sockets_as(guarded: Server) -> Iterator[Callable[[str], Sockets]]:
    """WebSockets to the guarded server, by the name of their key."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(Sockets(guarded, token_of(name)))


@pytest.fixture
def launch(shape: Shape, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own, with their own settings."""
    with ExitStack() as stack:
        yield launcher(shape, tmp_path, stack)


@pytest.fixture(scope="module")
def launch_once(
    shape: Shape, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    """Starts servers that the tests of a module share, for fixtures of that module."""
    with ExitStack() as stack:
        yield launcher(shape, tmp_path_factory.mktemp(shape.name), stack)


def launcher(shape: Shape, directory: Path, stack: ExitStack) -> Callable[..., Server]:
    """Starts servers below a directory, each to be finished with the stack."""
    directories = (directory / f"server-{number}" for number in itertools.count())

    def start(token: str = "", **env: str) -> Server:
        started = start_server(next(directories), shape, token, **env)
        stack.callback(started.finish)
        return started

    return start


@pytest.fixture
def topic() -> str:
    """A topic name no other test uses."""
    return f"t{next(_numbers):05d}"

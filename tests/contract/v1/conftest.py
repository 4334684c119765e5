"""Clients of the stream door, and names of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness.server import Server
from tests.harness.sse import Watching
from tests.harness.streams import Streams


@pytest.fixture(scope="session")
def streams(server: Server) -> Iterator[Streams]:
    """The mount at /v1/stream of the shared server."""
    client = Streams(server)
    yield client
    client.close()


@pytest.fixture(scope="session")
def free(server: Server) -> Iterator[Streams]:
    """The free paths of the shared server."""
    client = Streams(server, root="/")
    yield client
    client.close()


@pytest.fixture
def mortal_streams(mortal: Server) -> Iterator[Streams]:
    """Streams of the server that tests may restart and crash."""
    client = Streams(mortal)
    yield client
    client.close()


@pytest.fixture
def streams_as(
    guarded: Server, watching_as: Callable[[str], Watching]
) -> Iterator[Callable[[str], Streams]]:
    """Streams of the guarded server, by the name of a key; no name is no key."""
    with ExitStack() as stack:

        def client(key: str) -> Streams:
            opened = Streams(guarded, watching_as(key).token if key else "")
            stack.callback(opened.close)
            return opened

        yield client


@pytest.fixture
def name(topic: str) -> str:
    """A stream name no other test uses."""
    return f"s-{topic}"

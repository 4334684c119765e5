"""The web room on a real port over fakes: Sanic, the fast lane, and raw sockets to them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop
from sanic import Sanic
from sanic.application.state import ApplicationServerInfo
from sanic.http.constants import HTTP

from tests.unit.web.fakes import World
from topicsd.storage.fs import Files
from topicsd.web.app import create_app
from topicsd.web.lane import LaneProtocol

TIMEOUT_S = 10


class Running:
    """A served world; `call` runs something on its loop."""

    def __init__(self, world: World, app: Sanic, loop: asyncio.AbstractEventLoop) -> None:
        self.world = world
        self.app = app
        self.loop = loop
        self.port = 0
        self.connections: set[Any] = set()

    def call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(TIMEOUT_S)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    def exchange(self, data: bytes) -> bytes:
        """Send bytes on a new connection and return all that comes until it closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait on the loop until `condition` holds."""

        async def poll() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                while not condition():
                    await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(poll(), self.loop).result(TIMEOUT_S + 1)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_response(connection: socket.socket) -> tuple[bytes, bytes]:
    """One response, and not a byte of the next: its head and its body."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            return data, b""
        data += byte
    length = int(data.partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return data, body


def head(*lines: str) -> bytes:
    """The bytes of a head."""
    return "\r\n".join([*lines, "", ""]).encode()


def post(target: str, body: bytes, *lines: str) -> bytes:
    """The bytes of a plain POST."""
    head = [
        f"POST {target} HTTP/1.1",
        "Host: test",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *lines,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@contextmanager
def running(world: World, *, lane: bool = True, **timeouts: float) -> Iterator[Running]:
    """Serve `world` from a thread of its own until the block ends."""
    Sanic._app_registry.clear()
    Sanic.test_mode = True
    app = create_app(world.settings, Files(), world.clock)
    # What `app.prepare` notes in production; without it Sanic adds an empty alt-svc header.
    app.state.server_info.append(ApplicationServerInfo(settings={"version": HTTP.VERSION_1}))
    app.ctx.port, app.ctx.reader, app.ctx.lane = world.port, world.reader, lane
    app.ctx.gate = world.gate
    for name, seconds in timeouts.items():
        setattr(app.config, name.upper(), seconds)
    loop = uvloop.new_event_loop()
    served = Running(world, app, loop)
    started = threading.Event()
    stop = asyncio.Event()

    async def main() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        served.port = listener.getsockname()[1]
        server = await app.create_server(
            sock=listener, protocol=LaneProtocol, return_asyncio_server=True, access_log=False
        )
        assert server is not None
        await server.startup()
        await server.start_serving()
        served.connections = server.connections
        started.set()
        await stop.wait()
        for connection in list(server.connections):
            connection.abort()
        server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    assert started.wait(TIMEOUT_S)
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT_S)
        loop.close()

"""What happens in an HTTP process around serving: open before, drain and close after.

The same listeners serve a worker (port over the engine's socket) and the single process
(engine on the same loop); they differ in how the port is opened and in what a second stop
signal does.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from typing import Protocol

from sanic import Sanic

from topicsd.bridge.address import socket_path
from topicsd.bridge.client import SocketPort
from topicsd.bridge.port import Port
from topicsd.model.clock import Clock
from topicsd.model.errors import TopicsError
from topicsd.model.settings import Settings
from topicsd.reader import Reader
from topicsd.serve.drain import Drain
from topicsd.serve.orphans import name_process
from topicsd.storage.fs import Files
from topicsd.web.v1.deliveries import Deliveries

EXIT_FORCED = 1
# Sanic names its workers Sanic-Server-<number>-<attempt>.
_WORKER_NAME = re.compile(r"Server-(\d+)")


class OpenPort(Port, Protocol):
    """A port as its owner sees it."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None: ...

    async def close(self) -> None: ...


PortOpener = Callable[[Sanic, Reader], OpenPort]


class Worker:
    """The listeners of one HTTP process."""

    def __init__(self, settings: Settings, files: Files, clock: Clock, opener: PortOpener) -> None:
        self._settings = settings
        self._files = files
        self._clock = clock
        self._opener = opener

    def attach(self, app: Sanic, drain: Drain) -> None:
        """Register the listeners; they run in the process that serves."""

        async def open_port(app: Sanic) -> None:
            app.ctx.gate.join(worker_number())
            reader = Reader(self._settings, self._files, self._clock)
            port = self._opener(app, reader)
            port.start(asyncio.get_running_loop())
            app.ctx.reader, app.ctx.port = reader, port
            app.ctx.deliveries = Deliveries(port, self._clock)
            app.ctx.deliveries.start()

        async def take_signals(app: Sanic) -> None:
            drain.listen(asyncio.get_running_loop())

        async def finish_requests(app: Sanic) -> None:
            await drain.finish()
            await app.ctx.deliveries.close()

        async def close_port(app: Sanic) -> None:
            await app.ctx.port.close()

        app.register_listener(open_port, "before_server_start")
        app.register_listener(take_signals, "after_server_start")
        app.register_listener(finish_requests, "before_server_stop")
        app.register_listener(close_port, "after_server_stop")


def attach_worker(app: Sanic, settings: Settings, files: Files, clock: Clock) -> None:
    """Make `app` a worker beside an engine process."""
    path = socket_path(settings.data_dir)

    def opener(app: Sanic, reader: Reader) -> OpenPort:
        name_process("topicsd-worker")
        port = SocketPort(path, lambda: replay_progress(reader))
        port.refused = app.ctx.gate.column.count_refused_submit
        return port

    drain = Drain(app, settings.drain_timeout_ms, again=lambda: None)
    Worker(settings, files, clock, opener).attach(app, drain)


def attach_single(
    app: Sanic, settings: Settings, files: Files, clock: Clock, port: OpenPort
) -> None:
    """Make `app` the single process, with its engine behind `port`."""
    drain = Drain(app, settings.drain_timeout_ms, again=lambda: os._exit(EXIT_FORCED))
    Worker(settings, files, clock, lambda app, reader: port).attach(app, drain)


def worker_number() -> int:
    """Which of the workers this process is; a replacement has its predecessor's number."""
    found = _WORKER_NAME.search(os.environ.get("SANIC_WORKER_NAME", ""))
    return int(found[1]) if found else 0


def replay_progress(reader: Reader) -> float:
    """How far the engine is, 0 while it has not even made its board."""
    try:
        return reader.board.replay_progress
    except TopicsError:
        return 0.0

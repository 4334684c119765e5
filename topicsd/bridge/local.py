"""The port to an engine in the same process (`--single-process`, tests).

The same batching as over the socket: what one loop iteration submits is one `apply`. A
command's ticket is the future its handler waits for.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.driver import Drivable, Driver, Replies
from topicsd.bridge.port import WORKER_BITS, settle
from topicsd.bridge.wakeups import Wakeups
from topicsd.model import errors
from topicsd.model.commands import Command, Join, Reply


class LocalPort:
    """Drives a recovered engine on the loop it is started on."""

    def __init__(self, engine: Drivable, doorbell: Doorbell, fault: Callable[[], None]) -> None:
        self.wakeups = Wakeups()
        self.worker = secrets.randbits(WORKER_BITS)
        self._driver = Driver(engine, doorbell, self._deliver, fault)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[Reply]] = set()

    @property
    def connected(self) -> bool:
        return self._driver.running

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._driver.start(loop)
        # Nobody waits for the reply. There is no leaving either: both ends are one process.
        self._driver.submit(((loop.create_future(), Join(self.worker)),))

    def submit(self, command: Command) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if not self._driver.running:
            future.set_exception(errors.not_ready(0.0))
            return future
        self._waiting.add(future)
        self._driver.submit(((future, command),))
        return future

    async def close(self) -> None:
        """Refuse what still waits and close the engine cleanly."""
        self._driver.close()
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_exception(errors.shutting_down())
        self.wakeups.wake_all()

    def _deliver(self, replies: Replies, moved: list[int]) -> None:
        for future, reply in replies:
            self._waiting.discard(future)
            settle(future, reply)
        self.wakeups.moved(moved)

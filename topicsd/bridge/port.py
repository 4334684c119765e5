"""What a request handler knows of the engine: a port to submit commands to.

Two ports exist, with the same behaviour: `client.SocketPort` (the engine is another
process) and `local.LocalPort` (the engine runs on the same loop). Handlers cannot tell
them apart.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from topicsd.bridge.wakeups import Wakeups
from topicsd.model.commands import Command, Failed, Reply

# Random, so that no two connections ever have the same.
WORKER_BITS = 62


class Port(Protocol):
    """Submits commands to the engine and hears which logs moved."""

    wakeups: Wakeups
    # Who the engine takes this process for; another number on each new connection, so that
    # the end of an old one is never taken for the end of the present one.
    worker: int

    def submit(self, command: Command) -> asyncio.Future[Reply]:
        """Send `command`; the future gives its reply or raises the `TopicsError` it met."""
        ...

    @property
    def connected(self) -> bool:
        """Whether a command submitted now would reach an engine that is ready."""
        ...


def settle(future: asyncio.Future[Reply], reply: Reply) -> None:
    """Resolve `future` with `reply`; a caller that went away in the meantime is skipped."""
    if future.done():
        return
    if type(reply) is Failed:
        future.set_exception(reply.error())
    else:
        future.set_result(reply)

"""The engine process: recover, then serve workers until drained.

Workers are not let in before recovery is over; they read its progress from the board
meanwhile. A stop signal during recovery ends the process at once, which is safe because
recovery may be interrupted anywhere. Afterwards the first stop signal drains and further
ones are ignored: a terminal sends Ctrl-C to every process, the main process sends its own.

Exit codes: 0 stopped cleanly, 3 refused to start (a restart will not help, the reason goes
to the main process), 70 met a bug and must recover. Anything else is a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from types import FrameType
from typing import NoReturn

import uvloop

from topicsd.bridge import address
from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.server import EngineHost
from topicsd.engine import Engine
from topicsd.engine.recover import log_summary
from topicsd.model.clock import Clock
from topicsd.model.settings import Settings
from topicsd.serve.drain import STOP_SIGNALS
from topicsd.serve.orphans import name_process
from topicsd.serve.refusals import EXIT_FAULT, EXIT_REFUSED, INCURABLE, explain
from topicsd.storage.fs import DirectoryLocked, Files

# Threads that sync files must not wait for the default 5 ms to get the interpreter back.
SWITCH_INTERVAL_S = 0.0005
# A dying engine, or a second server's look at the lock, may hold it for a moment.
LOCK_PATIENCE_S = 0.5
LOCK_RETRY_S = 0.02

_log = logging.getLogger("topicsd.engine")


def engine_main(
    settings: Settings,
    files: Files,
    clock: Clock,
    listener: socket.socket,
    refusals: Connection,
) -> NoReturn:
    """Run the engine of `settings.data_dir`; the process ends with this function."""
    name_process("topicsd-engine")
    # Inherited from the main process, and none of the engine's business.
    listener.close()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    doorbell = Doorbell()
    try:
        engine = open_engine(settings, files, clock, doorbell)
        bridge = address.listen(files, address.socket_path(settings.data_dir))
    except INCURABLE as error:
        refusals.send(explain(error))
        leave(EXIT_REFUSED)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        host = EngineHost(engine, doorbell, fail, settings.drain_timeout_ms)
        runner.run(_serve(host, bridge))
    files.remove(address.socket_path(settings.data_dir))
    _log.info("engine stopped")
    leave(0)


def open_engine(settings: Settings, files: Files, clock: Clock, doorbell: Doorbell) -> Engine:
    """Recover the data directory; patient with a lock that is just being released."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        engine = Engine(settings, files, clock, doorbell.ring)
        try:
            summary = engine.recover()
        except DirectoryLocked:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOCK_RETRY_S)
            continue
        log_summary(summary)
        return engine


def fail() -> None:
    """End the process after a bug: only a fresh recovery can be trusted."""
    leave(EXIT_FAULT)


def leave(code: int) -> NoReturn:
    """Exit now, without waiting for threads or running other people's exit handlers."""
    logging.shutdown()
    os._exit(code)


async def _serve(host: EngineHost, bridge: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(host.drain)

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    await host.run(bridge)
    # The loop is about to close; a late signal must find nothing to call.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)

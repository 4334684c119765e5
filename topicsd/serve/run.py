"""`topicsd serve`: refuse early and clearly, then run the processes until told to stop.

The main process binds the HTTP socket (so that port 0 works and an address in use is one
line), looks at the data directory's lock, and forks everything else. It opens no database
and starts no thread, because its children are forks.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

from sanic import Sanic
from sanic.mixins import startup

from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.local import LocalPort
from topicsd.model.clock import Clock, open_clock
from topicsd.model.settings import Settings, check_exposure
from topicsd.serve import banner, listener, logs, orphans
from topicsd.serve.drain import STOP_SIGNALS
from topicsd.serve.engine_process import engine_main, fail, open_engine
from topicsd.serve.refusals import INCURABLE, StartRefused, explain
from topicsd.serve.supervisor import ENGINE, Outcome, States, Supervisor
from topicsd.serve.worker import attach_single, attach_worker
from topicsd.storage import paths
from topicsd.storage.fs import Files
from topicsd.web.app import create_app
from topicsd.web.lane import LaneProtocol

OPEN_FILES_MAX = 1_048_576
# After our own drain nothing is in flight: what Sanic still waits for are dead peers.
GRACEFUL_S = 0.5
GC_OBJECTS = 20_000

_log = logging.getLogger("topicsd.main")


def run(settings: Settings) -> int:
    """Serve until a stop signal; return the exit code."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    logs.configure(settings.log_level)
    files, clock = Files(), open_clock(settings.test_clock_file)
    try:
        sock = _open(settings, files)
        serve = _serve_single if settings.single_process else _serve_processes
        return serve(settings, files, clock, sock)
    except INCURABLE as error:
        return _refuse(explain(error))
    finally:
        # Everything is stopped; a late second signal must not change the exit code.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _open(settings: Settings, files: Files) -> socket.socket:
    """Everything that can be refused before a process is started."""
    check_exposure(settings)
    if settings.port_file is not None:
        listener.check_port_file(settings.port_file)
    _check_data_dir(settings, files)
    sock = listener.bind(settings.host, settings.port)
    _raise_open_files()
    orphans.name_process("topicsd-main")
    banner.announce(settings, sock)
    return sock


def _check_data_dir(settings: Settings, files: Files) -> None:
    """The directory can be written, and no other server lives in it."""
    try:
        files.make_directory(settings.data_dir)
        files.close(files.lock(paths.lock(settings.data_dir)))
    except OSError as error:
        place = settings.data_dir.absolute()
        raise StartRefused(
            f"cannot use TOPICS_DATA_DIR={place}: {error.strerror or error}"
        ) from None
    if settings.cold_dir is not None:
        _check_cold_dir(settings.cold_dir, files)


def _check_cold_dir(cold_dir: Path, files: Files) -> None:
    """A segment can be moved there."""
    probe = cold_dir / f".topicsd-{os.getpid()}"
    try:
        files.make_directory(cold_dir)
        files.write_whole(probe, b"")
        files.remove(probe)
    except OSError as error:
        raise StartRefused(
            f"cannot use TOPICS_COLD_DIR={cold_dir.absolute()}: {error.strerror or error}"
        ) from None


def _serve_processes(settings: Settings, files: Files, clock: Clock, sock: socket.socket) -> int:
    outcome = Outcome()
    refusals, refuse = Pipe(duplex=False)
    app = _build_app(settings, files, clock)
    attach_worker(app, settings, files, clock)

    def start_engine(app: Sanic) -> None:
        arguments = {
            "settings": settings,
            "files": files,
            "clock": clock,
            "listener": sock,
            "refusals": refuse,
        }
        app.manager.manage(ENGINE, engine_main, arguments, transient=False, restartable=True)
        _publish(settings, files, sock)
        # What exists now is shared by every process; keep their collectors off these pages.
        gc.collect()
        gc.freeze()
        # A request makes hundreds of short-lived objects and no cycles worth a search for each.
        gc.set_threshold(GC_OBJECTS, 20, 20)

    app.register_listener(start_engine, "main_process_ready")
    orphans.die_with_parent()
    startup.Manager = States  # type: ignore[assignment]
    startup.WorkerManager = partial(  # type: ignore[misc,assignment]
        Supervisor,
        outcome=outcome,
        refusals=refusals,
        drain_timeout_ms=settings.drain_timeout_ms,
    )
    Sanic.start_method = "fork"
    _prepare(app, sock, workers=settings.workers)
    Sanic.serve(primary=app)
    return outcome.code if outcome.refusal is None else _refuse(outcome.refusal)


def _serve_single(settings: Settings, files: Files, clock: Clock, sock: socket.socket) -> int:
    doorbell = Doorbell()
    engine = open_engine(settings, files, clock, doorbell)
    app = _build_app(settings, files, clock)
    attach_single(app, settings, files, clock, LocalPort(engine, doorbell, fail))

    async def publish(app: Sanic) -> None:
        _publish(settings, files, sock)

    app.register_listener(publish, "after_server_start")
    _prepare(app, sock, single_process=True)
    Sanic.serve_single(primary=app)
    return 0


def _build_app(settings: Settings, files: Files, clock: Clock) -> Sanic:
    app = create_app(settings, files, clock)
    app.config.GRACEFUL_SHUTDOWN_TIMEOUT = GRACEFUL_S
    app.config.GRACEFUL_TCP_CLOSE_TIMEOUT = GRACEFUL_S
    logs.configure(settings.log_level)
    return app


def _prepare(
    app: Sanic, sock: socket.socket, *, workers: int = 1, single_process: bool = False
) -> None:
    os.environ["SANIC_IGNORE_PRODUCTION_WARNING"] = "true"
    app.prepare(
        sock=sock,
        protocol=LaneProtocol,
        backlog=listener.BACKLOG,
        workers=workers,
        single_process=single_process,
        access_log=False,
        motd=False,
    )


def _publish(settings: Settings, files: Files, sock: socket.socket) -> None:
    if settings.port_file is not None:
        listener.write_port_file(files, settings.port_file, sock)


def _raise_open_files() -> None:
    """Segments, maps and connections each need a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _refuse(reason: str) -> int:
    _log.error("cannot start: %s", reason)
    return 1

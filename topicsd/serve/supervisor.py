"""The main process: keeps the engine and the workers alive, and stops them.

Sanic's WorkerManager starts processes but does not restart what dies; this one does, with
a backoff. Its signal handler only leaves a note, so that a signal can arrive at any moment
of a restart; the monitor loop does the work. Processes are signalled by pid, never by
group: the group may be the user's shell job.

Stopping: every process gets SIGINT (again every `NUDGE_S`, in case it was not listening
yet), and whatever is alive after the drain timeout plus `KILL_GRACE_S` is killed. A second
signal kills at once.

There is no ready-message to wait for: the listening socket is bound before the first fork,
so connections queue until a worker accepts, and a worker that cannot start is a dead one.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from sanic.worker.manager import WorkerManager
from sanic.worker.process import WorkerProcess

from topicsd.serve.backoff import Backoff
from topicsd.serve.refusals import EXIT_REFUSED

ENGINE = "Engine"
KILL_GRACE_S = 1.5
NUDGE_S = 0.5
REAP_S = 0.5
IDLE_S = 1.0
EXIT_FORCED = 1

_log = logging.getLogger("topicsd.main")


class Outcome:
    """How the server ended, for the caller of `Sanic.serve`."""

    def __init__(self) -> None:
        self.code = 0
        # Why the engine refuses to start, when it does.
        self.refusal: str | None = None


class States:
    """In place of the process in which Sanic keeps its table of worker states.

    Nothing here reads the table from another process, so a plain dict does, and there is
    one process less to start, to feed and to lose.
    """

    def dict(self) -> dict[str, Any]:
        return {}

    def shutdown(self) -> None:
        """There is nothing to shut down."""


class Supervisor(WorkerManager):
    """Sanic's manager, with restarts, deadlines and an outcome."""

    def __init__(
        self, *args: Any, outcome: Outcome, refusals: Connection, drain_timeout_ms: int
    ) -> None:
        self._outcome = outcome
        self._refusals = refusals
        self._drain_s = drain_timeout_ms / 1000
        self._stop_asked = False
        self._backoff: defaultdict[str, Backoff] = defaultdict(Backoff)
        self._due_s: dict[str, float] = {}
        super().__init__(*args)

    def monitor(self) -> None:
        """Restart what dies until somebody asks to stop."""
        for process in self.processes:
            self._backoff[process.name].started(time.monotonic())
        while not self._stop_asked:
            wait([self.monitor_subscriber, *self._sentinels()], self._pause_s())
            self._read_notes()
            if not self._stop_asked:
                self._revive()
        self.shutdown()

    def join(self) -> None:
        """Wait for every process to end; kill what is late."""
        deadline = time.monotonic() + self._drain_s + KILL_GRACE_S
        while living := [process for process in self.processes if process.is_alive()]:
            if time.monotonic() >= deadline:
                self._kill_late(living)
                deadline = float("inf")
            wait([process._current_process.sentinel for process in living], NUDGE_S)
            for process in living:
                _send(process, signal.SIGINT)

    def shutdown_signal(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal for the monitor loop; the second one ends everything."""
        if self._stop_asked:
            self.kill()
        self._stop_asked = True
        self.monitor_publisher.send(None)

    def kill(self) -> None:
        """Kill every process and this one, now."""
        pids = [process.pid for process in self.processes if process.is_alive()]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(pids)
        os._exit(EXIT_FORCED)

    def _sentinels(self) -> list[int]:
        """Become readable when a running process ends."""
        return [
            process._current_process.sentinel
            for process in self.processes
            if process.name not in self._due_s
        ]

    def _pause_s(self) -> float:
        if not self._due_s:
            return IDLE_S
        return max(min(self._due_s.values()) - time.monotonic(), 0.0)

    def _read_notes(self) -> None:
        """Nothing and __TERMINATE__ mean stop; a failed start shows as a dead process."""
        while self.monitor_subscriber.poll(0):
            note = self.monitor_subscriber.recv()
            if note is None or note == "__TERMINATE__":
                self._stop_asked = True

    def _revive(self) -> None:
        now_s = time.monotonic()
        for process in tuple(self.processes):
            if process.is_alive():
                continue
            if process.exitcode == EXIT_REFUSED and ENGINE in process.name:
                self._give_up()
                return
            if process.name not in self._due_s:
                self._due_s[process.name] = now_s + self._mourn(process, now_s)
            if self._due_s[process.name] <= now_s:
                del self._due_s[process.name]
                process.restart()
                self._backoff[process.name].started(now_s)

    def _mourn(self, process: WorkerProcess, now_s: float) -> float:
        """Say that a process died, and how long until the next one starts."""
        delay_s = self._backoff[process.name].died(now_s)
        _log.warning(
            "process ended, starting another",
            extra={
                "child": process.name,
                "ended_pid": process.pid,
                "exit_code": process.exitcode,
                "delay_ms": round(delay_s * 1000),
            },
        )
        return delay_s

    def _give_up(self) -> None:
        reason = self._refusals.recv() if self._refusals.poll(0) else "the engine cannot start"
        self._outcome.refusal = reason
        self._outcome.code = 1
        self._stop_asked = True

    def _kill_late(self, living: list[WorkerProcess]) -> None:
        self._outcome.code = EXIT_FORCED
        for process in living:
            _log.error(
                "process did not stop in time, killing it",
                extra={"child": process.name, "late_pid": process.pid},
            )
            _send(process, signal.SIGKILL)


def _send(process: WorkerProcess, number: int) -> None:
    if process.is_alive():
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _reap(pids: list[int]) -> None:
    """Wait a moment for killed children, so that their locks are free when this returns."""
    deadline = time.monotonic() + REAP_S
    waiting = set(pids)
    while waiting and time.monotonic() < deadline:
        for pid in tuple(waiting):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            waiting.discard(pid)
        time.sleep(0.005)

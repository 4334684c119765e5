"""A real `python -m topicsd serve` in a directory of its own, for black-box tests.

The server listens on a free port (found through TOPICS_PORT_FILE), writes its output to
`server.log` beside the data directory, and sees no TOPICS_* variable but the ones given here.
Pids are found from outside: the engine is the holder named in the lock file, a worker is a
process that owns the server's end of a connection.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from tests.harness import processes
from tests.harness.raw import ConnectionEnded, RawConnection
from tests.harness.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Shape:
    """How the server is spread over processes: the flags that choose it."""

    name: str
    flags: tuple[str, ...]
    workers: int = 1

    @property
    def single_process(self) -> bool:
        return "--single-process" in self.flags


ONE_WORKER = Shape("one-worker", ("--workers", "1"))
TWO_WORKERS = Shape("two-workers", ("--workers", "2"), workers=2)
SINGLE_PROCESS = Shape("single-process", ("--single-process",))
SHAPES = (ONE_WORKER, TWO_WORKERS, SINGLE_PROCESS)


class ServerFailed(AssertionError):
    """The server did not do what a process must; carries the tail of its log."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "topicsd", *arguments]


def environment(overrides: dict[str, str]) -> dict[str, str]:
    """This process's environment without its own TOPICS_*, plus `overrides`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **overrides}


class Server:
    """One server: started and stopped any number of times over the same data directory."""

    def __init__(
        self, directory: Path, shape: Shape = ONE_WORKER, token: str = "", **env: str
    ) -> None:
        self.directory = directory
        self.shape = shape
        self.token = token
        self.data_dir = directory / "data"
        self.log_path = directory / "server.log"
        self.port_file = directory / "port"
        self.env = {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(self.port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            **env,
        }
        self.host = ""
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        # True once this object ended the process; an exit before that is a failure.
        self._ended = False
        self._log: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailed("the server was not started")
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> Server:
        """Start the process and return when it answers ready."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> Server:
        """Start the process without waiting for anything."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port_file.unlink(missing_ok=True)
        self._ended = False
        self._log = self.log_path.open("ab")
        self._process = subprocess.Popen(
            command("serve", *self.shape.flags),
            cwd=REPOSITORY,
            env=environment(self.env),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self

    def wait_ready(self, timeout: float = READY_TIMEOUT_S) -> None:
        """Return when every worker's /readyz answers 200; fail at once when the process ends.

        Readiness is a worker's own: after an engine was lost, one of them may have found the
        next engine while another still looks for it.
        """
        until(self._is_listening, timeout, why=f"port file of {self.directory}")
        until(self.is_ready, timeout, why=f"/readyz of {self.url}")
        if self.shape.workers > 1:
            with ExitStack() as stack:
                for pid, connection in self._connect_to_each_worker(stack).items():
                    until(partial(self._is_ready_on, connection), timeout, why=f"worker {pid}")

    def _is_listening(self) -> bool:
        self._fail_if_gone()
        if not self.port_file.exists():
            return False
        self.host, _, port = self.port_file.read_text().strip().rpartition(":")
        self.port = int(port)
        return True

    def is_ready(self) -> bool:
        """One look at /readyz, answered by whichever worker accepts."""
        self._fail_if_gone()
        try:
            with RawConnection(self.address, timeout=5) as connection:
                return self._is_ready_on(connection)
        except (OSError, ConnectionEnded):
            return False

    def _is_ready_on(self, connection: RawConnection) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else None
        return connection.request("GET", "/readyz", headers=headers).status == 200

    def _fail_if_gone(self) -> None:
        if not self.running:
            tail = self.log()[-4000:]
            raise ServerFailed(f"the server exited with {self.process.poll()}:\n{tail}")

    def terminate(self) -> None:
        """Ask for a clean stop without waiting for it."""
        self._fail_if_gone()
        self._ended = True
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """The exit code; fails (and kills) when the process outlives `timeout`."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            tail = self.log()[-4000:]
            self.kill()
            raise ServerFailed(f"still running {timeout} s after SIGTERM:\n{tail}") from None
        self._close_log()
        return code

    def stop(self) -> int:
        """SIGTERM, wait, exit code."""
        self.terminate()
        return self.wait_exit()

    def kill(self) -> None:
        """SIGKILL the main process and wait until it and its children are gone."""
        family = [self.process.pid, *processes.children_of(self.process.pid)]
        self._ended = True
        self.process.kill()
        self.process.wait()
        self._close_log()
        until(lambda: not any(map(processes.is_alive, family)), 5, why=f"{family} to be gone")

    def restart(self) -> Server:
        """Stop cleanly, assert that it was clean, start again on the same data."""
        code = self.stop()
        if code != 0:
            raise ServerFailed(f"exit code {code} on a clean stop:\n{self.log()[-4000:]}")
        return self.start()

    def crash(self) -> Server:
        """SIGKILL the engine wherever it runs, and return when the server is ready again."""
        if self.shape.single_process:
            self.kill()
            return self.start()
        old = self.engine_pid()
        os.kill(old, signal.SIGKILL)
        until(lambda: self.find_engine_pid() not in (None, old), READY_TIMEOUT_S, why="new engine")
        self.wait_ready()
        return self

    def lose_worker_of(self, connection: socket.socket) -> Server:
        """SIGKILL the process that serves `connection`, and return when all workers are ready."""
        if self.shape.single_process:
            return self.crash()
        victim = self.worker_of(connection)
        os.kill(victim, signal.SIGKILL)
        until(lambda: not processes.is_alive(victim), why=f"worker {victim} to be gone")
        self.wait_ready()
        return self

    def find_engine_pid(self) -> int | None:
        """The pid in the data directory's lock file, None while nobody lives there."""
        try:
            text = (self.data_dir / "lock").read_text()
        except FileNotFoundError:
            return None
        match = re.search(r"\d+", text)
        if match is None or not processes.is_alive(int(match.group())):
            return None
        return int(match.group())

    def engine_pid(self) -> int:
        """The process that owns the data directory; a process of this server."""
        pid = until(self.find_engine_pid, why="an engine to hold the lock")
        family = {self.process.pid, *processes.children_of(self.process.pid)}
        if pid not in family:
            raise ServerFailed(f"the lock names {pid}, which is not one of {sorted(family)}")
        return pid

    def worker_of(self, connection: socket.socket) -> int:
        """The process that serves `connection`, waiting until one accepted it."""
        return until(lambda: self.find_worker_of(connection), why="a worker to accept")

    def find_worker_of(self, connection: socket.socket) -> int | None:
        """The process that accepted `connection`, None until one did."""
        inode = processes.accepted_inode(connection)
        return None if inode is None else next(iter(self._owners({inode})), None)

    def workers_serving(self, client: int) -> set[int]:
        """The processes that hold connections of the process `client` or its children."""
        family = [client, *processes.children_of(client)]
        return set(self._owners(processes.accepted_inodes(family, self.port)))

    def _owners(self, inodes: set[int]) -> list[int]:
        family = [self.process.pid, *processes.children_of(self.process.pid)]
        return [pid for pid in family if inodes & processes.socket_inodes(pid)]

    def worker_pids(self) -> set[int]:
        """The processes that accept connections."""
        with ExitStack() as stack:
            return set(self._connect_to_each_worker(stack))

    def _connect_to_each_worker(self, stack: ExitStack) -> dict[int, RawConnection]:
        """One open connection to every worker: which of them accepts is the kernel's choice."""
        found: dict[int, RawConnection] = {}

        def connect() -> bool:
            self._fail_if_gone()
            connection = stack.enter_context(RawConnection(self.address))
            if found.setdefault(self.worker_of(connection.socket), connection) is not connection:
                connection.close()
            return len(found) == self.shape.workers

        until(connect, READY_TIMEOUT_S, why=f"all {self.shape.workers} workers to accept")
        return found

    def connect_elsewhere(self, connection: socket.socket) -> RawConnection:
        """A connection to another worker than `connection` has, or to the only one there is."""
        known = self.worker_of(connection)
        if self.shape.workers == 1:
            return RawConnection(self.address)

        def connect() -> RawConnection | None:
            opened = RawConnection(self.address)
            if self.worker_of(opened.socket) != known:
                return opened
            opened.close()
            return None

        return until(connect, READY_TIMEOUT_S, why="another worker to accept")

    def check(self) -> subprocess.CompletedProcess[str]:
        """Run `topicsd check` over the data directory of the stopped server."""
        return subprocess.run(
            command("check", str(self.data_dir)),
            cwd=REPOSITORY,
            env=environment({}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def finish(self) -> None:
        """End of a test: stop if running, assert exit code 0 and a clean data directory."""
        if not self._ended:
            code = self.stop()
            assert code == 0, f"exit code {code} on SIGTERM:\n{self.log()[-4000:]}"
        elif self.running:
            self.kill()
        report = self.check()
        assert report.returncode == 0, f"topicsd check:\n{report.stdout}{report.stderr}"

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def start_server(directory: Path, shape: Shape = ONE_WORKER, token: str = "", **env: str) -> Server:
    """Start a server under `directory` with the given TOPICS_* and wait until it is ready."""
    server = Server(directory, shape, token, **env)
    try:
        return server.start()
    except BaseException:
        if server.running:
            server.kill()
        raise

"""Servers under measurement: started as users start them, looked at through /proc, ended.

A `Child` is one command in its own process group with its output in a log file. Whatever
happens in a measurement, leaving the `with` block ends every process of the group.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep
from types import TracebackType
from typing import Any, Self

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.004
LOG_TAIL_BYTES = 3000


class BenchError(Exception):
    """A measurement that cannot be made; the text says why."""


class Child:
    """A process group that writes its address to a port file."""

    def __init__(self, command: list[str], home: Path, environ: dict[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.port_file = home / "port"
        self.port_file.unlink(missing_ok=True)
        self._log = home / "log"
        self._command = command
        self._environ = environ
        self.started_s = 0.0
        self.port = 0

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self.started_s = perf_counter()
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self.port = int(self._wait_for_address().rpartition(":")[2])
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _wait_for_address(self) -> str:
        deadline_s = monotonic() + START_TIMEOUT_S
        while not self.port_file.exists():
            self._check(deadline_s, "no port file")
            sleep(POLL_S)
        return self.port_file.read_text().strip()

    def _check(self, deadline_s: float, missing: str) -> None:
        if self._process.poll() is not None:
            raise BenchError(f"exit code {self._process.returncode}\n{self.log_tail()}")
        if monotonic() > deadline_s:
            raise BenchError(f"{missing} after {START_TIMEOUT_S:.0f} s\n{self.log_tail()}")

    def log_tail(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def pids(self) -> list[int]:
        """The process and all its descendants."""
        found = [self._process.pid]
        for pid in found:
            found.extend(_children(pid))
        return found

    def rss_anon_bytes(self) -> int:
        """Anonymous memory, summed over all processes of the server."""
        return sum(_rss_anon_bytes(pid) for pid in self.pids())

    def cpu_s(self) -> float:
        """Processor time used so far by all processes of the server."""
        return sum(_cpu_s(pid) for pid in self.pids())

    def stop(self) -> float:
        """Stop cleanly; returns the seconds it took."""
        begun_s = perf_counter()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"no exit after SIGTERM\n{self.log_tail()}") from None
        if code != 0:
            raise BenchError(f"exit code {code} after SIGTERM\n{self.log_tail()}")
        return perf_counter() - begun_s

    def kill(self) -> None:
        """End every process of the group at once; harmless when they are gone."""
        pids = self.pids() if self._process.poll() is None else []
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        _wait_until_gone(pids)


class TopicsServer(Child):
    """`topicsd serve` on a free port, ready when the block is entered."""

    ready_s: float

    def __init__(self, home: Path, *, workers: int = 1, **settings: object) -> None:
        self.data_dir = home / "data"
        self._workers = workers
        environ = {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(home / "port"),
            "TOPICS_DATA_DIR": str(self.data_dir),
            "TOPICS_EPHEMERAL_DIR": str(home / "ephemeral"),
            "TOPICS_MAX_TOPICS": "0",
        }
        environ |= {f"TOPICS_{name.upper()}": str(value) for name, value in settings.items()}
        command = [sys.executable, "-m", "topicsd", "serve", "--workers", str(workers)]
        super().__init__(command, home, environ)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.ready_s = self._wait_until_ready() - self.started_s
        except BaseException:
            self.kill()
            raise
        return self

    def _wait_until_ready(self) -> float:
        deadline_s = monotonic() + START_TIMEOUT_S
        while True:
            with suppress(OSError, http.client.HTTPException):
                if self._is_ready():
                    return perf_counter()
            self._check(deadline_s, "not ready")
            sleep(POLL_S)

    def _is_ready(self) -> bool:
        """Readiness is each worker's own, and the kernel decides who is asked: ask often."""
        asked = 1 if self._workers == 1 else 8 * self._workers
        return all(self.call("GET", "/v0/ready")[0] == 200 for _ in range(asked))

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """One request on its own connection: the status and the decoded answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            text = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Like `call`, for requests that must succeed."""
        status, answer = self.call(method, path, body)
        if not 200 <= status < 300:
            raise BenchError(f"{method} {path} answered {status}: {answer}")
        return answer

    def create(self, topic: str, **config: object) -> None:
        self.ask("PUT", f"/v0/topics/{topic}", config)


class BaselineServer(Child):
    """The stock Sanic application of `loadtest.bench.baseline`."""

    def __init__(self, home: Path) -> None:
        self._store = home / "store"
        command = [sys.executable, "-m", "loadtest.bench.baseline"]
        super().__init__([*command, str(home / "port"), str(self._store)], home, {})

    def empty(self) -> None:
        """Forget what was stored, so that the disk does not fill up."""
        os.truncate(self._store, 0)


class BroadcastServer(Child):
    """The stock Sanic application of `loadtest.bench.broadcast`."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "loadtest.bench.broadcast", str(home / "port")]
        super().__init__(command, home, {})


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


def _rss_anon_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def _cpu_s(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _wait_until_gone(pids: list[int]) -> None:
    """Wait for orphans too: a data directory must be free before it is opened again."""
    deadline_s = monotonic() + 10.0
    while any(_is_running(pid) for pid in pids):
        if monotonic() > deadline_s:
            raise BenchError(f"processes {pids} survived SIGKILL")
        sleep(POLL_S)


def _is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def files_under(directory: Path) -> Iterator[os.stat_result]:
    """What `stat` says of every regular file below `directory`."""
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.lstat(os.path.join(parent, name))

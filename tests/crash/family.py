"""A server's processes seen from outside, and requests that keep them busy."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import httpx

from tests.harness import processes
from tests.harness.api import Api
from tests.harness.raw import RawConnection, RawResponse, build_request
from tests.harness.server import (
    REPOSITORY,
    TWO_WORKERS,
    Server,
    command,
    environment,
)
from tests.harness.waiting import until


class Servers:
    """Starts servers for a test and ends them with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Server] = []

    def start(self, shape=TWO_WORKERS, name: str = "server", **env: str) -> Server:
        server = Server(self.directory / name, shape, **env)
        self.started.append(server)
        return server.start()


def family(server: Server) -> list[int]:
    return [server.process.pid, *processes.children_of(server.process.pid)]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def workers_of(server: Server) -> set[int]:
    children = processes.children_of(server.process.pid)
    return {pid for pid in children if processes.is_alive(pid) and "worker" in name_of(pid)}


def wait_for_workers(server: Server, count: int) -> set[int]:
    """The pids of all workers; one of them answers ready before the others have started."""
    until(lambda: len(workers_of(server)) == count, 10, why=f"{count} workers")
    return workers_of(server)


def ask_every_worker(server: Server, count: int, request: bytes) -> dict[int, RawResponse]:
    """The answer of each of `count` workers; connections are opened until all were met."""
    answers: dict[int, RawResponse] = {}
    connections: list[RawConnection] = []

    def met_all() -> bool:
        connection = RawConnection(server.address)
        connections.append(connection)
        connection.send(request)
        answer = connection.receive()
        answers[server.worker_of(connection.socket)] = answer
        return len(answers) == count

    try:
        until(met_all, 10, why=f"{count} workers to answer")
    finally:
        for connection in connections:
            connection.close()
    return answers


def refuse_to_start(directory: Path, **env: str) -> tuple[int, list[str], float]:
    """Start a server that must refuse: exit code, lines of output, seconds it took."""
    started = time.monotonic()
    result = subprocess.run(
        command("serve"),
        cwd=REPOSITORY,
        env=environment({"TOPICS_DATA_DIR": str(directory), "TOPICS_PORT": "0", **env}),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    return result.returncode, lines, time.monotonic() - started


def write(api: Api, topic: str, value: int) -> int | None:
    """Append through any worker; the status, or None when the connection broke."""
    try:
        return api.append(topic, value, config={"durability": "fsync"}).status_code
    except httpx.TransportError:
        return None


def read_all(api: Api, topic: str) -> list[int]:
    """Every payload of a topic, page by page."""
    values: list[int] = []
    page = {"next_from_seq": 0, "caught_up": False}
    while not page["caught_up"]:
        page = api.diff(topic, page["next_from_seq"], limit=1000).json()
        values.extend(record["data"] for record in page["records"])
    return values


def endless_request() -> bytes:
    """A write whose chunked body is never finished."""
    head = build_request(
        "POST",
        "/v0/topics/t",
        headers={"Content-Type": "application/json", "Transfer-Encoding": "chunked"},
    )
    return head + b"5\r\n"


def api_is_draining(api: Api) -> bool:
    try:
        return api.request("GET", "/readyz").status_code == 503
    except httpx.TransportError:
        return True

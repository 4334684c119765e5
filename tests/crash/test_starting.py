"""How a real server starts, or refuses to: early, in one line, disturbing nobody."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import apsw
import httpx
import pytest

from tests.crash.family import (
    Servers,
    family,
    refuse_to_start,
    wait_for_workers,
)
from tests.harness.api import Api
from tests.harness.server import (
    ONE_WORKER,
    SHAPES,
    SINGLE_PROCESS,
    Server,
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_second_server_on_the_same_directory_refuses(servers: Servers, shape) -> None:
    """One line that names directory and holder, exit 1, quickly; the first does not notice."""
    server = servers.start(shape)
    wait_for_workers(server, {"two-workers": 2, "one-worker": 1}.get(shape.name, 0))
    engine, before = server.engine_pid(), family(server)
    code, lines, elapsed_s = refuse_to_start(server.data_dir)
    assert (code, len(lines)) == (1, 1)
    assert str(server.data_dir) in lines[0]
    assert str(engine) in lines[0]
    assert elapsed_s < 2
    assert (server.engine_pid(), family(server)) == (engine, before)
    assert Api(server).append("t", 1).status_code == 201


def test_address_in_use_is_one_line(servers: Servers, tmp_path: Path) -> None:
    """A taken port ends the start with exit code 1 and the address in the message."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, lines, _ = refuse_to_start(tmp_path / "data", TOPICS_PORT=str(port))
    assert (code, len(lines)) == (1, 1)
    assert f"127.0.0.1:{port}" in lines[0]
    assert "in use" in lines[0]


def test_data_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file where the directory should be ends the start with one clear line."""
    (tmp_path / "file").write_text("")
    code, lines, _ = refuse_to_start(tmp_path / "file" / "data")
    assert (code, len(lines)) == (1, 1)
    assert str(tmp_path / "file" / "data") in lines[0]


def test_port_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A port file in a missing directory is refused before anything is started."""
    path = tmp_path / "absent" / "port"
    code, lines, _ = refuse_to_start(tmp_path / "data", TOPICS_PORT_FILE=str(path))
    assert (code, len(lines)) == (1, 1)
    assert str(path) in lines[0]


def test_newer_catalog_ends_the_server_with_one_reason(servers: Servers) -> None:
    """An engine that refuses to start is not restarted: the server says why and exits 1."""
    server = servers.start(ONE_WORKER)
    assert server.stop() == 0
    servers.started.clear()
    connection = apsw.Connection(str(server.data_dir / "catalog.sqlite"))
    connection.execute(
        "insert into migrations(name, checksum, applied_ts) values ('999_future.sql', 'x', 0)"
    )
    connection.close()
    code, lines, elapsed_s = refuse_to_start(server.data_dir)
    assert code == 1
    assert " error topicsd.main cannot start: " in lines[-1]
    assert "999_future" in lines[-1]
    assert not any("Traceback" in line for line in lines)
    assert elapsed_s < 5


def test_port_file_names_the_bound_address(servers: Servers) -> None:
    """Port 0 takes a free port, and the file says which, in one line."""
    server = servers.start(ONE_WORKER)
    host, _, port = server.port_file.read_text().strip().rpartition(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)
    assert httpx.get(f"http://{host}:{port}/healthz").status_code == 200
    assert list(server.directory.glob("port*")) == [server.port_file]


@pytest.mark.parametrize("shape", [ONE_WORKER, SINGLE_PROCESS], ids=lambda shape: shape.name)
def test_empty_directory_is_ready_within_two_seconds(servers: Servers, shape) -> None:
    """From exec to a ready answer, imports included."""
    started = time.monotonic()
    servers.start(shape)
    assert time.monotonic() - started < 2


def test_data_directory_with_a_long_path_works(servers: Servers) -> None:
    """A path longer than a socket address may be is no obstacle."""
    server = servers.start(ONE_WORKER, name="d" * 100 + "/" + "e" * 60)
    assert Api(server).append("t", 1).status_code == 201


def test_log_is_structured_and_shows_no_keys(servers: Servers) -> None:
    """Every line has timestamp, level and name; the banner counts keys and hides them."""
    server = Server(servers.directory / "keys", ONE_WORKER, "sesame", TOPICS_API_KEYS="sesame")
    servers.started.append(server)
    server.start()
    lines = server.log().splitlines()
    assert all(line.split()[0].endswith("Z") for line in lines)
    assert {line.split()[1] for line in lines} <= {"info", "warning"}
    assert any("keys=1" in line and "version=" in line for line in lines)
    assert "sesame" not in server.log()
    assert "NO AUTHENTICATION" not in server.log()

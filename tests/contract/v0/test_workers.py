"""One server, several processes: what one connection wrote every other one sees at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.harness.answers import good, payloads, refused
from tests.harness.raw import RawConnection
from tests.harness.server import Server

CONNECTIONS = 20
CONNECTIONS_MAX = 100


@pytest.fixture(scope="module")
def connections(server: Server) -> Iterator[list[RawConnection]]:
    """Twenty connections or more, so many that every worker serves one of them."""
    wanted = server.shape.workers
    serving: set[int] = set()
    opened: list[RawConnection] = []
    with ExitStack() as stack:
        while len(opened) < CONNECTIONS or len(serving) < wanted:
            assert len(opened) < CONNECTIONS_MAX, f"only {serving} of {wanted} workers accept"
            connection = stack.enter_context(RawConnection(server.address))
            assert connection.request("GET", "/healthz").status == 200
            serving.add(server.worker_of(connection.socket))
            opened.append(connection)
        assert len(serving) == wanted
        yield opened


def write(connection: RawConnection, topic: str, data: object) -> dict:
    body = json.dumps({"records": [{"data": data}]}).encode()
    answer = connection.request("POST", f"/v0/topics/{topic}", body)
    assert answer.status in (200, 201), answer
    return answer.json()


def read(connection: RawConnection, topic: str, from_seq: int) -> dict:
    body = json.dumps({"from_seq": from_seq}).encode()
    return good(connection.request("POST", f"/v0/topics/{topic}/diff", body))


def test_a_write_is_read_by_all_at_once(connections: list[RawConnection], topic: str) -> None:
    """Architecture 3: the board is shared, so no reader is behind an answered write."""
    for number, writer in enumerate(connections[:10], start=1):
        assert write(writer, topic, number)["seqs"] == [number]
        for reader in connections:
            page = read(reader, topic, number - 1)
            assert (payloads(page), page["head_seq"]) == ([number], number)


def test_a_created_topic_exists_for_all_at_once(
    connections: list[RawConnection], topic: str
) -> None:
    """Architecture 3: a created, changed or deleted topic is seen on the next request."""
    path = f"/v0/topics/{topic}"
    for creator in connections[:6]:
        good(creator.request("PUT", path, b'{"priority":1}'), 201)
        for reader in connections:
            assert good(reader.request("GET", path))["config"]["priority"] == 1
        good(creator.request("PUT", path, b'{"priority":2}'))
        for reader in connections:
            assert good(reader.request("GET", path))["config"]["priority"] == 2
        assert good(creator.request("DELETE", path))["deleted"] is True
        for reader in connections:
            refused(reader.request("GET", path), 404, "topic_not_found")


def test_a_recreated_topic_is_the_new_one_for_all(
    connections: list[RawConnection], topic: str
) -> None:
    """DESIGN 5.5: no connection reads records of the topic that had the name before."""
    for round_number, owner in enumerate(connections[:6]):
        write(owner, topic, f"round {round_number}")
        for reader in connections:
            assert payloads(read(reader, topic, 0)) == [f"round {round_number}"]
        good(owner.request("DELETE", f"/v0/topics/{topic}"))


def test_a_listing_is_the_same_everywhere(connections: list[RawConnection], topic: str) -> None:
    """API 1.3: counts and names in a listing are current on every connection."""
    for number, writer in enumerate(connections[:6], start=1):
        write(writer, topic, number)
        for reader in connections:
            listed = good(reader.request("GET", f"/v0/topics?prefix={topic}"))["topics"]
            assert [(entry["topic"], entry["count"]) for entry in listed] == [(topic, number)]


def test_recency_is_shared(connections: list[RawConnection], topic: str) -> None:
    """API 1.2: a read through one connection is in the state seen by all."""
    write(connections[0], topic, 1)
    read(connections[1], topic, 0)
    path = f"/v0/topics/{topic}?touch=false"
    for reader in connections:
        assert good(reader.request("GET", path))["last_read_ts"] is not None


def test_the_engine_is_a_process_of_its_own_unless_single(server: Server) -> None:
    """Architecture 3: the writer is not a worker, except in a single process."""
    engine = server.engine_pid()
    workers = server.worker_pids()
    assert (engine in workers) is server.shape.single_process

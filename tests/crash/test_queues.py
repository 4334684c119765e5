"""A server killed while workers claim and ack loses no job and brings no acked one back."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import SHAPES, Shape, start_server
from tests.harness.waiting import until

JOBS = 3000
WORKERS = 4
ROUNDS = 3


class Worker:
    """Claims and acks until the server is gone, and remembers what it was told."""

    def __init__(self, api: Api, node: str) -> None:
        self.acked: list[int] = []
        # Sent, and never answered: they may be done or not.
        self.doubtful: list[int] = []
        self._api, self._node = api, node
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._api.close()

    def _run(self) -> None:
        try:
            while True:
                jobs = good(self._api.claim("jobs", self._node, max=7))["claimed"]
                self.doubtful = [job["$seq"] for job in jobs]
                if not jobs:
                    return
                assert good(self._api.ack("jobs", self.doubtful, self._node))["skipped"] == []
                self.acked += self.doubtful
                self.doubtful = []
        except httpx.HTTPError:
            return


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_jobs_survive_kills(tmp_path: Path, shape: Shape, durability: str) -> None:
    """Every job is acked, or still there; a process that dies keeps the page cache."""
    server = start_server(tmp_path, shape, TOPICS_CHECKPOINT_INTERVAL_MS="200")
    api = Api(server)
    api.queue("jobs", *range(JOBS), durability=durability, lease_ms=600_000)
    acked: set[int] = set()
    doubtful: set[int] = set()
    for number in range(ROUNDS):
        workers = [Worker(Api(server, connections=1), f"w{number}-{n}") for n in range(WORKERS)]
        until(lambda found=workers: sum(len(each.acked) for each in found) > 100)
        server.kill()
        for worker in workers:
            worker.join()
        told = [seq for worker in workers for seq in worker.acked]
        assert len(told) == len(set(told)) and not acked & set(told)
        acked |= set(told)
        doubtful |= {seq for worker in workers for seq in worker.doubtful}
        server.start()
        server.wait_ready()
        left = _list_seqs(api)
        assert not left & acked
        assert set(range(1, JOBS + 1)) - acked - doubtful <= left
        state = good(api.state("jobs"))
        ready, in_flight = state["queue"]["ready"], state["queue"]["in_flight"]
        assert ready + in_flight == state["count"] == len(left)
    api.close()
    server.finish()


def _list_seqs(api: Api) -> set[int]:
    """Every job that is ready or leased, through the listing."""
    found: set[int] = set()
    for state in ("ready", "in_flight"):
        query = {"state": state, "page_size": 1000}
        while True:
            body = good(api.jobs("jobs", **query))
            found |= {job["$seq"] for job in body["jobs"]}
            if "next_cursor" not in body:
                break
            query["cursor"] = body["next_cursor"]
    return found

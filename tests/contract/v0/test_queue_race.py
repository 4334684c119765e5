"""Many claimers at once: every job is leased to one of them at a time, and acked once."""

from __future__ import annotations

import threading
from collections import Counter

from tests.harness.answers import good
from tests.harness.api import Api

JOBS = 10_000
CLAIMERS = 2


def test_two_workers_race_ten_thousand_jobs(api: Api, topic: str) -> None:
    """DESIGN 10: each job is delivered to one claimer and acked once; nothing is left."""
    api.queue(topic, *range(JOBS))
    acked: list[int] = []

    def work(node: str) -> None:
        client = Api(api.server, connections=1)
        while jobs := good(client.claim(topic, node, max=50))["claimed"]:
            seqs = [job["$seq"] for job in jobs]
            body = good(client.ack(topic, seqs, node))
            assert (body["acked"], body["skipped"]) == (len(seqs), [])
            acked.extend(seqs)
        client.close()

    workers = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(CLAIMERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert Counter(acked) == Counter(range(1, JOBS + 1))
    assert api.counts(topic) == (0, 0, 0)
    assert good(api.state(topic))["count"] == 0

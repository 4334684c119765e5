"""Queues: claim and ack cycles, and that a claim costs the same whatever waits in line."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

from loadtest.bench.driver import Driver, open_driver, settings_for
from loadtest.bench.payload import envelope
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute, relative, statement
from loadtest.bench.server import BenchError, TopicsServer
from topicsd.model.commands import Command, PutTopic, Reply
from topicsd.model.jobs import AckJobs, ClaimJobs, JobsAcked, JobsClaimed
from topicsd.model.topic import TopicConfig

AREA = "queues"
WORKERS = 16
BATCH_JOBS = 16
QUEUE = TopicConfig(type="queue", lease_ms=600_000)
BACKLOGS = (1_000, 1_000_000)
CLAIMS = 50
CYCLES = Goal(">=", 20_000.0)
SAME_COST = Goal("<=", 1.2)
HTTP_JOBS_MAX = 200_000


def run(bench: Bench) -> Iterator[Row]:
    with open_driver(settings_for(bench.home / "engine")) as driver:
        yield _cycles(bench, driver)
        yield from _backlogs(driver)
    with TopicsServer(bench.home / "server") as server:
        yield _over_http(bench, server)


def _cycles(bench: Bench, driver: Driver) -> Row:
    """Every worker acks what it has and claims again, all of them in flight at once."""
    rates = []
    for number in range(bench.sizes.rounds):
        topic = f"cycles-{number}"
        _fill(driver, topic, 400_000)
        rates.append(_cycle(driver, topic, bench.sizes.measure_s))
    name = f"claim and ack, {WORKERS} workers, batches of {BATCH_JOBS}, engine"
    return absolute(AREA, name, median(rates), "jobs/s", goal=CYCLES)


def _cycle(driver: Driver, topic: str, measure_s: float) -> float:
    claims: list[Command] = [ClaimJobs(topic, f"w{n}", BATCH_JOBS, 0) for n in range(WORKERS)]
    held: list[Command] = []
    done = 0
    begun_s = perf_counter()
    while (elapsed_s := perf_counter() - begun_s) < measure_s:
        replies = _apply(driver, [*held, *claims])
        done += sum(reply.acked for reply in replies if isinstance(reply, JobsAcked))
        claimed = [reply for reply in replies if isinstance(reply, JobsClaimed)]
        if not claimed[-1].seqs:
            break
        held = [AckJobs(topic, f"w{n}", reply.seqs, []) for n, reply in enumerate(claimed)]
    return done / elapsed_s


def _backlogs(driver: Driver) -> Iterator[Row]:
    """The same claims against a short line and against a long one, in turn."""
    for ready in BACKLOGS:
        _fill(driver, f"ready-{ready}", ready)
    taken: dict[int, list[float]] = {ready: [] for ready in BACKLOGS}
    for _ in range(CLAIMS):
        for ready in BACKLOGS:
            begun_s = perf_counter()
            _apply(driver, [ClaimJobs(f"ready-{ready}", "w", BATCH_JOBS, 0)])
            taken[ready].append((perf_counter() - begun_s) * 1e6)
    short, long = (median(taken[ready]) for ready in BACKLOGS)
    name = f"a claim against {BACKLOGS[1]:,} ready jobs, against one of {BACKLOGS[0]:,}"
    yield relative(AREA, name, long, "us", baseline=short, goal=SAME_COST)


def _fill(driver: Driver, topic: str, jobs: int) -> None:
    _apply(driver, [PutTopic(topic, QUEUE, True)])
    if jobs >= 10_000:
        driver.load(topic, jobs)
    else:
        for _ in range(jobs // BATCH_JOBS + 1):
            driver.load_singly(topic, BATCH_JOBS)


def _apply(driver: Driver, commands: list[Command]) -> list[Reply]:
    """Apply a batch and wait for all its replies, in order."""
    engine = driver.engine
    engine.tick()
    replies = dict(engine.apply(list(enumerate(commands))))
    while len(replies) < len(commands):
        replies.update(engine.release())
    engine.take_moved()
    return [replies[number] for number in range(len(commands))]


def _over_http(bench: Bench, server: TopicsServer) -> Row:
    """The same cycles by so many clients of this process, which is most of the cost."""
    server.create("jobs", type="queue")
    filling = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for first in range(0, HTTP_JOBS_MAX, 10_000):
        _post(filling, "/v0/topics/jobs", envelope(10_000, first))
    filling.close()
    stop = threading.Event()
    done = [0] * WORKERS

    def work(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        node = f"w{number}"
        while not stop.is_set():
            claim = json.dumps({"node": node, "max": BATCH_JOBS}).encode()
            jobs = _post(connection, "/v0/topics/jobs/claim", claim)["claimed"]
            if not jobs:
                break
            ack = json.dumps({"node": node, "seqs": [job["$seq"] for job in jobs]}).encode()
            done[number] += _post(connection, "/v0/topics/jobs/ack", ack)["acked"]
        connection.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    begun_s = perf_counter()
    for worker in workers:
        worker.start()
    stop.wait(bench.sizes.measure_s)
    stop.set()
    for worker in workers:
        worker.join()
    name = f"claim and ack over HTTP, {WORKERS} clients, batches of {BATCH_JOBS}"
    return statement(AREA, name, sum(done) / (perf_counter() - begun_s), "jobs/s")


def _post(connection: http.client.HTTPConnection, path: str, body: bytes) -> dict[str, Any]:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = json.loads(response.read())
    if response.status != 200:
        raise BenchError(f"{path} answered {response.status}: {content}")
    return dict(content)

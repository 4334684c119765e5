"""Deletes and retention: that they cost what they remove, not what a topic holds.

A thousand records by tag out of one length and out of ten times that length, sweeps by cap and
by age over few and many records, reads through holes, and the first page of many topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter

from loadtest.bench import payload
from loadtest.bench.client import Numbered
from loadtest.bench.driver import Driver, open_driver, open_reader, settings_for
from loadtest.bench.load import run_plan
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute, relative, statement
from loadtest.bench.server import BenchError, TopicsServer
from topicsd.model.commands import Append, Command, DeleteRecords, PutTopic, RecordsDeleted, Reply
from topicsd.model.match import Match
from topicsd.model.record import pack_record
from topicsd.model.topic import TopicConfig
from topicsd.reader import DiffQuery

AREA = "deletes"
MATCHING = 1000
BATCH_RECORDS = 10_000
PAGE_RECORDS = 1000
ROUNDS = 5
TAG_DELETE = Goal("<", 50.0)
NO_SLOWER = Goal("<", 1.5)
WITH_HOLES = Goal(">=", 0.3)
FIRST_PAGE = Goal("<", 10.0)


def run(bench: Bench) -> Iterator[Row]:
    long = bench.sizes.long_records
    with open_driver(settings_for(bench.home / "engine")) as driver:
        yield from _tag_deletes(driver, (long // 10, long))
        yield from _sweeps(driver, (long // 100, long // 10))
    yield from _holes(bench)
    with TopicsServer(bench.home / "many") as server:
        yield _first_page(bench, server)


def _tag_deletes(driver: Driver, lengths: tuple[int, int]) -> Iterator[Row]:
    """Every round's tag is on `MATCHING` records, evenly spread over the topic."""
    taken: list[float] = []
    for length in lengths:
        topic = f"tagged-{length}"
        _fill_tagged(driver, topic, length)
        rounds = []
        for number in range(ROUNDS):
            command = DeleteRecords(topic, None, Match(f"gone-{number}", is_prefix=False))
            rounds.append(_timed_ms(driver, command, MATCHING))
        taken.append(median(rounds))
        name = f"{MATCHING:,} of {length:,} records deleted by tag, engine"
        yield absolute(AREA, name, taken[-1], "ms", goal=TAG_DELETE)
        yield statement(AREA, f"the first such delete of {length:,}", rounds[0], "ms")
    name = f"the same in {lengths[1]:,} against {lengths[0]:,}"
    yield relative(AREA, name, taken[1], "ms", baseline=taken[0], goal=NO_SLOWER)


def _fill_tagged(driver: Driver, topic: str, length: int) -> None:
    """All records have tags; `ROUNDS` tags are on as many records as a round deletes."""
    step = length // MATCHING
    for first in range(0, length, BATCH_RECORDS):
        tags = [
            f"gone-{at % step}" if at % step < ROUNDS else f"kept-{at % 1000}"
            for at in range(first, first + BATCH_RECORDS)
        ]
        _call(driver, _tagged(topic, tags))


def _tagged(topic: str, tags: list[str]) -> Append:
    packed = [pack_record(b'{"id":1}', tag, None, None) for tag in tags]
    forms = b"".join(form for form, _ in packed)
    return Append(topic, len(tags), forms, b"".join(row for _, row in packed), 8 * len(tags))


def _call(driver: Driver, command: Command) -> Reply:
    """Apply one command; whatever reply it gets."""
    engine = driver.engine
    engine.tick()
    replies = engine.apply([(0, command)])
    while not replies:
        replies = engine.release()
    return replies[0][1]


def _timed_ms(driver: Driver, command: DeleteRecords, expected: int) -> float:
    begun_s = perf_counter()
    reply = _call(driver, command)
    taken_ms = (perf_counter() - begun_s) * 1000
    if not isinstance(reply, RecordsDeleted) or reply.deleted != expected:
        raise BenchError(f"{expected} records should be deleted, not {reply}")
    return taken_ms


def _sweeps(driver: Driver, lengths: tuple[int, int]) -> Iterator[Row]:
    """A cap, and an age, that takes all records but a few: one sweep over them."""
    for kind, config in (("cap", TopicConfig(cap_records=10)), ("ttl", TopicConfig(ttl_ms=1))):
        per_record_us = []
        for length in lengths:
            topic = f"{kind}-{length}"
            driver.load(topic, length)
            begun_s = perf_counter()
            _call(driver, PutTopic(topic, config, True))
            _call(driver, DeleteRecords(topic, 0, None))
            taken_ms = (perf_counter() - begun_s) * 1000
            per_record_us.append(taken_ms * 1000 / length)
            yield statement(AREA, f"{kind} sweep over {length:,} records", taken_ms, "ms")
        name = f"{kind} sweep, us a record, {lengths[1]:,} against {lengths[0]:,}"
        yield relative(AREA, name, per_record_us[1], "us", baseline=per_record_us[0])


def _holes(bench: Bench) -> Iterator[Row]:
    """Pages through a topic with every hundredth record deleted, against one without."""
    settings = settings_for(bench.home / "holes")
    records = bench.sizes.read_records
    with open_driver(settings) as driver:
        for topic in ("whole", "holed"):
            for first in range(0, records, BATCH_RECORDS):
                marks = range(first, first + BATCH_RECORDS)
                packed = [
                    pack_record(payload.payload(at), "gone" if at % 100 == 0 else None, None, None)
                    for at in marks
                ]
                forms, rows = (b"".join(parts) for parts in zip(*packed, strict=True))
                size = len(packed) * payload.PAYLOAD_BYTES
                _call(driver, Append(topic, len(packed), forms, rows, size))
        _timed_ms(driver, DeleteRecords("holed", None, Match("gone", False)), records // 100)
        rates: dict[str, list[float]] = {"whole": [], "holed": []}
        reader = open_reader(settings)
        for _ in range(bench.sizes.rounds):
            for topic, found in rates.items():
                view = reader.find_topic(topic)
                assert view is not None
                count = from_seq = 0
                begun_s = perf_counter()
                while from_seq < records:
                    query = DiffQuery(from_seq, PAGE_RECORDS, (), True, True, 2**20)
                    page = reader.diff(view, query)
                    assert page is not None
                    count += page.count
                    len(bytes(page.records))
                    from_seq = page.next_from_seq
                found.append(count / (perf_counter() - begun_s))
    yield relative(
        AREA,
        "records read with 1% deleted, against none",
        median(rates["holed"]),
        "records/s",
        baseline=median(rates["whole"]),
        goal=WITH_HOLES,
    )


def _first_page(bench: Bench, server: TopicsServer) -> Row:
    before, after = payload.numbered_post("/v0/topics/idle-", payload.envelope(1))
    source = Numbered(before, after, bench.sizes.topics, times=bench.sizes.topics)
    run_plan(bench.plan(server, 32, source))
    taken = []
    for _ in range(50):
        begun_s = perf_counter()
        server.ask("GET", "/v0/topics")
        taken.append((perf_counter() - begun_s) * 1000)
    name = f"first page of {bench.sizes.topics:,} topics listed"
    return absolute(AREA, name, median(taken), "ms", goal=FIRST_PAGE)

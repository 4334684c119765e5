"""Deletes and retention: that they cost what they remove, not what a topic holds.

A thousand records by tag out of one length and out of ten times that length, sweeps by cap and
by age over few and many records, reads through holes, and the first page of many topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter, sleep

from loadtest.bench import payload
from loadtest.bench.client import Numbered
from loadtest.bench.driver import Driver, open_driver, open_reader, settings_for
from loadtest.bench.load import run_plan
from loadtest.bench.plan import Bench
from loadtest.bench.report import Goal, Row, absolute, relative
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
# One more than `ROUNDS` of each is in the topic: the last is for the time after a restart.
MATCHES = {"tag": ("gone-{}", False), "prefix": ("many-{}/", True)}
TAG_DELETE = Goal("<", 50.0)
NO_SLOWER = Goal("<", 1.5)
SWEEP = Goal("<", 50.0)
# Ten times the records are ten times the segments; a walk over records would show as more.
BY_SEGMENTS = Goal("<", 10.0)
WITH_HOLES = Goal(">=", 0.3)
FIRST_PAGE = Goal("<", 10.0)


def run(bench: Bench) -> Iterator[Row]:
    long = bench.sizes.long_records
    tagged = settings_for(bench.home / "tagged")
    with open_driver(tagged) as driver:
        yield from _tag_deletes(driver, (long // 10, long))
    with open_driver(tagged) as driver:
        yield from _after_restart(driver, (long // 10, long))
    with open_driver(settings_for(bench.home / "sweeps")) as driver:
        yield from _sweeps(driver, (long // 10, long))
    yield from _holes(bench)
    with TopicsServer(bench.home / "many") as server:
        yield _first_page(bench, server)


def _tag_deletes(driver: Driver, lengths: tuple[int, int]) -> Iterator[Row]:
    """Every round's tag, or prefix, is on `MATCHING` records, evenly spread over the topic."""
    taken: dict[str, list[float]] = {kind: [] for kind in MATCHES}
    for length in lengths:
        topic = f"tagged-{length}"
        _fill_tagged(driver, topic, length)
        for kind, (text, is_prefix) in MATCHES.items():
            rounds = []
            for number in range(ROUNDS):
                command = DeleteRecords(topic, None, Match(text.format(number), is_prefix))
                rounds.append(_timed_ms(driver, command, MATCHING))
            taken[kind].append(median(rounds))
            name = f"{MATCHING:,} of {length:,} records deleted by {kind}, engine"
            yield absolute(AREA, name, taken[kind][-1], "ms", goal=TAG_DELETE)
            name = f"the first such delete of {length:,}"
            yield absolute(AREA, name, rounds[0], "ms", goal=TAG_DELETE)
    for kind, (short, long) in taken.items():
        name = f"by {kind} in {lengths[1]:,} against {lengths[0]:,}"
        yield relative(AREA, name, long, "ms", baseline=short, goal=NO_SLOWER)


def _after_restart(driver: Driver, lengths: tuple[int, int]) -> Iterator[Row]:
    """The same in a process that has mapped nothing yet."""
    for length in lengths:
        for kind, (text, is_prefix) in MATCHES.items():
            match = Match(text.format(ROUNDS), is_prefix)
            taken_ms = _timed_ms(driver, DeleteRecords(f"tagged-{length}", None, match), MATCHING)
            name = f"by {kind} of {length:,}, first after a restart"
            yield absolute(AREA, name, taken_ms, "ms", goal=TAG_DELETE)


def _fill_tagged(driver: Driver, topic: str, length: int) -> None:
    """All records have tags, most of them their own; every round has its evenly spread ones."""
    step = length // MATCHING
    for first in range(0, length, BATCH_RECORDS):
        _call(
            driver, _tagged(topic, [_tag(at, step) for at in range(first, first + BATCH_RECORDS)])
        )


def _tag(at: int, step: int) -> str:
    number, is_prefix = divmod(at % step, 2)
    if number > ROUNDS:
        return f"kept-{at}"
    return f"many-{number}/{at}" if is_prefix else f"gone-{number}"


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
        taken: list[float] = []
        for length in lengths:
            topic = f"{kind}-{length}"
            driver.load(topic, length)
            _checkpoint(driver)
            begun_s = perf_counter()
            _call(driver, PutTopic(topic, config, True))
            _call(driver, DeleteRecords(topic, 0, None))
            taken.append((perf_counter() - begun_s) * 1000)
            name = f"{kind} sweep over {length:,} records"
            yield absolute(AREA, name, taken[-1], "ms", goal=SWEEP)
        name = f"{kind} sweep, {lengths[1]:,} records against {lengths[0]:,}"
        yield relative(AREA, name, taken[1], "ms", baseline=taken[0], goal=BY_SEGMENTS)


def _checkpoint(driver: Driver) -> None:
    """Let full segments be sealed, as they are within a minute of any load."""
    engine = driver.engine
    engine.checkpoints.ask()
    engine.tick()
    while engine.checkpoints.running:
        sleep(0.01)
        engine.tick()


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

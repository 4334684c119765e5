"""The load generator counts complete 2xx answers and stops at anything else."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from itertools import islice

import pytest

from loadtest.bench.client import (
    BadResponse,
    Cycle,
    Numbered,
    Plan,
    ResponseReader,
    Result,
    content_length,
    run_load,
)

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX: y\r\n\r\n{"count":1}'
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nwait"


def _feed(reader: ResponseReader, *chunks: bytes) -> list[bool]:
    return [reader.feed(memoryview(chunk)) for chunk in chunks]


def test_a_whole_response_is_complete() -> None:
    """One chunk, one answer, and the next one starts afresh."""
    reader = ResponseReader()
    assert _feed(reader, OK, OK) == [True, True]
    assert reader.body_bytes == 11


@pytest.mark.parametrize("cut", range(1, len(OK)))
def test_a_response_may_arrive_in_two_chunks(cut: int) -> None:
    """Wherever the cut is, only the second chunk completes it."""
    assert _feed(ResponseReader(), OK[:cut], OK[cut:]) == [False, True]


def test_an_empty_body_completes_with_its_head() -> None:
    """A length of zero needs no body."""
    assert _feed(ResponseReader(), b"HTTP/1.1 204 No\r\ncontent-length: 0\r\n\r\n") == [True]


def test_a_refusal_is_raised_with_its_body() -> None:
    """A status other than 2xx is never counted."""
    with pytest.raises(BadResponse, match="503: wait"):
        _feed(ResponseReader(), REFUSED[:-2], REFUSED[-2:])


@pytest.mark.parametrize(
    "stream",
    [OK + b"x", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"x" * 5000],
    ids=["trailing bytes", "no length", "no end of headers"],
)
def test_a_stream_it_cannot_measure_is_refused(stream: bytes) -> None:
    """Rather no number than a wrong one."""
    with pytest.raises(BadResponse):
        _feed(ResponseReader(), stream)


@pytest.mark.parametrize("head", [b"A: b\r\nContent-Length: 7", b"content-length:7\r\nA: b"])
def test_content_length_is_found_in_any_case(head: bytes) -> None:
    """First or last, with or without a space."""
    assert content_length(head) == 7


def test_numbered_requests_visit_all_numbers() -> None:
    """A stride coprime to the count reaches every topic before it repeats one."""
    source = Numbered(b"t-", b"!", count=5, stride=3)
    assert list(islice(source.stream(), 6)) == [
        b"t-0!",
        b"t-3!",
        b"t-1!",
        b"t-4!",
        b"t-2!",
        b"t-0!",
    ]


def test_percentiles_are_by_nearest_rank() -> None:
    """The median of a hundred different latencies is the middle one."""
    result = Result(2.0, 0, array("I", range(100, 0, -1)).tobytes())
    assert (result.latency_us(50), result.latency_us(99), result.rate) == (51, 100, 50.0)


def _run(answer: Callable[[int], bytes], source: Cycle, measure_s: float = 0.05) -> Result:
    """Run a load of four connections on a server that answers request n with `answer(n)`."""
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        while await reader.read(100):
            served += 1
            writer.write(answer(served))
        writer.close()

    async def both() -> Result:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await run_load(Plan(port, 4, 0.01, measure_s, source))

    return asyncio.run(both())


def test_a_timed_load_counts_what_was_answered() -> None:
    """Every counted answer has a latency and its body bytes."""
    result = _run(lambda _: OK, Cycle([b"ping"]))
    assert result.requests > 0
    assert result.requests * 11 == result.body_bytes
    assert result.elapsed_s >= 0.05


def test_a_counted_load_sends_exactly_that_many() -> None:
    """`times` requests are sent once each, then the run is over."""
    assert _run(lambda _: OK, Cycle([b"ping"], times=25)).requests == 25


def test_a_refusal_ends_the_load() -> None:
    """The tenth answer is an error, so there is no result."""
    with pytest.raises(BadResponse, match="503: wait"):
        _run(lambda number: REFUSED if number == 10 else OK, Cycle([b"ping"]), 10.0)

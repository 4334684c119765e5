"""A watch under CPU pressure (API 0.6, 7.5): paced and told so, never cut."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.harness.answers import good
from tests.harness.api import Api
from tests.harness.server import Server
from tests.harness.sse import Watching, delivered
from tests.harness.waiting import until

# Enough to decode, render and commit that a loop serving a few of them is always late.
BATCH = [{"data": {"n": number}, "tag": "t", "meta": {"k": number}} for number in range(4000)]


@contextmanager
def pressure(server: Server, clients: int = 4) -> Iterator[None]:
    """Clients that write large batches to a topic of their own until the block ends."""
    stop = threading.Event()

    def write() -> None:
        api = Api(server, connections=1)
        while not stop.is_set():
            api.write("load", BATCH, disable_backpressure=True)
        api.close()

    threads = [threading.Thread(target=write) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_stream_under_pressure_is_paced_and_told(launch: Callable[..., Server]) -> None:
    """API 7.5: code 429 is advisory, names the topics, and nothing is lost by it."""
    server = launch(TOPICS_THROTTLE_LAG_MS="1", TOPICS_THROTTLE_WAIT_MS="1")
    with Watching(server) as watching:
        api = watching.api
        good(api.put("t", {"priority": -1000}), 201)
        stream = watching.live(["t"])
        numbers = iter(range(1_000_000))
        written: list[int] = []

        def is_told() -> bool:
            number = next(numbers)
            if api.append("t", number, disable_backpressure=True).status_code == 200:
                written.append(number)
            frame = stream.find_next(0.02)
            return frame is not None and frame.event == "error"

        with pressure(server):
            until(is_told, 20, why="an advisory error", poll_s=0)
        error = stream.frames[-1]
        assert set(error.body) == {"code", "error", "retry_after_ms", "topics"}
        assert (error.body["code"], error.body["topics"], error.id) == (429, ["t"], None)
        assert error.body["retry_after_ms"] >= 1
        while delivered(stream.frames, "t")[-1:] != written[-1:]:
            stream.next()
        assert delivered(stream.frames, "t") == written

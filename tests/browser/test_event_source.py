"""A browser's own EventSource follows a watch, is cut off, and goes on by itself."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Chromium, Page, find_program
from tests.harness.api import Api
from tests.harness.server import ONE_WORKER, TWO_WORKERS, Server, Shape, start_server
from tests.harness.waiting import until

PROGRAM = find_program()
# The stream asks for two seconds between a cut and the next attempt.
RESUME_TIMEOUT_S = 20.0
TOPICS = ("orders", "events")
# What would end a line, a frame or a field, if framing could be broken from inside.
PAYLOADS = ["plain", "two\nlines", "data: x\n\nevent: error", "\r\n\r\nid: 7", "\u2028", {"ü": []}]

_LISTEN = """
window.seen = [];
window.opens = 0;
window.others = [];
const source = new EventSource(%s);
source.onopen = () => { window.opens += 1; };
source.addEventListener("record", (event) => {
    const batch = JSON.parse(event.data);
    for (const record of batch.records)
        window.seen.push([batch.topic, record.$seq, record.data]);
});
for (const kind of ["tombstone", "topic-deleted"])
    source.addEventListener(kind, (event) => window.others.push([kind, event.data]));
null
"""


@pytest.fixture(params=[ONE_WORKER, TWO_WORKERS], ids=lambda shape: shape.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    shape: Shape = request.param
    started = start_server(tmp_path / "server", shape)
    yield started
    started.finish()


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    client = Api(server)
    yield client
    client.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    assert PROGRAM is not None, "no browser is installed: apt-get install chromium"
    with Chromium(PROGRAM, tmp_path) as started:
        yield started


def append(api: Api, payloads: list[Any]) -> list[list[Any]]:
    """Write every payload to both topics; returns what a follower must see of it."""
    expected = []
    for topic in TOPICS:
        written = api.append(topic, *payloads).raise_for_status().json()
        expected += [
            [topic, seq, data] for seq, data in zip(written["seqs"], payloads, strict=True)
        ]
    return expected


def in_order(seen: list[list[Any]]) -> list[list[Any]]:
    """Topic by topic, each in the order of arrival: between topics there is none."""
    return sorted(seen, key=lambda record: TOPICS.index(record[0]))


def follow(page: Page, url: str, count: int) -> list[list[Any]]:
    """Open an EventSource, and return the first records once there are `count`."""
    page.evaluate(_LISTEN % json.dumps(url))
    return seen_by(page, count)


def seen_by(page: Page, count: int) -> list[list[Any]]:
    def look() -> list[list[Any]] | None:
        seen: list[list[Any]] = page.evaluate("window.seen")
        return seen if len(seen) >= count else None

    return in_order(until(look, RESUME_TIMEOUT_S, why=f"{count} records in the browser"))


def test_an_event_source_resumes_by_itself(server: Server, api: Api, browser: Chromium) -> None:
    """The worker that serves it is killed; nothing is lost and nothing comes twice."""
    expected = append(api, PAYLOADS)
    watch = api.request("POST", "/v0/watch", json={"topics": {topic: {} for topic in TOPICS}})
    url = watch.raise_for_status().json()["stream_url"]
    # Any document of the server will do: an EventSource stays within its origin.
    with browser.open_page(f"{server.url}/healthz") as page:
        assert follow(page, url, len(expected)) == in_order(expected)
        expected += append(api, ["live"])
        assert seen_by(page, len(expected)) == in_order(expected)

        for pid in server.workers_serving(browser.pid):
            os.kill(pid, signal.SIGKILL)
        server.wait_ready()
        expected += append(api, ["while it was cut off", *PAYLOADS])
        seen_by(page, len(expected))
        expected += append(api, ["live again"])

        assert seen_by(page, len(expected)) == in_order(expected)
        assert page.evaluate("[window.opens, window.others]") == [2, []]

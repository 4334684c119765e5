"""The client from npm, `@durable-streams/client`, lives the whole life of a stream here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.suite import run_node
from tests.harness.server import Server


def build_json(*numbers: int) -> list[dict[str, Any]]:
    return [{"n": number, "text": "ü\n\n"} for number in numbers]


def build_bytes(*numbers: int) -> list[str]:
    return [bytes([number, 0, 255, 10, 13]).hex() for number in numbers]


def live_through(url: str, kind: str, live: str) -> dict[str, Any]:
    """Run client.mjs; returns what it saw."""
    ended = run_node("client.mjs", url, kind, live)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_json_stream_lives_its_whole_life(server: Server, live: str) -> None:
    """Create, produce once and again, read, tail, close with a last message, delete."""
    seen = live_through(f"{server.url}/v1/stream/node-json-{live}", "json", live)
    assert seen == {
        "created": {"exists": True, "contentType": "application/json", "streamClosed": False},
        "produced": {"epoch": 0, "nextSeq": 2},
        "read": build_json(1, 2),
        "readAfterFirst": build_json(2),
        "readAtTail": [],
        "tailed": build_json(3, 4, 5),
        "ended": True,
        "readerKnowsTheEnd": True,
        "headKnowsTheEnd": True,
        "appendAfterClose": [409, "true"],
        "readAtLast": build_json(1, 2, 3, 4, 5),
        "afterDelete": {"exists": False},
        "errors": [],
    }


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_byte_stream_lives_its_whole_life(server: Server, live: str) -> None:
    """The same with bytes that are no text: exact in pages, in polls and as base64 in events."""
    seen = live_through(f"{server.url}/v1/stream/node-bytes-{live}", "bytes", live)
    assert seen == {
        "created": {
            "exists": True,
            "contentType": "application/octet-stream",
            "streamClosed": False,
        },
        "produced": {"epoch": 0, "nextSeq": 2},
        "read": "".join(build_bytes(1, 2)),
        "readAfterFirst": "".join(build_bytes(2)),
        "readAtTail": "",
        "tailed": build_bytes(3, 4, 5),
        "ended": True,
        "readerKnowsTheEnd": True,
        "headKnowsTheEnd": True,
        "appendAfterClose": [409, "true"],
        "readAtLast": "".join(build_bytes(1, 2, 3, 4, 5)),
        "afterDelete": {"exists": False},
        "errors": [],
    }

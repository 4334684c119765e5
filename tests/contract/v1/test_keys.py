"""Routing keys and append times (seed 000, 3.1, 4.1, 7.3, 8.4)."""

from __future__ import annotations

import pytest

from tests.harness.streams import JSON, TEXT, Streams, failed, is_up_to_date, offset_of


def test_a_key_selects_its_entries(streams: Streams, name: str) -> None:
    """Seed 000, 8.4: exactly those entries, and the position after all that was looked at."""
    streams.json(name)
    for number, key in enumerate("aba"):
        streams.post(name, b"%d" % number, content_type=JSON, stream_key=key)
    answer = streams.get(name, key="a")
    assert answer.json() == [0, 2] and is_up_to_date(answer)
    assert offset_of(answer) == offset_of(streams.get(name))
    assert streams.get(name, key="c").json() == []


def test_a_key_in_the_path(streams: Streams, name: str) -> None:
    """Seed 000, 4.1: `pk/` is `key=`, percent-decoded."""
    streams.create(name)
    streams.post(name, b"x", content_type=TEXT, stream_key="user/1 x")
    streams.post(name, b"y", content_type=TEXT, stream_key="z")
    assert streams.get(f"{name}/pk/user%2F1%20x").content == b"x"
    assert streams.get(f"{name}/pk/z").content == b"y"
    assert streams.get(f"{name}/pk/nobody").content == b""


@pytest.mark.parametrize("key", ["", "k" * 257])
def test_a_key_has_a_size(streams: Streams, name: str, key: str) -> None:
    """An empty or over-long key is refused and nothing is appended."""
    streams.create(name)
    failed(streams.post(name, b"x", content_type=TEXT, stream_key=key), 400)
    assert streams.read(name) == b""


@pytest.mark.parametrize(
    "hint",
    ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00.123456789+00:00", "1893456000000000000"],
)
def test_since_finds_entries_by_their_time(streams: Streams, name: str, hint: str) -> None:
    """Seed 000, 3.1 and 4.1: a hint in any spelling, found by `since`."""
    streams.json(name, b"1")
    assert streams.post(name, b"2", content_type=JSON, stream_timestamp=hint).status_code == 204
    assert streams.get(name, since="2029-12-31T23:59:59Z").json() == [2]
    assert streams.get(name, since="2035-01-01T00:00:00Z").json() == []
    assert streams.get(name, since="0").json() == [1, 2]
    assert streams.get(name, since="2029-12-31T23:59:59Z", offset="-1").json() == [1, 2]


def test_time_never_runs_back(streams: Streams, name: str) -> None:
    """Seed 000, 7.3: an older hint is clamped to the last entry's time."""
    streams.json(name)
    for body, hint in ((b"1", "2030-01-01T00:00:00Z"), (b"2", "2001-01-01T00:00:00Z")):
        streams.post(name, body, content_type=JSON, stream_timestamp=hint)
    assert streams.get(name, since="2030-01-01T00:00:00Z").json() == [1, 2]


@pytest.mark.parametrize("hint", ["yesterday", "2030-13-01T00:00:00Z", "-5", "9" * 21])
def test_a_time_is_a_time(streams: Streams, name: str, hint: str) -> None:
    """A hint or `since` that is no time is 400."""
    streams.json(name)
    failed(streams.post(name, b"1", content_type=JSON, stream_timestamp=hint), 400)
    failed(streams.get(name, since=hint), 400)
    assert streams.read(name) == b"[]"

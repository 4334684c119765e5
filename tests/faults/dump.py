"""Everything a reader can see in a data directory, as plain values to compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.faults.driver import StillClock
from topicsd.model.settings import Settings
from topicsd.reader import DiffPage, DiffQuery, Reader
from topicsd.rules.floors import Tombstone
from topicsd.storage.fs import Files


class Seen(msgspec.Struct):
    """One topic as its readers see it."""

    head_seq: int
    earliest_seq: int
    count: int
    size: int
    # Payload bytes by seq, as stored.
    records: dict[int, bytes]
    # First seq, last seq and reason of each loss that a reader from the start is told of.
    lost: list[tuple[int, int, str]]


class _Record(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    data: msgspec.Raw


_decode = msgspec.json.Decoder(list[_Record]).decode


@contextmanager
def open_reader(settings: Settings, clock: StillClock | None = None) -> Iterator[Reader]:
    """A reader whose files are closed in the end."""
    reader = Reader(settings, Files(), clock or StillClock())
    try:
        yield reader
    finally:
        if reader._board is not None:
            reader._board.close()
        reader._topics._catalog.close()


def query(from_seq: int = 0, **changes: Any) -> DiffQuery:
    chosen: dict[str, Any] = {
        "limit": 1000,
        "nodes": (),
        "include_tags": True,
        "include_meta": True,
        "max_bytes": 1 << 20,
    }
    return DiffQuery(from_seq=from_seq, **{**chosen, **changes})


def read_page(reader: Reader, topic: str, from_seq: int = 0, **changes: Any) -> DiffPage:
    view = reader.find_topic(topic)
    assert view is not None, f"{topic} is not there"
    page = reader.diff(view, query(from_seq, **changes))
    assert page is not None
    return page


def payloads(page: DiffPage) -> dict[int, bytes]:
    """The payloads of a page by seq."""
    return {each.seq: bytes(each.data) for each in _decode(b"[" + bytes(page.records) + b"]")}


def read_all(reader: Reader, topic: str, **changes: Any) -> tuple[dict[int, bytes], list[Any]]:
    """Every record and every loss from the start, page by page."""
    cursor, records, lost = 0, dict[int, bytes](), list[tuple[int, int, str]]()
    while True:
        page = read_page(reader, topic, cursor, **changes)
        fresh = payloads(page)
        assert len(fresh) == page.count and not fresh.keys() & records.keys()
        records.update(fresh)
        if page.tombstone is not None:
            lost.append(_loss(page.tombstone))
        if page.next_from_seq == page.head_seq:
            return records, lost
        assert page.next_from_seq > cursor or page.tombstone is not None
        cursor = page.next_from_seq


def _loss(tombstone: Tombstone) -> tuple[int, int, str]:
    return tombstone.gap_from, tombstone.gap_to, tombstone.reason


def dump(settings: Settings, clock: StillClock | None = None) -> dict[str, Seen]:
    """Every topic of a data directory."""
    with open_reader(settings, clock) as reader:
        return {each.topic: _seen(reader, each.topic) for each in _list(reader)}


def _list(reader: Reader) -> list[Any]:
    return reader.list_topics("", "", 1000, ())


def _seen(reader: Reader, topic: str) -> Seen:
    view = reader.find_topic(topic)
    assert view is not None
    state = reader.state(view)
    assert state is not None
    records, lost = read_all(reader, topic)
    return Seen(state.head_seq, state.earliest_seq, state.count, state.bytes, records, lost)

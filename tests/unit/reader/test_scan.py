"""From rows to bytes: runs, budgets, and what a reader leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from topicsd.model.record import DELETED, ROW_DTYPE, complete, key_hash, pack_record, prefix
from topicsd.reader.scan import Slices, Want, scan
from topicsd.storage.shelf import Region, SegmentKey

BASE, TS = 9, 1_700_000_000_000
Record = tuple[bytes, str | None, str | None, bytes | None]
PLAIN: list[Record] = [(b"%d" % number, None, None, None) for number in range(10)]
FULL: list[Record] = [
    (b'{"a":1}', "red", "north", b'{"m":1}'),
    (b"2", None, "south", None),
    (b'"},"', "blue", None, b"{}"),
    (b"4", None, None, None),
]


def _region(records: Sequence[Record]) -> Region:
    packed = [pack_record(*record) for record in records]
    rows = np.frombuffer(b"".join(row for _, row in packed), dtype=ROW_DTYPE).copy()
    seqs = range(BASE, BASE + len(records))
    dat = complete(b"".join(form for form, _ in packed), BASE, len(records), TS)
    rows["end"] = np.cumsum(
        [int(n) + len(prefix(s, TS)) for n, s in zip(rows["end"], seqs, strict=True)]
    )
    rows["ts"] = TS
    return Region(SegmentKey(False, 1, BASE), rows, memoryview(dat), Path())


def _want(**changes: object) -> Want:
    want = Want(1000, 1 << 20, frozenset(), (), True, True)
    nodes = changes.pop("nodes", ())
    assert isinstance(nodes, tuple)
    return want._replace(
        nodes=frozenset(msgspec.json.encode(node) for node in nodes),
        node_hashes=tuple({key_hash(node) for node in nodes}),
        **changes,  # type: ignore[arg-type]
    )


def _records(found: Slices) -> list[dict[str, object]]:
    joined = b"".join(map(bytes, found.parts))
    assert len(joined) == found.size
    decoded: list[dict[str, object]] = msgspec.json.decode(b"[" + joined[:-1] + b"]")
    assert len(decoded) == found.records
    return decoded


def _seqs(found: Slices) -> list[object]:
    return [record["$seq"] for record in _records(found)]


def test_consecutive_records_are_one_slice() -> None:
    """Exactly the stored bytes, without a copy."""
    region = _region(PLAIN)
    found = scan(region, 2, 7, _want())
    assert len(found.parts) == 1 and found.next_row == 7
    assert _seqs(found) == [11, 12, 13, 14, 15]
    assert bytes(found.parts[0]) == bytes(region.dat[region.position(2) : region.position(7)])


def test_holes_split_the_slice_into_runs() -> None:
    """Deleted rows at the start, in the middle and at the end."""
    region = _region(PLAIN)
    region.rows["deleted"][[0, 3, 4, 9]] = DELETED
    found = scan(region, 0, 10, _want())
    assert _seqs(found) == [10, 11, 14, 15, 16, 17]
    assert len(found.parts) == 2 and found.next_row == 10


def test_a_log_without_holes_is_not_searched_for_them() -> None:
    """The board says so; a stray byte does not matter then."""
    region = _region(PLAIN)
    region.rows["deleted"][3] = DELETED
    assert len(_seqs(scan(region, 0, 10, _want(holes=False)))) == 10


def test_only_the_exact_byte_deletes() -> None:
    """Anything else is live (DESIGN 7.5)."""
    region = _region(PLAIN)
    region.rows["deleted"] = np.arange(10)
    assert len(_seqs(scan(region, 0, 10, _want()))) == 10


def test_everything_hidden_is_an_empty_page_that_advances() -> None:
    """The cursor passes what the reader must not see."""
    region = _region(PLAIN)
    region.rows["deleted"] = DELETED
    assert scan(region, 0, 10, _want()) == Slices([], 0, 0, 10)


@pytest.mark.parametrize("limit", range(1, 8))
def test_the_limit_counts_visible_records(limit: int) -> None:
    """And the next row is the one after the last record taken."""
    region = _region(PLAIN)
    region.rows["deleted"][[0, 3, 4]] = DELETED
    visible = [10, 11, 14, 15, 16, 17, 18]
    found = scan(region, 0, 10, _want(limit=limit))
    assert _seqs(found) == visible[:limit]
    assert found.next_row == (10 if limit == 7 else visible[limit - 1] - BASE + 1)


@pytest.mark.parametrize("records", range(1, 11))
def test_the_budget_is_exact(records: int) -> None:
    """As many records as fit, byte for byte; one byte less is one record less."""
    region = _region(PLAIN)
    size = region.position(records)
    assert scan(region, 0, 10, _want(budget=size)).next_row == records
    assert scan(region, 0, 10, _want(budget=size - 1)).next_row == max(records - 1, 1)


def test_one_record_fits_whatever_its_size() -> None:
    """A reader that cannot be served in its budget would never get on."""
    region = _region([(b'"%s"' % (b"x" * 5000), None, None, None), *PLAIN])
    found = scan(region, 0, 11, _want(budget=1))
    assert found.records == 1 and found.size > 5000


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("meta", [True, False])
def test_members_are_left_out_on_request(tags: bool, meta: bool) -> None:
    """Every other byte stays as it was sent."""
    found = scan(_region(FULL), 0, 4, _want(include_tags=tags, include_meta=meta))
    expected = []
    for number, (data, tag, node, extra) in enumerate(FULL):
        record: dict[str, object] = {"$seq": BASE + number, "$ts": TS}
        if tag is not None and tags:
            record["$tag"] = tag
        if node is not None:
            record["$node"] = node
        record["data"] = msgspec.json.decode(data)
        if extra is not None and meta:
            record["meta"] = msgspec.json.decode(extra)
        expected.append(record)
    assert _records(found) == expected


def test_leaving_out_what_no_record_has_keeps_one_slice() -> None:
    """The usual read, with tags left out, of a topic without tags."""
    assert len(scan(_region(PLAIN), 0, 10, _want(include_tags=False)).parts) == 1


@pytest.mark.parametrize(
    ("nodes", "seqs"),
    [
        (("north",), [10, 11, 12]),
        (("north", "south"), [11, 12]),
        (("east",), [9, 10, 11, 12]),
        (("nort",), [9, 10, 11, 12]),
    ],
)
def test_a_readers_own_nodes_are_filtered(nodes: tuple[str, ...], seqs: list[int]) -> None:
    """Exact matches only; records without a node pass."""
    assert _seqs(scan(_region(FULL), 0, 4, _want(nodes=nodes))) == seqs


def test_a_node_with_the_same_hash_is_not_the_same_node() -> None:
    """The bytes decide, also beside tags and escapes."""
    records: list[Record] = [(b"1", "t", 'quo"ted', None), (b"2", None, "other", None)]
    region = _region(records)
    region.rows["node_hash"] = key_hash('quo"ted')
    assert _seqs(scan(region, 0, 2, _want(nodes=('quo"ted',)))) == [BASE + 1]


def test_filtering_and_cutting_go_together() -> None:
    """A run with a hole, cut record by record."""
    found = scan(_region(FULL), 0, 4, _want(nodes=("south",), include_tags=False))
    assert [record.get("$tag") for record in _records(found)] == [None, None, None]
    assert _seqs(found) == [9, 11, 12]

"""The tag index of a segment, and the look at rows that replaces it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topicsd.model.match import Match
from topicsd.model.record import DELETED, ROW_DTYPE, complete, pack_record
from topicsd.storage import place, tag_file, tags
from topicsd.storage.fs import Files
from topicsd.storage.segment import Seal
from topicsd.storage.shelf import Region, SegmentKey
from topicsd.storage.tag_indexes import TagIndexes

TS = 1_700_000_000_000
KEY = SegmentKey(False, 7, 96)
TEXTS = [None, "a", "ab", "b", None, "ab", "", 'q"', "ü", "üb", "日本", "\n", "a\x01", "~", "\x7f"]


def region_of(texts: list[str | None], base_seq: int = KEY.base_seq) -> Region:
    """A segment as the engine would have written it; seqs cross a power of ten."""
    packed = [pack_record(b'{"n":1}', text, "node", None) for text in texts]
    rows = np.frombuffer(b"".join(row for _, row in packed), dtype=ROW_DTYPE).copy()
    records = [complete(form, base_seq + at, 1, TS) for at, (form, _) in enumerate(packed)]
    rows["ts"] = TS
    rows["end"] = np.cumsum([len(record) for record in records])
    key = KEY._replace(base_seq=base_seq)
    return Region(key, rows, memoryview(b"".join(records)), Path("x.dat"))


def expected(texts: list[str | None], match: Match) -> list[int]:
    return [row for row, text in enumerate(texts) if match.accepts(text)]


def found_both_ways(region: Region, rows: int, match: Match) -> list[int]:
    """What the rows say, which must be what an index over them says."""
    scanned = tags.scan_rows(region, rows, match).tolist()
    index = tag_file.open_index(memoryview(tags.build_index(region, rows)))
    if index is not None:
        assert scanned == look_up(index, match)
    return scanned


def look_up(index: tag_file.TagIndex, match: Match) -> list[int]:
    found: list[int] = index.find(
        tag_file.stored_text(match.text), is_prefix=match.is_prefix
    ).tolist()
    return found


@pytest.mark.parametrize("is_prefix", [False, True])
@pytest.mark.parametrize("text", [*(text for text in TEXTS if text is not None), "zz", "日", "q"])
def test_index_and_rows_find_the_same(text: str, is_prefix: bool) -> None:
    """Exact tags and prefixes, escaped ones and empty ones."""
    match = Match(text, is_prefix)
    assert expected(TEXTS, match) == found_both_ways(region_of(TEXTS), len(TEXTS), match)


_texts = st.one_of(st.none(), st.text(st.sampled_from('ab"\\ü日\x01😀'), max_size=5))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.lists(_texts, min_size=1, max_size=30),
    st.text(st.sampled_from('ab"\\ü日\x01😀'), max_size=3),
    st.booleans(),
)
def test_any_tags_are_found(texts: list[str | None], text: str, is_prefix: bool) -> None:
    """Whatever is in a segment: exactly the rows whose tag matches, ascending."""
    match = Match(text, is_prefix)
    assert expected(texts, match) == found_both_ways(region_of(texts), len(texts), match)


def test_rows_beyond_the_visible_ones_are_not_found() -> None:
    """An active segment's map may hold rows that are not committed yet."""
    region = region_of(["a", "a", "a"])
    assert found_both_ways(region, 2, Match("a", False)) == [0, 1]


def test_a_segment_without_tags_has_no_index() -> None:
    """The empty string says so: nothing is written."""
    assert tags.build_index(region_of([None, None]), 2) == b""


def test_equal_hashes_are_not_equal_tags() -> None:
    """The hash only narrows the search."""
    region = region_of(["a", "b"])
    region.rows["key_hash"] = region.rows["key_hash"][0]
    assert tags.scan_rows(region, 2, Match("a", False)).tolist() == [0]


def test_marked_rows_are_not_live() -> None:
    """Only the exact flag byte means deleted (DESIGN 7.4)."""
    region = region_of(["a"] * 4)
    region.rows["deleted"] = [0, DELETED, 1, DELETED - 1]
    assert tags.only_live(region, np.arange(4)).tolist() == [0, 2, 3]


def sealed_region(texts: list[str | None], base_seq: int = KEY.base_seq) -> Region:
    region = region_of(texts, base_seq)
    region.seal = Seal(len(texts), len(region.dat), 0, 0, np.empty(0, dtype="<u8"))
    return region


def test_indexes_are_found_beside_sealed_segments(tmp_path: Path) -> None:
    """An unsealed segment, a missing file and a damaged one have none."""
    files, region = Files(), sealed_region(["a", "b"])
    indexes = TagIndexes(files, (tmp_path, tmp_path), 4)
    assert indexes.find(region) is None
    path = place.tag_path(tmp_path, KEY.log_id, KEY.base_seq)
    path.parent.mkdir()
    path.write_bytes(b"nonsense")
    assert indexes.find(region) is None
    path.write_bytes(tags.build_index(region, 2))
    assert indexes.find(region_of(["a", "b"])) is None
    found = indexes.find(region)
    assert found is not None and look_up(found, Match("b", False)) == [1]
    assert indexes.find(region) is found


def test_a_bounded_number_of_indexes_is_kept(tmp_path: Path) -> None:
    """The memory of a long topic's tags is bounded by a setting."""
    indexes = TagIndexes(Files(), (tmp_path, tmp_path), 3)
    regions = [sealed_region(["a"], base) for base in range(1, 11)]
    for region in regions:
        path = place.tag_path(tmp_path, KEY.log_id, region.base_seq)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(tags.build_index(region, 1))
        assert indexes.find(region) is not None
    assert len(indexes._kept) == 3
    assert indexes.find(regions[0]) is not None


def _indexed(tmp_path: Path, texts: list[str | None], index: bytes) -> tuple[TagIndexes, Region]:
    path = place.tag_path(tmp_path, KEY.log_id, KEY.base_seq)
    path.parent.mkdir()
    path.write_bytes(index)
    return TagIndexes(Files(), (tmp_path, tmp_path), 4), sealed_region(texts)


def test_rows_are_looked_at_when_the_index_turns_out_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is the same, and the log says why it took longer."""
    data = tags.build_index(region_of(TEXTS), len(TEXTS))
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    indexes, region = _indexed(tmp_path, TEXTS, damaged)
    assert indexes.find(region) is not None
    match = Match("a", is_prefix=True)
    assert expected(TEXTS, match) == indexes.find_rows(region, len(TEXTS), match).tolist()
    assert "tag index ignored" in caplog.text


def test_the_record_has_the_last_word(tmp_path: Path) -> None:
    """An intact index of other records finds nothing that does not match."""
    other: list[str | None] = ["b", "a", None, "a", "ab"]
    texts: list[str | None] = ["a", "a", "a", None, "b"]
    indexes, region = _indexed(tmp_path, texts, tags.build_index(region_of(other), 5))
    assert indexes.find_rows(region, 5, Match("a", False)).tolist() == [1]
    assert indexes.find_rows(region, 5, Match("a", True)).tolist() == [1]


@pytest.mark.parametrize("field", ["end", "tag_len"])
@pytest.mark.parametrize("value", [0, 1, 9, 10, 65_535])
@pytest.mark.parametrize("is_prefix", [False, True])
def test_a_damaged_row_leads_nowhere(field: str, value: int, is_prefix: bool) -> None:
    """Whatever it says, nothing outside the segment is touched; rows that are sound are found."""
    texts: list[str | None] = ["a", "b", "a", "a"]
    region = region_of(texts)
    for row in range(len(texts)):
        rows = region.rows.copy()
        rows[field][row] = value
        damaged = Region(region.key, rows, region.dat, region.path)
        found = tags.scan_rows(damaged, len(texts), Match("a", is_prefix)).tolist()
        assert {0, 2, 3} - {row, row + 1} <= set(found)


def test_rows_of_many_windows_are_found() -> None:
    """A long segment is looked at a part at a time."""
    texts: list[str | None] = ["a" if at % 40_000 == 39_999 else "b" for at in range(140_000)]
    region = region_of(texts)
    for is_prefix in (False, True):
        found = tags.scan_rows(region, len(texts), Match("a", is_prefix)).tolist()
        assert found == [39_999, 79_999, 119_999]
    assert tags.scan_rows(region, 80_000, Match("a", False), first=40_000).tolist() == [79_999]

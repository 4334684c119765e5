"""The format of a tag index: what is verified, and when."""

from __future__ import annotations

import numpy as np
import pytest

from topicsd.storage import tag_file
from topicsd.storage.tag_file import PAGE_BYTES, Damaged, TagIndex

HEADER_BYTES = 40
TAGS = [b"tag-%06d" % number for number in range(5000)]


def build(tags: list[bytes] = TAGS) -> bytes:
    """An index in which tag number n is on the rows n and n + 10,000."""
    rows = np.repeat(np.arange(len(tags)), 2) + np.tile([0, 10_000], len(tags))
    return tag_file.build_file(np.repeat(np.array(tags), 2), rows)


def opened(data: bytes) -> TagIndex:
    index = tag_file.open_index(memoryview(data))
    assert index is not None
    return index


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def test_exact_tags_and_prefixes_are_found() -> None:
    """Rows of one tag, of a range of tags, ascending; none of what is not there."""
    index = opened(build())
    assert index.find(b"tag-000007", is_prefix=False).tolist() == [7, 10_007]
    tens = list(range(70, 80))
    expected = tens + [row + 10_000 for row in tens]
    assert index.find(b"tag-00007", is_prefix=True).tolist() == expected
    assert len(index.find(b"", is_prefix=True)) == 2 * len(TAGS)
    for absent in (b"", b"tag-", b"tag-0000070", b"zzz"):
        assert len(index.find(absent, is_prefix=False)) == 0
    for absent in (b"a", b"tag-0000070", b"zzz"):
        assert len(index.find(absent, is_prefix=True)) == 0


def test_only_pages_that_are_needed_are_verified() -> None:
    """A binary search comes by few of them, and later ones by fewer new ones."""
    data = build()
    index = opened(data)
    index.find(b"tag-000007", is_prefix=False)
    assert 0 < len(index._intact) < len(data) // PAGE_BYTES // 2


def test_a_damaged_head_is_not_opened() -> None:
    """Header and sums are verified at once; a wrong length is noticed as well."""
    data = build(TAGS[:1500])
    pages = -(-(len(data) - HEADER_BYTES) // (PAGE_BYTES + 8))
    for at in range(HEADER_BYTES + 8 * pages):
        assert tag_file.open_index(memoryview(changed(data, at))) is None, at
    for length in (0, 5, HEADER_BYTES - 1, HEADER_BYTES, len(data) - 1):
        assert tag_file.open_index(memoryview(data[:length])) is None
    assert tag_file.open_index(memoryview(data + b"x")) is None


def test_a_damaged_page_is_noticed_by_whoever_needs_it() -> None:
    """A look-up that touches it raises; no look-up gives a wrong answer."""
    data = build(TAGS[:1500])
    whole = [index.tolist() for index in (opened(data).find(tag, is_prefix=False) for tag in TAGS)]
    start = len(data) - (1500 * 4 * 4 + 1500 * 10)
    raised = 0
    for at in range(start, len(data), 501):
        index = opened(changed(data, at))
        with pytest.raises(Damaged):
            # Every row and every tag.
            for tag in TAGS[:1500]:
                index.find(tag, is_prefix=False)
        index = opened(changed(data, at))
        for number in range(0, 1500, 100):
            try:
                assert whole[number] == index.find(TAGS[number], is_prefix=False).tolist()
            except Damaged:
                raised += 1
    assert raised


def test_the_first_version_is_not_opened() -> None:
    """It has one sum for everything: verifying that costs more than looking at rows."""
    data = bytearray(build())
    data[4] = 1
    assert tag_file.open_index(memoryview(data)) is None

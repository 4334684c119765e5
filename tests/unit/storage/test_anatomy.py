"""A record's bytes tell its index row."""

from __future__ import annotations

import pytest

from topicsd.model.record import ROW, complete, pack_record, prefix
from topicsd.storage.anatomy import parts_of

RECORDS = [
    (b"1", None, None, None),
    (b'{"a":"},"}', "t", None, None),
    (b"[]", None, 'no"de\\', None),
    (b'"data"', "täg", "nöde", b'{"k":1}'),
    (b'{"meta":1}', None, None, b"{}"),
    (b"2", "", "", None),
]


def _rest_and_parts(
    record: tuple[bytes, str | None, str | None, bytes | None],
) -> tuple[bytes, tuple[int, ...]]:
    form, row = pack_record(*record)
    rest = complete(form, 1, 1, 2)[len(prefix(1, 2)) :]
    return rest, ROW.unpack(row)[3:9]


@pytest.mark.parametrize("record", RECORDS)
def test_the_parts_of_a_record_are_those_of_its_row(
    record: tuple[bytes, str | None, str | None, bytes | None],
) -> None:
    """Whatever members it has, and whatever its strings hold."""
    rest, parts = _rest_and_parts(record)
    assert parts_of(rest, parts) == parts


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("field", range(6))
@pytest.mark.parametrize("bit", [0, 1, 4, 7])
def test_a_row_with_a_flipped_bit_does_not_fit(
    record: tuple[bytes, str | None, str | None, bytes | None], field: int, bit: int
) -> None:
    """Any field, any record."""
    rest, parts = _rest_and_parts(record)
    claimed = list(parts)
    claimed[field] ^= 1 << bit
    assert parts_of(rest, tuple(claimed)) != tuple(claimed)


@pytest.mark.parametrize(
    "rest", [b"", b"},", b'"$tag":"t', b'"$tag":"t","$node":"n"},', b'"$tag":x","data":1},']
)
def test_bytes_that_are_no_record_have_no_parts(rest: bytes) -> None:
    """Noticed, not an error."""
    assert parts_of(rest, (0, 0, 7, 0, 2, 0)) is None

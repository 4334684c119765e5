"""The stored form of records, and the two ways to render it."""

from __future__ import annotations

import pytest

from topicsd.model.record import ROW, complete, pack_plain, pack_record, prefix, single_line

PAYLOADS = [b"1", b'"100%"', b'{"a":"%d %b %%"}', b"[]", b'"\\u0025"', b'"' + b"x" * 5000 + b'"']


def stored(payload: bytes, seq: int, ts: int) -> bytes:
    return prefix(seq, ts) + b'"data":' + payload + b"},"


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_form_completes_to_the_stored_record(payload: bytes) -> None:
    """Percent signs of a payload survive being part of a format."""
    form, _ = pack_record(payload, None, None, None)
    assert stored(payload, 7, 1000) == complete(form, 7, 1, 1000)


def test_a_record_with_everything_is_stored_in_the_documented_order() -> None:
    """Seq, time, tag, node, data, meta, comma."""
    form, row = pack_record(b"5", 'a"%', "n%", b'{"%":1}')
    expected = b'{"$seq":3,"$ts":9,"$tag":"a\\"%","$node":"n%","data":5,"meta":{"%":1}},'
    assert expected == complete(form, 3, 1, 9)
    assert len(expected) - len(prefix(3, 9)) == ROW.unpack(row)[1]


def test_plain_records_render_the_same_in_bulk() -> None:
    """The fast way and the general way give the same forms and rows."""
    packed = [pack_record(payload, None, None, None) for payload in PAYLOADS]
    rests = [b'"data":%b},' % payload for payload in PAYLOADS]
    bulk = pack_plain(rests, list(map(len, rests)), percents=True)
    assert (b"".join(form for form, _ in packed), b"".join(row for _, row in packed)) == bulk
    assert b"".join(stored(each, 10 + at, 4) for at, each in enumerate(PAYLOADS)) == complete(
        bulk[0], 10, len(PAYLOADS), 4
    )


def test_without_percent_signs_nothing_is_escaped() -> None:
    """A batch that has none is joined as it is."""
    rests = [b'"data":1},', b'"data":[2]},']
    forms, _ = pack_plain(rests, list(map(len, rests)), percents=False)
    assert stored(b"1", 99, 5) + stored(b"[2]", 100, 5) == complete(forms, 99, 2, 5)


def test_line_breaks_become_spaces() -> None:
    """Raw line breaks can only stand between tokens, where a space means the same."""
    assert single_line(b'{\r\n"a":\n1}') == b'{  "a": 1}'
    assert single_line(b'{"a":"\\n"}') == b'{"a":"\\n"}'

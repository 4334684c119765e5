"""WAL frames: built, read back, and told from bytes that are none."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from topicsd.model.record import ROW_BYTES
from topicsd.storage import frame

ROWS = bytes(range(ROW_BYTES)) * 2
DAT = b'{"$seq":5,...},{"$seq":6,...},'
KEYS = [("key", 5, 6, 1_700_000_000_000)]


def _body() -> list[bytes]:
    return [*frame.append_parts(7, (5, 4096), 42, ROWS, DAT), *frame.keys_parts(7, KEYS)]


def test_a_frame_reads_back_as_it_was_built() -> None:
    """Both kinds of entry survive, with every field."""
    data = frame.build(9, _body())
    found = frame.read(memoryview(data), 0)
    append, keys = frame.entries(found.body)
    assert found.lsn == 9 and found.end == len(data)
    assert isinstance(append, frame.AppendEntry)
    assert append[:5] == (7, 5, 4096, 42, 2)
    assert bytes(append.rows) == ROWS and bytes(append.dat) == DAT
    assert keys == frame.KeysEntry(7, KEYS)


@pytest.mark.parametrize("length", range(9))
def test_frames_are_padded_to_eight_bytes(length: int) -> None:
    """The next frame starts at a multiple of eight, whatever the body."""
    data = frame.build(1, [bytes(length)])
    assert len(data) % frame.ALIGN == 0
    assert frame.read(memoryview(data + data), 0).end == len(data)


def test_every_flipped_byte_of_a_frame_is_noticed() -> None:
    """Header and body are covered, byte for byte; the padding carries nothing."""
    data = frame.build(9, _body())
    size = frame.HEADER.size + struct.unpack_from("<I", data, 4)[0]
    for position in range(size):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(frame.BadFrame):
            frame.read(memoryview(damaged), 0)


def test_every_cut_of_a_frame_is_noticed() -> None:
    """A frame that ends too early is not a frame."""
    data = frame.build(9, _body())
    size = frame.HEADER.size + struct.unpack_from("<I", data, 4)[0]
    for length in range(size):
        with pytest.raises(frame.BadFrame):
            frame.read(memoryview(data[:length]), 0)


def test_the_three_questions_are_asked_in_order() -> None:
    """Magic, length, checksum, each with its own answer."""
    data = frame.build(9, [b"body"])
    with pytest.raises(frame.BadFrame, match="no frame magic"):
        frame.read(memoryview(b"xxxx" + data[4:]), 0)
    with pytest.raises(frame.BadFrame, match="leads out of the file"):
        frame.read(memoryview(data[:4] + b"\xff\xff\0\0" + data[8:]), 0)
    with pytest.raises(frame.BadFrame, match="checksum mismatch"):
        frame.read(memoryview(data[:8] + b"\x08" + data[9:]), 0)


def test_the_checksum_belongs_to_its_lsn() -> None:
    """A frame under another number does not verify."""
    assert frame.checksum(b"body", 1) != frame.checksum(b"body", 2)


def test_a_route_entry_reads_back_and_deletes_are_found_alone() -> None:
    """Marks survive with every field; a look for deletes passes over them."""
    mark = frame.RouteEntry(7, 3, 2**63, 12, 1_700_000_000_000, 11, [(1, 5), (2, 6)])
    gone = np.array([4, 6])
    parts = [*frame.route_parts(mark), *_body(), *frame.delete_parts(3, 2, (1, 1, 1), gone)]
    found = frame.read(memoryview(frame.build(9, parts)), 0)
    assert next(frame.entries(found.body)) == mark
    (delete,) = frame.deletes(found.body)
    assert delete.log_id == 3 and delete.seqs.tolist() == [4, 6]

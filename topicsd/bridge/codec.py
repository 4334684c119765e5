"""Messages between a worker and the engine, as bytes.

A frame is a u32 length (little-endian) and that many bytes of msgpack:

    worker -> engine   [[request_id, Command], ...]
    engine -> worker   [[[request_id, Reply], ...], moved, everything]

`moved` is the board rows that moved, as native u32s; `everything` says that the list was
too long to keep and that all rows may have moved. Both ends are the same program on the
same machine, so there is no version and no byte-order dance. A frame that does not decode
is a bug: the side that sees it drops the connection.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from topicsd.model.commands import Command, Reply

PREFIX = struct.Struct("<I")
PREFIX_BYTES = PREFIX.size
# Twice the largest max_body_bytes that can be set, so that any accepted write fits.
FRAME_BYTES_MAX = 2**31

Request = tuple[int, Command]


class Outcome(msgspec.Struct, array_like=True):
    """What one batch of the engine means for one worker."""

    replies: list[tuple[int, Reply]]
    moved: bytes = b""
    everything: bool = False


class BadFrame(Exception):
    """Bytes on the bridge that are no message."""


_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(list[Request])
_outcome = msgspec.msgpack.Decoder(Outcome)


def build_frame(message: Sequence[Request] | Outcome) -> bytearray:
    """Encode one message with its length in front."""
    frame = bytearray(PREFIX_BYTES)
    _encoder.encode_into(message, frame, PREFIX_BYTES)
    size = len(frame) - PREFIX_BYTES
    if size > FRAME_BYTES_MAX:
        raise BadFrame(f"a message of {size} bytes exceeds {FRAME_BYTES_MAX}")
    PREFIX.pack_into(frame, 0, size)
    return frame


def read_requests(frame: memoryview) -> list[Request]:
    try:
        return _requests.decode(frame)
    except msgspec.DecodeError as error:
        raise BadFrame(str(error)) from error


def read_outcome(frame: memoryview) -> Outcome:
    try:
        return _outcome.decode(frame)
    except msgspec.DecodeError as error:
        raise BadFrame(str(error)) from error


def pack_rows(rows: Iterable[int]) -> bytes:
    return array("I", rows).tobytes()


def unpack_rows(packed: bytes) -> memoryview:
    return memoryview(packed).cast("I")


class Framer:
    """Cuts a byte stream into frames; copies only what arrived incomplete."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = PREFIX_BYTES

    def feed(self, data: bytes) -> list[memoryview]:
        """Take what arrived; return the frames that are now complete."""
        source: bytes | bytearray = data
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            source, self._held = self._held, bytearray()
        return self._cut(memoryview(source))

    def _cut(self, view: memoryview) -> list[memoryview]:
        frames = []
        position, size = 0, len(view)
        self._needed = PREFIX_BYTES
        while size - position >= PREFIX_BYTES:
            length = PREFIX.unpack_from(view, position)[0]
            if length > FRAME_BYTES_MAX:
                raise BadFrame(f"a frame of {length} bytes exceeds {FRAME_BYTES_MAX}")
            end = position + PREFIX_BYTES + length
            if end > size:
                self._needed = end - position
                break
            frames.append(view[position + PREFIX_BYTES : end])
            position = end
        if position < size:
            self._held += view[position:]
        return frames

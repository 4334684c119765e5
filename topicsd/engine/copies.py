"""From a source's stored records to an append of their copies (DESIGN 8.3).

A copy is the stored bytes behind seq and time: data and meta stay as they are, a tag or node
is cut out when the router does not preserve it. Such a copy costs a slice and no checksum,
and is rendered once for all routes that are at the same place of a source.

A copy under `exactly_once` carries a key in `meta._topics_router`, put into the bytes of meta
without touching the others. A meta so large that the key does not fit stays as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from topicsd.engine.log import Log
from topicsd.engine.routes import Router
from topicsd.model.commands import Append
from topicsd.model.record import (
    DELETED,
    END,
    HAS_KEY,
    HAS_META,
    HAS_NODE,
    META_LABEL,
    ROW,
    ROW_DTYPE,
    TAIL_MAX,
    build_forms,
    rest_sum,
)
from topicsd.storage import segment
from topicsd.storage.shelf import Region
from topicsd.storage.tags import scan_rows
from topicsd.storage.view import Snapshot

KEY_FIELD: Final = "_topics_router"
# Rendered batches kept for other routes from the same source.
RENDERED_MAX: Final = 8

_DATA: Final = b'"data":'
_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode

Rows = npt.NDArray[np.int64]


class Slice(NamedTuple):
    """Rows of one segment of a source: all sound, or all corrupt."""

    region: Region
    first: int
    stop: int
    sound: bool

    @property
    def last_seq(self) -> int:
        return self.region.base_seq + self.stop - 1


class Pick(NamedTuple):
    """The rows of a slice that one router copies."""

    router: Router
    rows: Rows


def take(snapshot: Snapshot, start: int, stop: int, rows_max: int, bytes_max: int) -> Slice | None:
    """The next records from `start` up to `stop`, at least one; None when there are none."""
    bases = snapshot.bases()
    for index in range(snapshot.find(start), len(bases)):
        if bases[index] > stop:
            return None
        region, rows = snapshot.region(index)
        first = max(start - region.base_seq, 0)
        last = min(rows, stop - region.base_seq + 1, first + rows_max)
        if first >= last:
            continue
        ends = region.rows["end"][first:last]
        fitting = int(np.searchsorted(ends, region.position(first) + bytes_max, side="right"))
        last = first + max(fitting, 1)
        region.verify(first, last, snapshot.session_row(region, rows))
        bad = sorted(row for row in region.bad if first <= row < last)
        if not bad:
            return Slice(region, first, last, True)
        if bad[0] > first:
            return Slice(region, first, bad[0], True)
        following = first
        while following in region.bad:
            following += 1
        return Slice(region, first, following, False)
    return None


def find_live(part: Slice, revived: set[int]) -> Rows:
    """Rows of a slice that are not deleted, or whose seq is among `revived`."""
    gone = part.region.rows["deleted"][part.first : part.stop] == DELETED
    rows: Rows = np.flatnonzero(~gone) + part.first
    if not revived or not gone.any():
        return rows
    base = part.region.base_seq
    back = [row for row in (np.flatnonzero(gone) + part.first).tolist() if row + base in revived]
    return np.sort(np.concatenate([rows, np.array(back, dtype=np.int64)]))


def pick(part: Slice, live: Rows, router: Router) -> Pick:
    """What a router copies of some rows."""
    rows = live
    above = router.start_seq + 1 - part.region.base_seq
    if above > part.first:
        rows = rows[rows >= above]
    if router.config.filter is not None:
        found = scan_rows(part.region, part.stop, router.config.filter, first=part.first)
        rows = np.intersect1d(rows, found, assume_unique=True)
    return Pick(router, rows)


class Copier:
    """Renders copies; remembers the last few that several routes may want."""

    def __init__(self) -> None:
        self._rendered: OrderedDict[tuple[int, int, bytes], Append] = OrderedDict()

    def build(self, source: Log, part: Slice, picks: list[Pick]) -> Append | None:
        """The copies that routers make of a slice, record by record, router by router."""
        wanted = [each for each in picks if len(each.rows)]
        if not wanted:
            return None
        if len(wanted) == 1 and _is_verbatim(part.region, wanted[0]):
            return self._verbatim(source, part.region, wanted[0].rows)
        order = np.argsort(np.concatenate([each.rows for each in wanted]), kind="stable")
        copies = [
            _copy(source, part.region, row, each.router)
            for each in wanted
            for row in each.rows.tolist()
        ]
        ordered = [copies[place] for place in order.tolist()]
        return Append(
            "",
            len(ordered),
            build_forms([rest for rest, _, _ in ordered], percents=True),
            b"".join(row for _, row, _ in ordered),
            sum(size for _, _, size in ordered),
        )

    def _verbatim(self, source: Log, region: Region, rows: Rows) -> Append:
        key = (source.id, region.base_seq, rows.tobytes())
        known = self._rendered.get(key)
        if known is not None:
            return known
        starts, stops = _spans(region, rows)
        begin = int(starts[0])
        content = bytes(region.dat[begin : int(stops[-1])])
        rests = [
            content[start:stop]
            for start, stop in zip((starts - begin).tolist(), (stops - begin).tolist(), strict=True)
        ]
        copied = np.empty(len(rows), dtype=ROW_DTYPE)
        copied[:] = region.rows[rows]
        tails = copied["tail_len"].astype(np.int64)
        meta = np.where(tails > len(END), tails - len(END) - len(META_LABEL), 0)
        lengths = stops - starts
        copied["end"] = lengths
        copied["deleted"] = 0
        payload = int((lengths - copied["head_len"] - tails + meta).sum())
        forms = build_forms(rests, percents=b"%" in content)
        made = self._rendered[key] = Append("", len(rows), forms, copied.tobytes(), payload)
        if len(self._rendered) > RENDERED_MAX:
            self._rendered.popitem(last=False)
        return made


def _is_verbatim(region: Region, wanted: Pick) -> bool:
    config = wanted.router.config
    cut = HAS_KEY * (not config.preserve_tag) | HAS_NODE * (not config.preserve_node)
    if config.stamps:
        return False
    return not cut or not bool((region.rows["flags"][wanted.rows] & cut).any())


def _spans(region: Region, rows: Rows) -> tuple[Rows, Rows]:
    """Where the records of some rows start behind their seq and time, and where they end."""
    ends = region.rows["end"]
    starts = np.where(rows > 0, ends[rows - 1].astype(np.int64), 0)
    prefixes = 16 + segment.digits(region.base_seq + rows)
    prefixes = prefixes + segment.digits(region.rows["ts"][rows])
    return starts + prefixes, ends[rows].astype(np.int64)


def _copy(source: Log, region: Region, row: int, router: Router) -> tuple[bytes, bytes, int]:
    """One copy: what follows its seq and time, its row, and its payload bytes."""
    starts, stops = _spans(region, np.array([row]))
    rest = bytes(region.dat[int(starts[0]) : int(stops[0])])
    _, _, _, key, node, head_len, tag_len, tail_len, flags, _ = region.rows[row].tolist()
    config = router.config
    if tag_len and not config.preserve_tag:
        rest = rest[tag_len:]
        head_len, tag_len, key, flags = head_len - tag_len, 0, 0, flags & ~HAS_KEY
    if flags & HAS_NODE and not config.preserve_node:
        rest = rest[:tag_len] + _DATA + rest[head_len:]
        head_len, node, flags = tag_len + len(_DATA), 0, flags & ~HAS_NODE
    meta = rest[len(rest) - tail_len + len(META_LABEL) : -len(END)] if flags & HAS_META else b""
    if config.stamps:
        stamped = _stamp(meta, build_key(router, source, region.base_seq + row))
        tail = META_LABEL + stamped + END
        if len(tail) <= TAIL_MAX:
            rest = rest[: len(rest) - tail_len] + tail
            meta, tail_len, flags = stamped, len(tail), flags | HAS_META
    sizes = (head_len, tag_len, tail_len, flags, 0)
    packed = ROW.pack(0, len(rest), rest_sum(rest), key, node, *sizes)
    return rest, packed, len(rest) - head_len - tail_len + len(meta)


def build_key(router: Router, source: Log, seq: int) -> bytes:
    """What tells the copies that a router makes of a record from all others, as JSON."""
    return _encode(
        {
            "key": f"{key_prefix(router, source)}{seq}",
            "router": router.name,
            "source": router.config.source,
            "seq": seq,
        }
    )


def key_prefix(router: Router, source: Log) -> str:
    return f"{router.name}/{source.id}/{source.epoch}/"


def _members(meta: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _FIELDS.decode(meta)
    except msgspec.DecodeError:
        # A name with a lone surrogate, which JSON's grammar allows: none of ours.
        return {}


def _stamp(meta: bytes, key: bytes) -> bytes:
    """Put the key into the object `meta`, in place of one it came with."""
    field = _encode(KEY_FIELD)
    if KEY_FIELD.encode() in meta or b"\\" in meta:
        # A key of an earlier route, or a name that may be spelled with escapes.
        members = _members(meta)
        if KEY_FIELD in members:
            del members[KEY_FIELD]
            kept = [_encode(name) + b":" + bytes(value) for name, value in members.items()]
            return b"{" + b",".join([*kept, field + b":" + key]) + b"}"
    inside = meta.strip()[1:-1]
    separator = b"," if inside.strip() else b""
    return b"{" + inside + separator + field + b":" + key + b"}"

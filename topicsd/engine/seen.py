"""Copies that a destination has although the cursor is below them (exactly_once, API 6).

A checkpoint saves cursor and destination together, so this finds nothing unless a damaged
WAL tore the two apart. The look is bounded: at the last records of the destination.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topicsd.engine.copies import KEY_FIELD, key_prefix
from topicsd.engine.log import Log
from topicsd.engine.routes import Route, Router
from topicsd.model.record import DELETED, HAS_META
from topicsd.storage.shelf import Region
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine

LOOK_MAX: Final = 10_000


def find_seen(engine: Engine, route: Route) -> dict[int, set[int]]:
    """Source seqs above the cursor whose copies are retained, by router."""
    source, dest = engine.registry.find(route.source), engine.registry.find(route.dest)
    stamping = [router for router in route.routers if router.config.stamps]
    if source is None or dest is None or not dest.live:
        return {}
    tails = _last_metas(engine, dest)
    return {router.id: _seqs(tails, router, source, route.cursor) for router in stamping}


def _seqs(tails: list[bytes], router: Router, source: Log, cursor: int) -> set[int]:
    prefix = re.escape(key_prefix(router, source).encode())
    key = re.compile(rb'"%b":\{"key":"%b([0-9]+)"' % (KEY_FIELD.encode(), prefix))
    found = (key.search(tail) for tail in tails)
    seqs = {int(match[1]) for match in found if match is not None}
    return {seq for seq in seqs if seq > cursor}


def _last_metas(engine: Engine, dest: Log) -> list[bytes]:
    """The ends of the last live records, from where their meta begins."""
    snapshot = Snapshot(engine.shelf, dest.to_row(), dest.session)
    tails: list[bytes] = []
    first_seq = max(dest.earliest_seq, dest.next_seq - LOOK_MAX)
    for index in range(snapshot.find(first_seq), len(snapshot.bases())):
        region, rows = snapshot.region(index)
        first = max(first_seq - region.base_seq, 0)
        tails += [_tail(region, row) for row in range(first, rows) if _has_meta(region, row)]
    return tails


def _has_meta(region: Region, row: int) -> bool:
    found = region.rows[row]
    return bool(found["flags"] & HAS_META) and found["deleted"] != DELETED


def _tail(region: Region, row: int) -> bytes:
    end = int(region.rows["end"][row])
    return bytes(region.dat[end - int(region.rows["tail_len"][row]) : end])

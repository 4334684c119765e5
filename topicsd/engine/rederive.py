"""Makes copies again that a crash took: recovery of what routers have forwarded.

Copies are in no WAL frame. A checkpoint has, together, a destination as it was and the cursor
that its copies stand for; from there the copies come out of the source again, in the order in
which they were made. Frames are replayed in the order of their lsns, and those that touch a
destination's numbers, or take records out of a source, begin with a mark of where the copies
stood. So at every mark the copies up to its cursor are made before the frame is applied, each
at the seq that it had. What no mark tells of is made at the end, up to the head that the
board showed; forwarding does the rest when the server is ready.

Two things are not as they were then. Flag bytes of records that were deleted later are in the
source's segments already; the WAL's deletes are therefore read ahead, and a record whose
delete is still to come counts as live. And the time at which a copy was made is known to no
one; it gets that of its source record, within what keeps time from running backwards.

What the source cannot supply (a damaged frame took it) becomes a gap, like any loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topicsd.engine.copies import Copier, find_live, pick, take
from topicsd.engine.log import Log
from topicsd.engine.routes import Route
from topicsd.engine.staging import Chunk
from topicsd.rules.floors import SOURCE_TRIM
from topicsd.storage import frame
from topicsd.storage.frame import AppendEntry, DeleteEntry, RouteEntry
from topicsd.storage.view import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topicsd.engine.engine import Engine
    from topicsd.engine.rebuild import Heads, Rebuild

SLICE_RECORDS: Final = 4096
SLICE_BYTES: Final = 1 << 20
END: Final = 2**63


class Rederive:
    """The routes of an engine that is being rebuilt."""

    def __init__(self, engine: Engine, rebuild: Rebuild) -> None:
        self._engine = engine
        self._rebuild = rebuild
        self._copier = Copier()
        # Seqs of sources whose deletes are not applied yet.
        self._later: dict[int, set[int]] = {}
        # Destinations on the way down to the farthest source, so that a cycle ends.
        self._busy: set[int] = set()

    def read_ahead(self, frames: Iterable[frame.Frame], folded: int) -> None:
        """Note what the WAL deletes from sources; frames up to `folded` are in the checkpoint."""
        sources = self._engine.routes.by_source
        for found in frames:
            if found.lsn > folded:
                for entry in frame.deletes(found.body):
                    if entry.log_id in sources and len(entry.seqs):
                        self._later.setdefault(entry.log_id, set()).update(entry.seqs.tolist())

    def note_deleted(self, entry: DeleteEntry) -> None:
        """A delete is applied: what it took is deleted for copies, too."""
        self._later.get(entry.log_id, set()).difference_update(entry.seqs.tolist())

    def follow(self, entry: RouteEntry) -> None:
        """Bring a destination to where it was when the entry was written."""
        route = self._engine.routes.by_dest.get(entry.log_id)
        found = self._rebuild.find(entry.log_id)
        if found is None:
            return
        dest = found.log
        if route is not None and route.source_id == entry.source_id:
            self._derive(route, entry.cursor, entry.next_seq, entry.last_ts)
            self._take_over(route, entry)
        if dest.next_seq < entry.next_seq:
            self._rebuild.flush(found)
            self._rebuild.lose(dest, entry.next_seq - 1, SOURCE_TRIM)
        if entry.trimmed:
            self._rebuild.note_trim(dest, entry.trimmed)

    def finish(self, shown: Heads, *, trust_tail: bool) -> None:
        """Make the copies that no mark tells of, as far as they were shown."""
        wanted = np.isin(shown[0], list(self._engine.routes.by_dest))
        heads = dict(zip(shown[0][wanted].tolist(), shown[1][wanted].tolist(), strict=True))
        for route in self._engine.routes:
            for each in self._engine.routes.upstream(route.dest_id):
                self._finish_route(each, heads, trust_tail=trust_tail)

    def _finish_route(self, route: Route, shown: dict[int, int], *, trust_tail: bool) -> None:
        found = self._rebuild.find(route.dest_id)
        if found is None:
            return
        dest = found.log
        stop = shown.get(dest.id, 0) + 1
        if not trust_tail:
            if dest.config.durability == "disk" and found.ceiling > dest.head_seq:
                # Writes of its own may be lost: it goes on above every seq they had.
                return
            if dest.config.discard == "old":
                # After a power loss nobody knows what was shown.
                stop = END
        for gap in self._engine.catalog.gaps(dest.id):
            if gap.from_seq >= dest.next_seq:
                # Told already, by a recovery that was cut short or just before a power loss.
                stop = min(stop, gap.from_seq)
        self._derive(route, END, stop, END)

    def _take_over(self, route: Route, entry: RouteEntry) -> None:
        route.cursor = max(route.cursor, entry.cursor)
        totals = dict(entry.totals)
        for router in route.routers:
            router.forwarded = totals.get(router.id, router.forwarded)
        route.moved_in = self._engine.checkpoints.started

    def _derive(self, route: Route, cursor: int, next_seq: int, last_ts: int) -> None:
        """Copy up to a seq of the source, until the destination's next seq is `next_seq`."""
        target = self._rebuild.find(route.dest_id)
        origin = self._rebuild.find(route.source_id)
        if target is None or origin is None or route.dest_id in self._busy:
            return
        source, dest = origin.log, target.log
        if source.resident or dest.resident or dest.next_seq >= next_seq:
            return
        if cursor < END:
            self._require(route, source, cursor)
        self._rebuild.flush(origin)
        self._rebuild.flush(target)
        rows_max = SLICE_RECORDS
        while route.cursor < min(cursor, source.head_seq) and dest.next_seq < next_seq:
            rows_max = min(rows_max, next_seq - dest.next_seq)
            stop = min(cursor, source.head_seq)
            if not self._copy(route, (source, dest), (stop, next_seq, last_ts), rows_max):
                if rows_max == 1:
                    return
                # Several routers copy each record: fewer of them fit.
                rows_max = max(rows_max // (len(route.routers) + 1), 1)

    def _require(self, route: Route, source: Log, seq: int) -> None:
        """See that a source which is itself a destination has a seq."""
        above = self._engine.routes.by_dest.get(source.id)
        if above is not None and source.next_seq <= seq:
            self._busy.add(route.dest_id)
            self._derive(above, END, seq + 1, END)
            self._busy.discard(route.dest_id)

    def _copy(
        self, route: Route, ends: tuple[Log, Log], bounds: tuple[int, int, int], rows_max: int
    ) -> bool:
        """Copy one slice; False when it would be too much."""
        source, dest = ends
        stop, next_seq, last_ts = bounds
        snapshot = Snapshot(self._engine.shelf, source.to_row(), source.session)
        # What is below was deleted by then: deletes and copies are replayed in their order.
        start = max(route.cursor + 1, source.delete_below)
        part = take(snapshot, start, stop, rows_max, SLICE_BYTES)
        if part is None:
            route.cursor = stop
            return True
        later = self._later.get(source.id, set())
        live = find_live(part, later) if part.sound else np.empty(0, dtype=np.int64)
        picks = [pick(part, live, router) for router in route.routers]
        copies = self._copier.build(source, part, picks)
        if copies is not None:
            if dest.next_seq + copies.count > next_seq:
                return False
            written = int(part.region.rows["ts"][part.stop - 1])
            ts = max(min(written, last_ts), dest.last_write_ts)
            chunk = Chunk(dest)
            chunk.add(copies, dest.next_seq, ts)
            rows, dat = (memoryview(b"".join(parts)) for parts in (chunk.rows, chunk.dat))
            size = (copies.payload_bytes, copies.count)
            self._rebuild.append(AppendEntry(dest.id, dest.next_seq, 0, *size, rows, dat))
            found = self._rebuild.find(dest.id)
            assert found is not None
            self._rebuild.flush(found)
            for router, picked in picks:
                router.forwarded += len(picked)
        route.cursor = part.last_seq
        route.moved_in = self._engine.checkpoints.started
        return True

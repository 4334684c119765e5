"""The engine's figures, kept up to date on the board for whoever is asked for metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.storage.figures import Figures

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


class Report:
    """Writes the figures; called after every batch, release and tick."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._peak = 0

    def publish(self) -> None:
        engine = self._engine
        counters = engine.wal.counters
        depth = len(engine.held)
        self._peak = max(self._peak, depth)
        engine.board.figures = Figures(
            frames=counters.frames,
            batches=counters.batches,
            fsync_us_total=counters.fsync_us_total,
            bytes_written=counters.bytes_written,
            rotations=counters.rotations,
            queue_depth=depth,
            queue_depth_peak=self._peak,
            read_only=counters.read_only,
            records_appended=engine.commits.records,
            checkpoints=engine.checkpoints.started,
            checkpoint_running=engine.checkpoints.running,
            watch_sessions=engine.watches.count,
            leases_in_flight=engine.queues.in_flight,
            routers=len(engine.routes),
            fsync_buckets=tuple(counters.fsync_buckets),
        )

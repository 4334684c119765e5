"""Moves a log between disk and memory when its durability class asks for it (API 0.10).

A topic that stops being ephemeral gets its records onto disk, one that becomes ephemeral
leaves none there. Copying is the price of changing a class, not of having one. The old
copy goes when the catalog has the new configuration: until then a crash would need it.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from topicsd.engine.log import Log, Rolled
from topicsd.model import errors
from topicsd.model.topic import TopicConfig
from topicsd.storage import place
from topicsd.storage.view import Snapshot
from topicsd.storage.volume import Spot, Volume

if TYPE_CHECKING:
    from topicsd.engine.engine import Engine


def change_volume(engine: Engine, log: Log, config: TopicConfig) -> None:
    """Copy every segment to the other volume and leave the old one."""
    if log.leaving is not None:
        raise errors.throttled("durability_change", 1, retry_after_ms=100)
    source = engine.volume_of(log)
    resident = config.durability == "ephemeral"
    target, old = engine.volumes[resident], log.spot
    nothing = Spot(log.id, 0, place.NOWHERE, 0, 0)
    # Whatever an earlier stay on that volume left, or an attempt that ran out of space.
    target.discard_after(nothing)
    try:
        rolled = _copy_older(engine, log, target)
        rows, dat = source.read(old)
        fresh = Spot(log.id, old.base_seq, _start(old), 0, 0)
        reserved = target.reserve(fresh, old.rows, old.end)
        log.spot = target.write(reserved, rows, dat) if old.rows else reserved
    except OSError:
        target.discard_after(nothing)
        raise
    for spot in rolled:
        engine.checkpoints.note_rolled(Rolled(resident, spot, spot.rows))
    log.shelf_generation += 1
    log.leaving = leave(engine, log.id, old.location, resident=not resident)
    engine.checkpoints.note_written(resident, log.spot)
    engine.checkpoints.ask()


def leave(engine: Engine, log_id: int, location: int, *, resident: bool) -> list[Path]:
    """Let go of everything a log wrote; return the directories the caller must remove."""
    hot, *others = engine.volumes_of(resident=resident)
    found = [hot.leave(log_id, location), *(cold.leave(log_id, place.NOWHERE) for cold in others)]
    return [directory for directory in found if directory is not None]


def _copy_older(engine: Engine, log: Log, target: Volume) -> list[Spot]:
    """Copy every segment but the active one; return where they are now."""
    snapshot = Snapshot(engine.shelf, log.to_row(), log.session)
    copied = []
    for index, (base, following) in enumerate(pairwise(snapshot.bases())):
        region = engine.shelf.open(snapshot.key(index))
        rows = region.seal.rows if region.seal else following - base
        end = int(region.rows["end"][rows - 1])
        spot = target.reserve(Spot(log.id, base, place.OWN_FILES, 0, 0), rows, end)
        copied.append(target.write(spot, region.rows[:rows].tobytes(), region.dat[:end]))
    return copied


def _start(spot: Spot) -> int:
    """A log with files of its own keeps them; a packed one starts packed again."""
    return place.OWN_FILES if spot.location == place.OWN_FILES else place.NOWHERE

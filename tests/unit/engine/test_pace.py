"""Work beside the engine's thread: in pieces, with rests while commands come."""

from __future__ import annotations

from tests.faults.driver import Driver, append, small_settings
from topicsd.engine.checkpoint import BEHIND_FACTOR
from topicsd.engine.pace import PIECE_S, REST_FACTOR, REST_S_MAX, Pace
from topicsd.model.settings import Settings


class Desk:
    """A clock, commands that come, and the rests that were taken."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self.hurried = False
        self.rests: list[float] = []

    def pace(self) -> Pace:
        return Pace(
            lambda: self.turns, lambda: self.hurried, clock=lambda: self.now, wait=self.rests.append
        )


def test_without_commands_there_is_no_rest() -> None:
    """Nobody is in the way."""
    desk = Desk()
    pace = desk.pace()
    for _ in range(10):
        desk.now += 2 * PIECE_S
        pace()
    assert desk.rests == []


def test_while_commands_come_each_piece_is_followed_by_a_rest() -> None:
    """The rest is a multiple of the work, within a bound."""
    desk = Desk()
    pace = desk.pace()
    for worked in (2 * PIECE_S, 1.0):
        desk.now += worked
        desk.turns += 1
        pace()
    assert desk.rests == [2 * PIECE_S * REST_FACTOR, REST_S_MAX]


def test_small_steps_are_counted_together() -> None:
    """Less than a piece of work is not worth a rest."""
    desk = Desk()
    pace = desk.pace()
    for _ in range(8):
        desk.now += PIECE_S / 4
        desk.turns += 1
        pace()
    assert len(desk.rests) == 2


def test_who_is_late_does_not_rest() -> None:
    """A checkpoint that takes too long would make a recovery slow."""
    desk = Desk()
    pace = desk.pace()
    desk.hurried = True
    desk.now, desk.turns = 1.0, 1
    pace()
    assert desk.rests == []


def test_a_checkpoint_is_behind_when_the_log_has_grown_by_several(settings: Settings) -> None:
    """The bound is in what recovery would have to replay."""
    limit = 1 << 16
    driver = Driver(small_settings(settings.data_dir.parent, checkpoint_bytes=limit))
    checkpoints, counters = driver.engine.checkpoints, driver.engine.wal.counters
    driver.append("topic", b"1")
    driver.checkpoint()
    begun = counters.bytes_written
    while counters.bytes_written - begun <= BEHIND_FACTOR * limit:
        assert not checkpoints.behind
        # Applied without a tick, so that no further checkpoint begins.
        driver.engine.apply([(0, append("topic", b'"%b"' % (b"x" * 8000)))])
    assert checkpoints.behind
    driver.close()

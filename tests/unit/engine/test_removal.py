"""What a delete does inside the engine: WAL, flag bytes, counts, and who waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.property.cuts import Write, append_command
from tests.property.rig import Rig
from topicsd.model.commands import DeleteRecords, Failed, PutTopic, RecordsDeleted, Reply
from topicsd.model.match import Match
from topicsd.model.topic import TopicConfig
from topicsd.storage import frame, paths
from topicsd.storage.replay import WalReader


@pytest.fixture
def rig() -> Iterator[Rig]:
    """An engine over an empty directory, which ends clean."""
    started = Rig()
    yield started
    assert started.stop() == []
    started.remove()


def fill(rig: Rig, *tags: str | None, config: TopicConfig | None = None) -> None:
    rig.run([[PutTopic("t", config or TopicConfig(), True)]])
    rig.run([[append_command(Write("t", list(tags), 3))]])


def delete(rig: Rig, before_seq: int | None = None, match: Match | None = None) -> Reply:
    return rig.run([[DeleteRecords("t", before_seq, match)]])[0]


def delete_entries(rig: Rig) -> list[frame.DeleteEntry]:
    reader = WalReader(rig.files, paths.wal(rig.settings.data_dir), lambda fraction: None)
    entries = [entry for found in reader for entry in frame.entries(found.body)]
    return [entry for entry in entries if isinstance(entry, frame.DeleteEntry)]


def test_an_entry_comes_back_as_it_was_written() -> None:
    """The selector, the floors of that time, and the seqs that were found."""
    parts = frame.delete_parts(7, 5, (2, 1, 2), np.array([9, 2**40]))
    (entry,) = frame.entries(memoryview(b"".join(parts)))
    assert isinstance(entry, frame.DeleteEntry)
    assert entry[:5] == (7, 5, 2, 1, 2)
    assert entry.seqs.tolist() == [9, 2**40]


def test_the_wal_names_the_seqs_that_were_found(rig: Rig) -> None:
    """Replay needs no tag index, and cannot find more than the delete did."""
    fill(rig, "a", "b", "a")
    assert delete(rig, match=Match("a", False)) == RecordsDeleted(2, 2, 3, 1, 3)
    (entry,) = delete_entries(rig)
    assert (entry.before_seq, entry.earliest_seq, entry.seqs.tolist()) == (0, 1, [1, 3])


def test_a_delete_below_a_seq_writes_no_seqs(rig: Rig) -> None:
    """DESIGN 7.2: a marker, whatever the number of records."""
    fill(rig, *(["a"] * 100))
    assert delete(rig, before_seq=91) == RecordsDeleted(90, 91, 100, 10, 30)
    (entry,) = delete_entries(rig)
    assert (entry.before_seq, entry.seqs.tolist()) == (91, [])


def test_a_delete_of_nothing_writes_nothing(rig: Rig) -> None:
    """Neither a frame nor a wakeup."""
    fill(rig, "a")
    rig.engine.take_moved()
    for command in ({"before_seq": 1}, {"match": Match("b", False)}, {"before_seq": 0}):
        assert delete(rig, **command) == RecordsDeleted(0, 1, 1, 1, 3)  # type: ignore[arg-type]
    assert (delete_entries(rig), rig.engine.take_moved()) == ([], [])


def test_a_missing_topic_is_refused(rig: Rig) -> None:
    """API 5: 404 topic_not_found."""
    reply = delete(rig, before_seq=1)
    assert isinstance(reply, Failed) and reply.code == "topic_not_found"


def test_a_delete_sees_the_writes_before_it_in_a_batch(rig: Rig) -> None:
    """And not the one behind it: a batch keeps its order."""
    rig.run([[PutTopic("t", TopicConfig(), True)]])
    write = append_command(Write("t", ["a"], 3))
    command = DeleteRecords("t", None, Match("a", False))
    replies = rig.run([[write, write, command, write]])
    assert replies[2] == RecordsDeleted(2, 3, 2, 0, 0)
    assert delete(rig, before_seq=0) == RecordsDeleted(0, 3, 3, 1, 3)


def test_an_fsync_delete_waits_for_its_frame(rig: Rig) -> None:
    """DESIGN 2.2: nothing is acknowledged before it is durable, a repeat neither."""
    fill(rig, "a", "b", config=TopicConfig(durability="fsync"))
    command = DeleteRecords("t", None, Match("a", False))
    shard = rig.engine.wal.shards[rig.engine.wal.shard_of(1)]
    with shard._wake:
        # The sync thread cannot report anything here.
        assert rig.engine.apply([(0, command), (1, command)]) == []
    first, again = rig.take_replies(2).values()
    assert {first.deleted, again.deleted} == {0, 1}  # type: ignore[union-attr]


def test_expiry_noticed_by_a_delete_is_subtracted_once(rig: Rig) -> None:
    """Also when the log is forgotten and loaded again in between."""
    fill(rig, "a", "b", config=TopicConfig(ttl_ms=50))
    rig.clock.now += 60
    assert delete(rig, match=Match("zz", False)) == RecordsDeleted(0, 3, 2, 0, 0)
    for name in ("x", "y", "z"):
        rig.run([[PutTopic(name, TopicConfig(), True)]])
    assert delete(rig, match=Match("zz", False)) == RecordsDeleted(0, 3, 2, 0, 0)
    assert rig.engine.total_bytes == 0


def test_a_segment_below_the_floor_is_dropped(rig: Rig) -> None:
    """DESIGN 7.4: whole, after the next checkpoint, with its tag index."""
    rig.run([[PutTopic("t", TopicConfig(), True)]])
    for _ in range(8):
        rig.run([[append_command(Write("t", ["a"] * 50, 3))]])
    rig.begin_checkpoint(None)
    rig.finish_checkpoint()
    directory = paths.segments(rig.settings.data_dir) / "1"
    before = {path.name for path in directory.iterdir()}
    assert isinstance(delete(rig, before_seq=301), RecordsDeleted)
    rig.begin_checkpoint(None)
    rig.finish_checkpoint()
    gone = before - {path.name for path in directory.iterdir()}
    assert gone and all(int(name[:20]) < 301 for name in gone)
    assert {name[-4:] for name in gone} == {".dat", ".idx", ".tag"}

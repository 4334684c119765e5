"""The last WAL frame cut at every byte, and recovery cut short at every change it makes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from tests.faults.bytes import Place, flip, list_frames, overwrite
from tests.faults.driver import Driver, fast_directory, small_settings
from tests.faults.dump import Seen, dump
from tests.faults.faulty import FaultyFiles
from topicsd.model.settings import Settings
from topicsd.storage import paths

CLASSES = ("fsync", "disk", "memory")


@pytest.fixture
def home() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


def _settings(home: Path) -> Settings:
    return small_settings(home, wal_shards=1)


def _crash_after_writes(home: Path, last: str = "fsync") -> tuple[dict[str, Seen], Place]:
    """A crashed engine's directory, what readers saw in it, and its last frame."""
    settings = _settings(home)
    driver = Driver(settings)
    for name in CLASSES:
        driver.put(name, durability=name)
        driver.append(name, b'"old"', b'"older"')
    driver.checkpoint()
    driver.append("large", *[b'"%d"' % number for number in range(400)])
    for name in CLASSES:
        driver.append(name, b'"new"')
    driver.append(last, b'"last"')
    seen = dump(settings)
    driver.abandon()
    return seen, list_frames(settings.data_dir)[-1]


def _copy(template: Path, home: Path) -> Settings:
    """A fresh copy of a crashed directory."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(template, home)
    return _settings(home)


def _without_last(seen: dict[str, Seen], topic: str, *, noticed: bool) -> dict[str, Seen]:
    """What must be left of a directory when a topic's last record is torn."""
    whole = seen[topic]
    head = whole.head_seq
    records = {seq: data for seq, data in whole.records.items() if seq != head}
    torn = msgspec.structs.replace(
        whole,
        head_seq=head if noticed else head - 1,
        count=whole.count - 1,
        size=whole.size - len(whole.records[head]),
        records=records,
        lost=[(head, head, "lost")] if noticed else [],
    )
    return {**seen, topic: torn}


@pytest.mark.parametrize("topic", CLASSES)
@pytest.mark.parametrize("board", ["kept", "gone"])
def test_a_frame_torn_at_any_byte_costs_its_own_record_only(
    home: Path, topic: str, board: str
) -> None:
    """Everything before it is there; the board tells whether its seq was ever shown."""
    seen, last = _crash_after_writes(home / "template", topic)
    frame = last.path.read_bytes()[last.start : last.end]
    # The class changes nothing here: every byte for one of them, some for the others.
    for cut in range(0, len(frame), 1 if topic == "fsync" else 9):
        settings = _copy(home / "template", home / "copy")
        path = settings.data_dir / last.path.relative_to(home / "template" / "data")
        torn = frame[:cut].ljust(len(frame), b"\0")
        overwrite(path, last.start, torn)
        if board == "gone":
            paths.board(settings.data_dir).unlink()
        driver = Driver(settings)
        left = seen
        if torn != frame:
            left = _without_last(seen, topic, noticed=board == "kept")
        assert dump(settings) == left, f"cut at byte {cut}"
        assert driver.append(topic, b'"next"').first_seq == left[topic].head_seq + 1
        driver.close()


@pytest.mark.parametrize("topic", CLASSES)
def test_a_file_that_ends_inside_its_last_frame_is_a_torn_tail(home: Path, topic: str) -> None:
    """A file cut short at any byte recovers like one with zeros in place of the rest."""
    seen, last = _crash_after_writes(home / "template", topic)
    left = _without_last(seen, topic, noticed=True)
    for cut in range(0, last.end - last.start - 8, 11):
        settings = _copy(home / "template", home / "copy")
        path = settings.data_dir / last.path.relative_to(home / "template" / "data")
        with path.open("r+b") as file:
            file.truncate(last.start + cut)
        driver = Driver(settings)
        assert dump(settings) == left, f"cut at byte {cut}"
        driver.close()


def _tear(home: Path) -> None:
    """A torn last frame and, before it, a damaged one."""
    _, last = _crash_after_writes(home)
    flip(last.path, last.start + 40)
    damaged = list_frames(_settings(home).data_dir)[-3]
    flip(damaged.path, damaged.start + 60)


def test_recovering_twice_equals_recovering_once(home: Path) -> None:
    """A crash right after recovery changes nothing."""
    _tear(home / "template")
    settings = _copy(home / "template", home / "copy")
    driver = Driver(settings)
    once = dump(settings)
    assert any(topic.lost for topic in once.values())
    driver.abandon()
    driver = Driver(settings)
    assert dump(settings) == once
    driver.close()
    driver = Driver(settings)
    assert driver.summary.clean
    assert dump(settings) == once
    driver.close()


@pytest.mark.parametrize("crash", ["torn and damaged", "whole"])
def test_a_recovery_cut_short_at_any_change_is_just_another_crash(home: Path, crash: str) -> None:
    """Recovering again gives what an undisturbed recovery gives."""
    if crash == "whole":
        _crash_after_writes(home / "template")
    else:
        _tear(home / "template")
    settings = _copy(home / "template", home / "copy")
    driver = Driver(settings)
    straight = dump(settings)
    driver.close()
    for number in count(1):
        settings = _copy(home / "template", home / "copy")
        files = FaultyFiles(number)
        try:
            Driver(settings, files).abandon()
        except OSError:
            assert files.failed is not None
        driver = Driver(settings)
        assert dump(settings) == straight, f"after change {number} failed: {files.failed}"
        driver.close()
        if files.failed is None:
            break
    assert number > 15


def test_a_gap_found_by_a_recovery_cut_short_is_not_written_into(home: Path) -> None:
    """The catalog remembers the gap even if the board that proved it is gone."""
    seen, last = _crash_after_writes(home)
    flip(last.path, last.start + 40)
    Driver(_settings(home)).abandon()
    paths.board(home / "data").unlink()
    driver = Driver(_settings(home))
    left = _without_last(seen, "fsync", noticed=True)
    assert dump(_settings(home)) == left
    assert driver.append("fsync", b'"next"').first_seq == left["fsync"].head_seq + 1
    driver.close()

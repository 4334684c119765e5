"""Bytes that rot: reported with file and position, withheld from readers, never served."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bytes import flip, list_frames, overwrite
from tests.faults.driver import Driver, fast_directory, problems, small_settings
from tests.faults.dump import Seen, dump
from topicsd.cli.main import run
from topicsd.model.record import ROW, ROW_DTYPE
from topicsd.storage import paths, place, segment
from topicsd.storage.catalog import CatalogReader

FIELDS = [name for name in ROW_DTYPE.names or () if name != "deleted"]


@pytest.fixture
def home() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def _payload(number: int) -> bytes:
    return b'"<%d>"' % number


def _fill(home: Path) -> dict[str, Seen]:
    """A cleanly stopped directory with packed, active and sealed segments."""
    settings = small_settings(home)
    driver = Driver(settings)
    driver.append("packed", *map(_payload, range(1, 9)), tag="t", node="n", meta=b"{}")
    for start in range(1, 721, 60):
        driver.append("large", *map(_payload, range(start, start + 60)), tag="t", node="n")
    driver.stop()
    return dump(settings)


def _log_id(home: Path, topic: str) -> int:
    catalog = CatalogReader(paths.catalog(home / "data"))
    record = catalog.find_log(topic)
    catalog.close()
    assert record is not None
    return record.id


def _segments(home: Path) -> list[Path]:
    """The .dat files of the large topic, oldest first."""
    log_id = _log_id(home, "large")
    return sorted(place.log_directory(paths.segments(home / "data"), log_id).glob("*.dat"))


def _expect_lost(home: Path, seen: dict[str, Seen], topic: str, lost: list[int]) -> None:
    """Readers get everything but the lost seqs, and are told about those."""
    settings = small_settings(home)
    driver = Driver(settings)
    found = dump(settings)
    left = {seq: data for seq, data in seen[topic].records.items() if seq not in lost}
    assert found[topic].records == left
    assert found[topic].lost == [(lost[0], lost[-1], "lost")]
    others = [name for name in seen if name != topic]
    assert [found[name] for name in others] == [seen[name] for name in others]
    driver.stop()


def _expect_reported(home: Path, path: Path, position: int | None = None) -> None:
    """A check names the file, and the position when given."""
    found = problems(home / "data")
    named = [line for line in found if line.startswith(f"{path}:")]
    assert named, found
    if position is not None:
        assert any(line.startswith(f"{path}:{position}:") for line in named), named


def _find(path: Path, number: int) -> tuple[int, int]:
    """Where a record starts, and where its payload is."""
    content = path.read_bytes()
    payload = content.index(_payload(number))
    return content.rindex(b'{"$seq":', 0, payload), payload


@pytest.mark.parametrize(
    ("topic", "which", "number"),
    [
        ("large", 0, 100),
        ("large", -1, 700),
        ("packed", None, 5),
    ],
)
def test_a_damaged_record_is_withheld_and_only_it(
    home: Path, topic: str, which: int | None, number: int
) -> None:
    """A flipped payload byte of a sealed, an active and a packed segment."""
    seen = _fill(home)
    path = place.pack_path(paths.segments(home / "data"), 1)
    if which is not None:
        path = _segments(home)[which]
    start, payload = _find(path, number)
    flip(path, payload + 1)
    _expect_reported(home, path, start)
    _expect_lost(home, seen, topic, [number])


def test_the_check_command_fails_with_file_and_position(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`topicsd check` exits with 1 and says where to look."""
    _fill(home)
    path = _segments(home)[0]
    start, payload = _find(path, 100)
    flip(path, payload + 1)
    assert run(["check", str(home / "data")]) == 1
    assert f"{path}:{start}: record checksum mismatch" in capsys.readouterr().err


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("which", "number"), [(0, 100), (-1, 700)])
def test_a_damaged_row_is_withheld_whatever_its_field(
    home: Path, which: int, number: int, field: str
) -> None:
    """A flipped byte of any field of an index row, of a sealed and an active segment."""
    seen = _fill(home)
    dat = _segments(home)[which]
    row = number - int(dat.stem)
    fields = ROW_DTYPE.fields
    assert fields is not None
    position = place.IDX_HEADER_BYTES + row * ROW.size + fields[field][1]
    flip(dat.with_suffix(".idx"), position)
    _expect_reported(home, dat)
    # Where a record ends is where the next one begins.
    lost = [number, number + 1] if field == "end" else [number]
    _expect_lost(home, seen, "large", lost)


@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_row_of_a_packed_segment_is_withheld(home: Path, field: str) -> None:
    """The same for the rows of a block."""
    seen = _fill(home)
    path = place.pack_path(paths.segments(home / "data"), 1)
    fields = ROW_DTYPE.fields
    assert fields is not None
    flip(path, 4 * ROW.size + fields[field][1])
    _expect_reported(home, path)
    _expect_lost(home, seen, "packed", [5, 6] if field == "end" else [5])


@pytest.mark.parametrize("distance", [1, segment.FOOTER_BYTES, segment.FOOTER_BYTES + 4])
def test_a_damaged_seal_costs_no_record(home: Path, distance: int) -> None:
    """Records are then verified one by one; the damage is reported all the same."""
    seen = _fill(home)
    idx = _segments(home)[0].with_suffix(".idx")
    flip(idx, idx.stat().st_size - distance)
    _expect_reported(home, idx)
    settings = small_settings(home)
    driver = Driver(settings)
    assert dump(settings) == seen
    driver.stop()


def test_a_damaged_header_of_a_segment_is_reported(home: Path) -> None:
    """The .idx header belongs to no record: nothing is withheld."""
    seen = _fill(home)
    idx = _segments(home)[-1].with_suffix(".idx")
    flip(idx, 9)
    _expect_reported(home, idx, 0)
    driver = Driver(small_settings(home))
    assert dump(small_settings(home)) == seen
    driver.stop()


@pytest.mark.parametrize("suffix", [".dat", ".idx"])
def test_a_segment_file_cut_short_is_reported(home: Path, suffix: str) -> None:
    """A check of a file that ends too early names it and does not fail itself."""
    _fill(home)
    path = _segments(home)[0].with_suffix(suffix)
    with path.open("r+b") as file:
        file.truncate(100)
    assert any(str(path.with_suffix("")) in line for line in problems(home / "data"))


def test_a_missing_segment_file_is_reported(home: Path) -> None:
    """A check names the log whose file is gone."""
    _fill(home)
    _segments(home)[0].unlink()
    assert any("is missing" in line for line in problems(home / "data"))


def test_a_missing_catalog_is_reported(home: Path) -> None:
    """Records without a catalog are not a clean, empty directory."""
    _fill(home)
    shutil.move(paths.catalog(home / "data"), home)
    assert any("no catalog" in line for line in problems(home / "data"))


def _crash_with_frames(home: Path) -> dict[str, Seen]:
    settings = small_settings(home, wal_shards=1)
    driver = Driver(settings)
    driver.checkpoint()
    for number in range(1, 7):
        driver.append("topic", _payload(2 * number - 1), _payload(2 * number))
        driver.append("other", _payload(number))
    seen = dump(settings)
    driver.abandon()
    return seen


def test_a_damaged_frame_in_the_middle_costs_its_own_records_only(home: Path) -> None:
    """Later frames apply, the loss is told, the file is kept, the catalog says so."""
    seen = _crash_with_frames(home)
    settings = small_settings(home, wal_shards=1)
    damaged = list_frames(settings.data_dir)[4]
    original = damaged.path.read_bytes()
    flip(damaged.path, damaged.start + 100)
    rotten = damaged.path.read_bytes()
    assert problems(settings.data_dir) != []
    driver = Driver(settings)
    assert driver.summary.corrupt_frames == 1 and driver.summary.lost_records == 2
    found = dump(settings)
    assert found["other"] == seen["other"]
    assert found["topic"].lost == [(5, 6, "lost")]
    assert found["topic"].head_seq == 12
    assert found["topic"].count == 10
    assert found["topic"].records == {
        seq: data for seq, data in seen["topic"].records.items() if seq not in (5, 6)
    }
    (kept,) = driver.engine.catalog.list_quarantine()
    assert kept.position == damaged.start and kept.bytes == damaged.end - damaged.start
    assert (settings.data_dir / kept.file).read_bytes() == rotten != original
    assert driver.append("topic", b"1").first_seq == 13
    driver.close()


def test_the_damage_of_another_day_is_kept_apart(home: Path) -> None:
    """WAL files are numbered anew after a clean stop; copies of damaged ones are not lost."""
    settings = small_settings(home, wal_shards=1)
    for _ in range(2):
        _crash_with_frames(home)
        damaged = list_frames(settings.data_dir)[4]
        flip(damaged.path, damaged.start + 100)
        Driver(settings).close()
    catalog = CatalogReader(paths.catalog(settings.data_dir))
    assert len(catalog.list_quarantine()) == 2
    catalog.close()


def _remove(path: Path) -> None:
    path.unlink()


def _shorten(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100)


def _behead(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(4096)


def _replace(path: Path) -> None:
    """The board of another data directory."""
    with fast_directory() as elsewhere:
        driver = Driver(small_settings(elsewhere))
        driver.append("foreign", b"1")
        driver.stop()
        shutil.copyfile(paths.board(elsewhere / "data"), path)


def _garble(path: Path) -> None:
    overwrite(path, 0, b"\x5a" * 8192)


def _flip_head(path: Path) -> None:
    """A head far in the future, in the first row."""
    flip(path, 4096 + 8 * 3 + 2)


@pytest.mark.parametrize("damage", [_remove, _shorten, _behead, _replace, _garble, _flip_head])
def test_a_damaged_board_is_built_anew(home: Path, damage: object) -> None:
    """After a clean stop the catalog knows everything that the board showed."""
    seen = _fill(home)
    assert callable(damage)
    damage(paths.board(home / "data"))
    settings = small_settings(home)
    driver = Driver(settings)
    assert not driver.summary.clean
    assert dump(settings) == seen
    assert driver.append("packed", b"1").first_seq == 9
    driver.close()


@pytest.mark.parametrize("damage", [_remove, _shorten, _behead, _replace, _garble])
def test_a_damaged_board_of_a_crashed_engine_is_built_anew(home: Path, damage: object) -> None:
    """After a crash the catalog and the WAL know everything that the board showed."""
    seen = _crash_with_frames(home)
    assert callable(damage)
    damage(paths.board(home / "data"))
    settings = small_settings(home, wal_shards=1)
    driver = Driver(settings)
    assert dump(settings) == seen
    driver.close()


def test_sealing_does_not_vouch_for_what_rotted_before(home: Path) -> None:
    """A record of an earlier session is verified before its segment is sealed."""
    seen = _fill(home)
    settings = small_settings(home)
    path = _segments(home)[-1]
    flip(path, _find(path, 700)[1] + 1)
    driver = Driver(settings)
    driver.append("large", *[b'"more"'] * 300)
    driver.checkpoint()
    found = dump(settings)["large"]
    assert found.lost == [(700, 700, "lost")]
    assert found.records.keys() >= seen["large"].records.keys() - {700}
    driver.stop()
    _expect_reported(home, path)

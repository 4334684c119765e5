"""A catalog is brought up to date, or refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from topicsd.model.resources import migration_files
from topicsd.storage.catalog import (
    WATCH_IDLE,
    AddWatch,
    CatalogChanged,
    CatalogMissing,
    CatalogReader,
    CatalogTooNew,
    CatalogWriter,
    CreateLog,
    SetMeta,
    WatchRecord,
)
from topicsd.storage.catalog.migrate import Migration, checksum

ROOT = Path(__file__).parents[4]
NEXT = ("900_next.sql", "CREATE TABLE next (a INTEGER); CREATE TABLE after_next (b INTEGER);")


def tamper(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def create(path: Path, migrations: list[Migration] | None = None) -> list[str]:
    writer = CatalogWriter(path, migrations)
    writer.close()
    return writer.migrated


def tables(path: Path) -> set[str]:
    connection = apsw.Connection(str(path))
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    connection.close()
    return found


def test_migrations_apply_once(path: Path) -> None:
    """The first start applies all, the second none."""
    assert create(path) == [name for name, _ in migration_files()]
    assert create(path) == []


def test_migrations_are_recorded_with_checksum_and_time(path: Path) -> None:
    """The record names each migration, its checksum and a time of this century."""
    create(path)
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT name, checksum, applied_ts FROM migrations").fetchall()
    connection.close()
    assert [row[:2] for row in rows] == [(name, checksum(sql)) for name, sql in migration_files()]
    assert all(1_600_000_000_000 < int(str(row[2])) < 10_000_000_000_000 for row in rows)


def test_a_later_migration_applies_to_an_old_catalog(path: Path) -> None:
    """An upgrade applies only what is new and keeps the data."""
    create(path)
    assert create(path, [*migration_files(), NEXT]) == [NEXT[0]]
    assert {"next", "after_next", "logs"} <= tables(path)


def test_a_failing_migration_leaves_nothing_behind(path: Path) -> None:
    """One migration is one transaction; those before it stay applied."""
    broken = ("901_broken.sql", "CREATE TABLE half (a INTEGER); CREATE TABLE logs (a INTEGER);")
    with pytest.raises(apsw.SQLError):
        create(path, [*migration_files(), NEXT, broken])
    assert "next" in tables(path)
    assert "half" not in tables(path)
    assert create(path, [*migration_files(), NEXT]) == []


def test_a_newer_catalog_is_refused(path: Path) -> None:
    """Neither writer nor reader opens what a newer version has migrated."""
    create(path, [*migration_files(), NEXT])
    with pytest.raises(CatalogTooNew, match=r"newer version.*900_next\.sql"):
        CatalogWriter(path)
    with pytest.raises(CatalogTooNew, match=re.escape(str(path))):
        CatalogReader(path).count_logs()


def test_a_changed_migration_is_refused(path: Path) -> None:
    """History that was edited on either side is refused, naming the migration."""
    create(path)
    (name, sql), *later = migration_files()
    with pytest.raises(CatalogChanged, match=re.escape(name)):
        CatalogWriter(path, [(name, sql + " "), *later])
    tamper(path, "UPDATE migrations SET checksum = 'forged'")
    with pytest.raises(CatalogChanged, match="forged"):
        CatalogWriter(path)
    with pytest.raises(CatalogChanged, match="forged"):
        CatalogReader(path).find_log("a")


def test_a_hole_in_the_history_is_refused(path: Path) -> None:
    """A recorded migration whose predecessor is missing is not something to repair."""
    create(path, [*migration_files(), NEXT])
    tamper(path, f"DELETE FROM migrations WHERE name = '{migration_files()[0][0]}'")
    with pytest.raises(CatalogChanged, match="lacks migration"):
        CatalogWriter(path, [*migration_files(), NEXT])


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    """A SQLite file that is not a catalog is left as it was."""
    tamper(path, "CREATE TABLE theirs (a INTEGER)")
    with pytest.raises(CatalogChanged, match="another program"):
        CatalogWriter(path)
    assert tables(path) == {"theirs"}


def test_a_refused_catalog_is_not_changed(path: Path) -> None:
    """A refusal applies nothing, also not the migrations that would come first."""
    create(path, [NEXT])
    with pytest.raises(CatalogTooNew):
        CatalogWriter(path)
    assert "logs" not in tables(path)


def test_a_reader_waits_for_pending_migrations(path: Path) -> None:
    """Until the engine has migrated, readers see no catalog; then the same reader works."""
    later = [*migration_files(), NEXT]
    create(path)
    reader = CatalogReader(path, later)
    with pytest.raises(CatalogMissing, match=r"900_next\.sql is not applied yet"):
        reader.count_logs()
    create(path, later)
    assert reader.count_logs() == 0
    reader.close()


def test_a_catalog_of_the_first_version_is_brought_up_to_date(path: Path) -> None:
    """It keeps its logs and takes watch sessions; `find_damage` has nothing to say."""
    first = migration_files()[0]
    old = CatalogWriter(path, [first])
    old.commit([CreateLog(1, 0, "a", "topic", 1, "{}", 5), SetMeta("instance", "77")])
    old.close()
    writer = CatalogWriter(path)
    assert writer.migrated == [name for name, _ in migration_files()[1:]]
    log = writer.find_log("a")
    assert log is not None and (log.id, log.row, log.created_ts) == (1, 0, 5)
    assert writer.meta("instance") == "77" and writer.count_watches() == 0
    record = WatchRecord("w", "", "{}", "{}", "[]", 0, WATCH_IDLE, 5, 5)
    writer.commit([AddWatch(record)])
    assert writer.find_watch("w") == record
    assert writer.find_damage() == []
    writer.close()


def plain(sql: object) -> str:
    """SQL without comments and layout."""
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", str(sql))).replace("IF NOT EXISTS ", "")


def described(connection: apsw.Connection) -> list[tuple[str, str, str, str]]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return sorted((str(kind), str(name), str(table), plain(sql)) for kind, name, table, sql in rows)


def test_schema_file_is_what_the_migrations_make(path: Path) -> None:
    """schema/catalog.sql and migrations/*.sql describe the same database."""
    create(path)
    migrated, written = apsw.Connection(str(path)), apsw.Connection(":memory:")
    written.execute((ROOT / "schema" / "catalog.sql").read_text())
    assert described(written) == described(migrated)
    migrated.close()


def test_keys_of_an_old_catalog_get_the_end_of_their_window(path: Path) -> None:
    """The second migration: by the configuration of their log, as far as a time can go."""
    create(path, list(migration_files()[:1]))
    windows = {1: 500, 2: 0, 3: 2**64 - 1}
    for log_id, window in windows.items():
        config = f'{{"idempotency_window_ms":{window}}}'
        tamper(
            path,
            f"INSERT INTO logs (id, row, name, kind, epoch, config, created_ts) "
            f"VALUES ({log_id}, {log_id}, 't{log_id}', 'topic', 1, '{config}', 1);"
            f"INSERT INTO idempotency VALUES ({log_id}, 'k', 1, 1, 1700000000000)",
        )
    create(path)
    connection = apsw.Connection(str(path))
    found = [
        row[0] for row in connection.execute("SELECT expires_ts FROM idempotency ORDER BY log_id")
    ]
    connection.close()
    assert found[:2] == [1_700_000_000_500, 1_700_000_000_000]
    assert int(str(found[2])) > 10**18

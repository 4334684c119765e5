"""Connections are set up as promised, and broken files are refused in the product's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from topicsd.model.errors import TopicsError
from topicsd.storage.catalog import (
    CatalogError,
    CatalogMissing,
    CatalogReader,
    CatalogWriter,
    CreateLog,
)
from topicsd.storage.catalog.connection import (
    BUSY_TIMEOUT_MS,
    JOURNAL_BYTES_MAX,
    open_reader,
    open_writer,
)

NewLog = Callable[..., CreateLog]


def pragma(connection: apsw.Connection, name: str) -> object:
    return connection.pragma(name)


def test_the_writer_has_its_pragmas(path: Path) -> None:
    """WAL journal, full sync, foreign keys, patience, a bounded journal."""
    connection = open_writer(str(path))
    names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "journal_size_limit")
    assert [pragma(connection, name) for name in names] == [
        "wal", 2, 1, BUSY_TIMEOUT_MS, JOURNAL_BYTES_MAX,
    ]  # fmt: skip
    connection.close()


def test_the_reader_cannot_write(path: Path, writer: CatalogWriter) -> None:
    """A write through a reader fails."""
    connection = open_reader(str(path))
    with pytest.raises(apsw.ReadOnlyError):
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    connection.close()


def test_a_reader_creates_nothing(tmp_path: Path) -> None:
    """Looking for a catalog that is not there leaves the directory empty."""
    reader = CatalogReader(tmp_path / "catalog.sqlite")
    with pytest.raises(CatalogMissing, match="there is no catalog"):
        reader.find_log("a")
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_directory_is_named(tmp_path: Path) -> None:
    """The message says which file cannot be opened."""
    path = tmp_path / "nowhere" / "catalog.sqlite"
    with pytest.raises(CatalogError, match=r"nowhere/catalog\.sqlite cannot be opened"):
        CatalogWriter(path)


def test_a_file_that_is_not_a_database_is_corrupt(path: Path) -> None:
    """Garbage is reported as corruption with the name of the file, and is left alone."""
    path.write_bytes(b"not a database" * 100)
    for opened in (lambda: CatalogWriter(path), lambda: CatalogReader(path).count_logs()):
        with pytest.raises(TopicsError) as caught:
            opened()
        assert caught.value.code == "storage_corrupt"
        assert caught.value.detail == {"file": str(path), "position": 0}
    assert path.read_bytes() == b"not a database" * 100


def test_a_full_database_answers_storage_full(path: Path, new_log: NewLog) -> None:
    """Running out of space is an expected refusal, and nothing of the commit stays."""
    writer = CatalogWriter(path)
    pages = writer._writing.pragma("page_count")
    writer._writing.pragma("max_page_count", pages)
    with pytest.raises(TopicsError) as caught:
        writer.commit([new_log(n, f"t{n}") for n in range(1, 1000)])
    assert caught.value.code == "storage_full"
    assert writer.count_logs() == 0
    writer._writing.pragma("max_page_count", pages + 1000)
    writer.commit([new_log(1, "a")])
    assert writer.count_logs() == 1
    writer.close()


def test_damaged_pages_are_found(path: Path, new_log: NewLog) -> None:
    """A byte flipped inside the file is reported, never served as an answer."""
    writer = CatalogWriter(path)
    writer.commit([new_log(n, f"t{n}") for n in range(1, 2000)])
    writer.close()
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(data)
    reader = CatalogReader(path)
    with pytest.raises(TopicsError) as caught:
        list(reader.load_states())
    assert caught.value.code == "storage_corrupt"
    reader.close()


def test_find_damage_reports_orphans(path: Path, writer: CatalogWriter, new_log: NewLog) -> None:
    """Rows whose log is missing are damage."""
    shell = apsw.Connection(str(path))
    shell.pragma("foreign_keys", False)
    shell.execute("INSERT INTO gaps VALUES (99, 1, 2, 'crash', 0)")
    assert writer.find_damage() == ["a row of gaps refers to a missing row of logs"]
    shell.execute("DELETE FROM gaps")
    shell.close()
    assert writer.find_damage() == []

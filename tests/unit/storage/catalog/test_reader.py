"""Readers beside a writer: other connections, other threads, other processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from topicsd.storage.catalog import (
    CatalogMissing,
    CatalogReader,
    CatalogWriter,
    CreateLog,
    LogState,
    SaveState,
    SetMeta,
)

NewLog = Callable[..., CreateLog]


def test_a_reader_may_be_made_before_the_catalog(path: Path, reader: CatalogReader) -> None:
    """The same reader raises CatalogMissing until the file exists, and then answers."""
    with pytest.raises(CatalogMissing):
        reader.list_logs("", "", 10)
    writer = CatalogWriter(path)
    assert reader.list_logs("", "", 10) == []
    writer.close()


def test_an_empty_file_is_a_missing_catalog(path: Path, reader: CatalogReader) -> None:
    """The moment between creation and migration looks like no catalog."""
    path.touch()
    with pytest.raises(CatalogMissing, match="not ready"):
        reader.count_logs()


def test_a_commit_is_visible_to_an_open_reader(
    writer: CatalogWriter, reader: CatalogReader, new_log: NewLog
) -> None:
    """No reopening, no waiting."""
    assert reader.find_log("a") is None
    writer.commit([new_log(1, "a")])
    assert reader.find_log("a") == writer.find_log("a")


def test_a_reader_sees_nothing_of_a_transaction_in_progress(
    writer: CatalogWriter, reader: CatalogReader, new_log: NewLog
) -> None:
    """In the middle of a commit everybody else reads the state before it, without waiting."""
    writer.commit([new_log(1, "a")])
    seen: list[list[str]] = []

    def states() -> list[LogState]:
        """Stand in for a checkpoint that is being read by SQLite inside the transaction."""
        for side in (reader, writer):
            seen.append([log.name for log in side.list_logs("", "", 10)])
        return [LogState(1, head_seq=5)]

    class Late(list[LogState]):
        def __iter__(self) -> Iterator[LogState]:
            return iter(states())

    writer.commit([new_log(2, "b"), SaveState(Late())])
    assert seen == [["a"], ["a"]]
    assert [log.name for log in reader.list_logs("", "", 10)] == ["a", "b"]


def test_an_open_reader_never_blocks_the_writer(
    writer: CatalogWriter, reader: CatalogReader, new_log: NewLog
) -> None:
    """Commits go on while a reader is in the middle of a stream, which keeps its snapshot."""
    writer.commit([new_log(n, f"t{n}") for n in range(1, 501)])
    stream = reader.load_states()
    assert next(stream)[0] == 1
    for n in range(501, 521):
        writer.commit([new_log(n, f"t{n}")])
    assert len(list(stream)) == 499
    assert reader.count_logs() == 520


def test_questions_and_commits_from_two_threads(writer: CatalogWriter, new_log: NewLog) -> None:
    """The writer answers one thread while another commits, always from a whole commit."""
    done = threading.Event()
    failures: list[BaseException] = []

    def commit() -> None:
        try:
            for n in range(1, 201):
                writer.commit([new_log(n, f"t{n}"), SetMeta("count", str(n))])
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=commit)
    thread.start()
    last = 0
    while not done.is_set():
        marked, count = int(writer.meta("count") or 0), writer.count_logs()
        assert last <= marked <= count
        last = marked
    thread.join()
    assert failures == []
    assert writer.count_logs() == 200


def test_a_reader_survives_a_fork(
    path: Path, writer: CatalogWriter, reader: CatalogReader, new_log: NewLog
) -> None:
    """A child opens its own connection; the parent's goes on working."""
    writer.commit([new_log(1, "a")])
    assert reader.count_logs() == 1
    child = os.fork()
    if child == 0:
        os._exit(0 if reader.find_log("a") is not None and len(reader._inherited) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.commit([new_log(2, "b")])
    assert reader.count_logs() == 2


def test_a_reader_opens_a_cleanly_closed_catalog(
    path: Path, reader: CatalogReader, new_log: NewLog
) -> None:
    """After a clean stop the main file alone holds everything."""
    writer = CatalogWriter(path)
    writer.commit([new_log(1, "a")])
    writer.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert reader.count_logs() == 1


def test_closing_the_writer_beside_a_reader_empties_the_journal(
    path: Path, reader: CatalogReader, new_log: NewLog
) -> None:
    """A copy of the main file is complete also when workers are still connected."""
    writer = CatalogWriter(path)
    writer.commit([new_log(1, "a")])
    assert reader.count_logs() == 1
    writer.close()
    assert path.with_name(path.name + "-wal").stat().st_size == 0
    assert reader.count_logs() == 1


def test_closing_the_writer_does_not_wait_for_a_busy_reader(
    path: Path, reader: CatalogReader, new_log: NewLog
) -> None:
    """A reader in mid-stream delays nothing and loses nothing."""
    writer = CatalogWriter(path)
    writer.commit([new_log(n, f"t{n}") for n in range(1, 501)])
    stream = reader.load_states()
    next(stream)
    writer.commit([new_log(501, "last")])
    writer.close()
    assert len(list(stream)) == 499
    assert reader.count_logs() == 501


def test_a_killed_writer_leaves_its_commits(path: Path, new_log: NewLog) -> None:
    """A process that dies without closing loses nothing committed and nothing half done."""
    child = os.fork()
    if child == 0:
        doomed = CatalogWriter(path)
        doomed.commit([new_log(1, "a")])
        doomed._writing.execute("BEGIN IMMEDIATE")
        doomed._writing.execute("DELETE FROM logs")
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    reader = CatalogReader(path)
    assert reader.count_logs() == 1
    writer = CatalogWriter(path)
    assert writer.find_log("a") is not None
    assert writer.find_damage() == []
    reader.close()
    writer.close()


def test_closing_twice_and_unopened_is_harmless(path: Path) -> None:
    """A reader that never opened closes too."""
    reader = CatalogReader(path)
    reader.close()
    reader.close()

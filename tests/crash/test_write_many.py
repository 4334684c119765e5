"""A write to several topics survives a crash as a whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import until
from topicsd.check import check_data_dir
from topicsd.engine import Engine
from topicsd.model.clock import SystemClock
from topicsd.model.commands import (
    Append,
    Appended,
    Command,
    DeleteTopic,
    Failed,
    PutTopic,
    Reply,
    WriteMany,
    Written,
)
from topicsd.model.record import pack_record
from topicsd.model.settings import Settings
from topicsd.model.topic import TopicConfig
from topicsd.reader import DiffQuery, Reader
from topicsd.storage.fs import Files

DIED = 9
OLD = ("fsync", "disk", "memory")
NEW = ("new1", "new2", "new3")
CHANGING = ("write_at", "allocate", "truncate", "sync", "make_directory", "rename", "remove")


class DoomedFiles(Files):
    """Ends the process, or reports a full disk, at a chosen call of the main thread."""

    def __init__(self, error: int = 0) -> None:
        self.calls_left = 0
        self.calls = 0
        self._error = error

    def step(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.calls += 1
        if self.calls_left:
            self.calls_left -= 1
            if not self.calls_left:
                if self._error:
                    raise OSError(self._error, os.strerror(self._error))
                os._exit(DIED)


def _doomed(name: str) -> Callable[..., Any]:
    real = getattr(Files, name)

    def call(self: DoomedFiles, *arguments: Any, **options: Any) -> Any:
        self.step()
        return real(self, *arguments, **options)

    return call


for _name in CHANGING:
    setattr(DoomedFiles, _name, _doomed(_name))


class Rig:
    """An engine in this process."""

    def __init__(self, home: Path, files: Files | None = None, **settings: Any) -> None:
        self.settings = Settings(
            data_dir=home / "data", ephemeral_dir=home / "memory", wal_shards=3, **settings
        )
        self._rung = threading.Event()
        self.files = files or Files()
        self.engine = Engine(self.settings, self.files, SystemClock(), self._rung.set)
        self.summary = self.engine.recover()

    def run(self, *commands: Command) -> list[Reply]:
        done = dict(self.engine.apply(list(enumerate(commands))))
        while len(done) < len(commands):
            assert self._rung.wait(10)
            self._rung.clear()
            done.update(self.engine.release())
        return [done[number] for number in range(len(commands))]

    def payloads(self, topic: str) -> bytes | None:
        """Everything a read returns, or None when there is no such topic."""
        reader = Reader(self.settings, Files(), SystemClock())
        view = reader.find_topic(topic)
        if view is None:
            return None
        page = reader.diff(view, DiffQuery(0, 1000, (), False, True, 1 << 20))
        assert page is not None and page.tombstone is None, page
        return bytes(page.records)

    def close(self) -> None:
        self.engine.close()
        assert check_data_dir(self.settings.data_dir, lambda line: None) == []


def append(topic: str, payload: bytes = b'"x"', **options: Any) -> Append:
    form, row = pack_record(payload, None, None, None)
    return Append(topic, 1, form, row, len(payload), **options)


def write(*extra: Append) -> WriteMany:
    """One record for every topic, old and new, with a key each."""
    names = (*OLD, *NEW)
    parts = [append(name, b'"many"', idempotency_key="k") for name in names]
    return WriteMany([*parts, *extra])


def prepare(home: Path) -> None:
    rig = Rig(home)
    for name in OLD:
        config = TopicConfig(durability=name, durable=name == "fsync")  # type: ignore[arg-type]
        rig.run(PutTopic(name, config, False), append(name))
    rig.close()


def in_child(task: Callable[[], None]) -> int:
    """Run a task in a forked process; returns its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            task()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_crash_at_any_call_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Killed before each file system call in turn, every topic has its record or none has."""
    outcomes: list[bool] = []
    code, call = DIED, 0
    while code == DIED:
        call += 1
        home = tmp_path / str(call)
        prepare(home)

        def victim(home: Path = home, call: int = call) -> None:
            files = DoomedFiles()
            rig = Rig(home, files)
            files.calls_left = call
            rig.run(write())

        code = in_child(victim)
        assert code in (0, DIED)
        rig = Rig(home)
        found = {name: b'"many"' in (rig.payloads(name) or b"") for name in (*OLD, *NEW)}
        assert len(set(found.values())) == 1, (call, found)
        outcomes.append(found["fsync"])
        if not found["fsync"]:
            assert [rig.payloads(name) for name in NEW] == [None] * len(NEW)
        retried = rig.run(write())[0]
        assert isinstance(retried, Written)
        assert {part.deduped for part in retried.parts} == {found["fsync"]}
        assert all(rig.payloads(name).count(b'"many"') == 1 for name in (*OLD, *NEW))  # type: ignore[union-attr]
        rig.close()
    assert outcomes[0] is False
    assert outcomes[-2:] == [True, True]


def test_recovery_brings_back_topics_the_catalog_never_saw(tmp_path: Path) -> None:
    """Records of created topics are in the frame, and so are the topics; twice equals once."""
    prepare(tmp_path)

    def victim() -> None:
        rig = Rig(tmp_path)
        rig.engine.clerk._catalog.commit = lambda changes: os._exit(DIED)  # type: ignore[method-assign]
        rig.run(write(append("later", config=TopicConfig(cap_records=7))))

    assert in_child(victim) == DIED
    rig = Rig(tmp_path)
    assert rig.payloads("new2") is not None
    later = rig.engine.registry.find("later")
    assert later is not None and later.config.cap_records == 7
    assert rig.engine.registry.count == len(OLD) + len(NEW) + 1
    created, deleted = rig.run(append("fresh"), DeleteTopic("new1", False))
    assert isinstance(created, Appended) and created.created
    assert not isinstance(deleted, Failed)
    rig.close()
    again = Rig(tmp_path)
    assert again.payloads("new1") is None
    assert again.payloads("new2") is not None
    again.close()


def test_a_deleted_topic_is_not_brought_back(tmp_path: Path) -> None:
    """A frame that created a topic does not create it again once it was deleted."""

    def victim() -> None:
        rig = Rig(tmp_path)
        rig.run(WriteMany([append("a"), append("b")]))
        rig.run(DeleteTopic("a", False))
        os._exit(DIED)

    assert in_child(victim) == DIED
    rig = Rig(tmp_path)
    assert rig.payloads("a") is None
    assert rig.payloads("b") is not None
    rig.close()


def test_an_append_to_a_topic_being_created_waits_for_its_creation(tmp_path: Path) -> None:
    """No append is acknowledged before a crash would keep its topic."""
    rig = Rig(tmp_path)
    gate = threading.Event()
    commit = rig.engine.catalog.commit
    rig.engine.clerk._catalog.commit = lambda changes: (gate.wait(10), commit(changes))[1]  # type: ignore[method-assign]
    assert rig.engine.apply([(1, append("t"))]) == []
    assert rig.engine.apply([(2, append("t")), (3, WriteMany([append("t")]))]) == []
    assert rig.engine.release() == []
    gate.set()
    rig.engine.clerk.wait(3)
    shards = rig.engine.wal.shards
    until(lambda: all(shard.synced_lsn == shard.written_lsn for shard in shards))
    assert sorted(ticket for ticket, _ in rig.engine.release()) == [1, 2, 3]
    rig.close()


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
def test_a_full_disk_at_any_call_leaves_nothing(tmp_path: Path, durability: str) -> None:
    """Out of space: a clean refusal, no record, no topic, and the next write succeeds."""
    config = TopicConfig(durability=durability)  # type: ignore[arg-type]
    files = DoomedFiles(errno.ENOSPC)
    rig = Rig(tmp_path, files)
    rig.run(append("old"))
    many = WriteMany([append("old", b'"many"'), append("new", b'"many"', config=config)])
    total, refused = rig.engine.total_bytes, 0
    for call in (1, 2):
        files.calls_left = call
        reply = rig.run(many)[0]
        files.calls_left = 0
        if isinstance(reply, Written):
            break
        refused += 1
        assert isinstance(reply, Failed) and reply.code == "storage_full"
        assert (rig.payloads("new"), rig.engine.registry.find("new")) == (None, None)
        assert b"many" not in (rig.payloads("old") or b"")
        assert (rig.engine.total_bytes, rig.engine.registry.count) == (total, 1)
    assert refused
    assert isinstance(rig.run(many)[0], Written)
    rig.close()


def test_a_refused_part_takes_everything_back(tmp_path: Path) -> None:
    """A full topic at the end: no seq, no topic, no key, no byte is left of the others."""
    rig = Rig(tmp_path)
    full = TopicConfig(cap_records=1, discard="reject")
    rig.run(append("full", config=full), append("old"))
    before = (rig.engine.total_bytes, rig.engine.registry.count)
    many = WriteMany([append("old", idempotency_key="k"), append("new"), append("full")])
    reply = rig.run(append("old"), many, append("old"))[1]
    assert isinstance(reply, Failed) and reply.code == "topic_full"
    assert reply.detail is not None and (reply.detail["topic"], reply.detail["write"]) == (
        "full",
        2,
    )
    assert rig.engine.registry.find("new") is None
    assert (rig.engine.total_bytes, rig.engine.registry.count) == (before[0] + 6, before[1])
    retried = rig.run(WriteMany([append("old", idempotency_key="k"), append("new")]))[0]
    assert isinstance(retried, Written)
    assert [(part.first_seq, part.created, part.deduped) for part in retried.parts] == [
        (4, False, False),
        (1, True, False),
    ]
    rig.close()

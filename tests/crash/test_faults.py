"""Every change of a file failing in turn, with EIO and with ENOSPC.

A fixed workload runs over a file system whose n-th change fails. Then the engine is
abandoned, or goes on if it took the failure as a refusal, and the directory is recovered
with a sound file system. Whatever was acknowledged must be there, whatever was refused must
not, and nothing else may appear.
"""

from __future__ import annotations

import errno
from itertools import count
from pathlib import Path

import pytest

from tests.faults.driver import Driver, append, fast_directory, small_settings
from tests.faults.dump import dump
from tests.faults.faulty import FaultyFiles
from tests.faults.workload import Ledger, run_workload
from topicsd.model.commands import Append, Appended, Failed, PutTopic, TopicPut
from topicsd.model.topic import TopicConfig


def _run(home: Path, files: FaultyFiles) -> Ledger:
    """Run the workload until it ends or a change fails for good."""
    ledger = Ledger()
    driver = None
    try:
        driver = Driver(small_settings(home), files)
        run_workload(driver, ledger)
        driver.stop()
    except OSError:
        assert files.failed is not None, "failed without cause"
    if driver is not None:
        driver.abandon()
    return ledger


def _recover_and_compare(home: Path, ledger: Ledger) -> None:
    settings = small_settings(home)
    driver = Driver(settings)
    ledger.compare(dump(settings))
    ledger.append_more(driver)
    ledger.compare(dump(settings))
    driver.close()


def _survive(files: FaultyFiles) -> None:
    with fast_directory() as home:
        ledger = _run(home, files)
        try:
            _recover_and_compare(home, ledger)
        except BaseException as problem:
            problem.add_note(f"after change {len(files.calls)} failed: {files.failed}")
            raise


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_no_failing_change_loses_or_invents_a_record(error: int) -> None:
    """Acknowledged records survive, refused ones stay away, seqs are never reused."""
    for number in count(1):
        files = FaultyFiles(number, error)
        _survive(files)
        if files.failed is None:
            break
    assert number > 150, "the workload does too little"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_no_half_written_bytes_lose_or_invent_a_record(error: int) -> None:
    """The same for every write that fails after putting half of its bytes into the file."""
    whole = FaultyFiles()
    _survive(whole)
    for number, name in enumerate(whole.calls, 1):
        if name == "write_at":
            _survive(FaultyFiles(number, error, torn=True))


def test_a_full_disk_refuses_a_write_and_nothing_else() -> None:
    """No space for blocks, segment files or WAL files: `storage_full`, and on it goes."""
    with fast_directory() as home:
        settings = small_settings(home)
        files = FaultyFiles()
        driver = Driver(settings, files)
        driver.append("packed", b"1")
        driver.append("large", *[b"2"] * 299)
        driver.checkpoint()
        before = dump(settings)
        files.refuse("allocate")
        for command in _hungry():
            assert driver.refuse(command).code == "storage_full"
        assert dump(settings)["packed"] == before["packed"]
        assert dump(settings)["large"] == before["large"]
        files.allow()
        replies = driver.run(*_hungry())
        assert [type(reply) for reply in replies] == [Appended] * 3
        driver.checkpoint()
        driver.append("another", b"3")
        after = dump(settings)
        assert len(after["packed"].records) == 31 and len(after["large"].records) == 339
        driver.close()
        assert dump(settings) == after


def _hungry() -> list[Append]:
    """Writes that need a larger block, a new segment, and a first WAL file."""
    return [
        append("packed", *[b"1"] * 30),
        append("large", *[b"2"] * 40),
        append("fresh", b"3"),
    ]


def test_a_full_disk_takes_back_both_writes_of_one_key() -> None:
    """A retry in the same batch is not told that the refused first write happened."""
    with fast_directory() as home:
        files = FaultyFiles()
        driver = Driver(small_settings(home), files)
        driver.put("topic", durability="fsync")
        driver.checkpoint()
        files.refuse("create")
        keyed = append("topic", b"1", idempotency_key="k")
        assert [reply.code for reply in driver.run(keyed, keyed) if isinstance(reply, Failed)] == [
            "storage_full",
            "storage_full",
        ]
        files.allow()
        assert driver.append("topic", b"2", idempotency_key="k").first_seq == 1
        driver.close()


def test_a_full_disk_keeps_a_configuration_that_came_with_the_write() -> None:
    """A refused append does not undo a change of the topic in the same batch."""
    with fast_directory() as home:
        settings = small_settings(home)
        files = FaultyFiles()
        driver = Driver(settings, files)
        driver.put("topic")
        driver.append("topic", b"0")
        driver.checkpoint()
        files.refuse("sync_directory")
        config = TopicConfig(cap_records=1)
        refused, put = driver.run(append("topic", b"1"), PutTopic("topic", config, True))
        files.allow()
        assert isinstance(refused, Failed) and put == TopicPut(False, config)
        driver.append("topic", b"2")
        assert dump(settings)["topic"].records == {2: b"2"}
        driver.close()


def test_a_full_disk_refuses_a_move_between_disk_and_memory() -> None:
    """A change of durability that finds no space changes nothing."""
    with fast_directory() as home:
        settings = small_settings(home)
        files = FaultyFiles()
        driver = Driver(settings, files)
        driver.append("topic", *[b"1"] * 400)
        before = dump(settings)
        files.refuse("allocate")
        ephemeral = PutTopic("topic", TopicConfig(durability="ephemeral"), True)
        assert driver.refuse(ephemeral).code == "storage_full"
        files.allow()
        assert dump(settings) == before
        driver.append("topic", b"2")
        driver.close()


def test_a_full_disk_refuses_a_topic_that_needs_a_larger_board() -> None:
    """Creating a topic finds no space for its row: `storage_full`."""
    with fast_directory() as home:
        files = FaultyFiles()
        driver = Driver(small_settings(home), files)
        driver.engine.registry._next_row = driver.engine.board._rows_mapped
        files.refuse("allocate")
        put = PutTopic("topic", TopicConfig(), True)
        assert driver.refuse(put).code == "storage_full"
        files.allow()
        assert driver.run(put) == [TopicPut(True, TopicConfig())]
        driver.close()

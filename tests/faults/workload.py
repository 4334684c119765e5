"""A small day in the life of an engine, and a ledger of what it promised.

The workload touches every kind of change: topics of the four durability classes come,
change and go; appends with and without keys; batches that move a log from the smallest
block through larger ones to files of its own and roll a segment; checkpoints between them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from tests.faults.driver import Driver, append
from tests.faults.dump import Seen
from topicsd.model.commands import (
    Append,
    Appended,
    Command,
    DeleteTopic,
    Failed,
    PutTopic,
    Reply,
    TopicDeleted,
)
from topicsd.model.topic import TopicConfig

Durability = Literal["fsync", "disk", "memory", "ephemeral"]
CLASSES: tuple[Durability, ...] = ("fsync", "disk", "memory", "ephemeral")


class Write(NamedTuple):
    """One append of the workload."""

    topic: str
    payloads: tuple[bytes, ...]
    key: str | None


class Ledger:
    """What was acknowledged, refused, or left open when the engine died."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[int, bytes]] = {}
        self._open: set[bytes] = set()
        self._unsure: set[str] = set()
        self._refused: set[bytes] = set()
        self._serial = 0

    def write(self, topic: str, count: int, size: int = 20, key: str | None = None) -> Write:
        """A write of unmistakable payloads."""
        made = []
        for _ in range(count):
            self._serial += 1
            made.append(msgspec.json.encode(f"{self._serial:06d}".ljust(size, "%")))
        return Write(topic, tuple(made), key)

    def run(self, driver: Driver, *steps: Write | Command) -> list[Reply]:
        """Run a batch and note what came of it; on an exception all of it is open."""
        try:
            replies = driver.run(*map(_command, steps))
        except BaseException:
            for step in steps:
                self._leave_open(step)
            raise
        for step, reply in zip(steps, replies, strict=True):
            self._note(step, reply)
        return replies

    def compare(self, seen: dict[str, Seen]) -> None:
        """Insist that a recovered directory holds what it must, and nothing else."""
        for topic, kept in self.kept.items():
            if topic in self._unsure and topic not in seen:
                continue
            self._compare_topic(topic, kept, seen[topic])
        for topic, found in seen.items():
            promised = set(self.kept.get(topic, {}).values())
            invented = set(found.records.values()) - promised - self._open
            assert not invented, f"{topic}: {sorted(invented)} came from nowhere"

    def append_more(self, driver: Driver) -> None:
        """Write to every topic that should be there, so that a reused seq shows."""
        for topic in [name for name in self.kept if name not in self._unsure]:
            head = max(self.kept[topic], default=0)
            (reply,) = self.run(driver, self.write(topic, 2))
            assert isinstance(reply, Appended) and reply.first_seq > head, (topic, reply)

    def _compare_topic(self, topic: str, kept: dict[int, bytes], found: Seen) -> None:
        assert found.head_seq >= max(kept, default=0), f"{topic}: seqs can be reused"
        if topic.startswith("ephemeral"):
            return
        missing = {seq: data for seq, data in kept.items() if found.records.get(seq) != data}
        assert not missing, f"{topic}: {missing} is not there"
        assert not self._refused & set(found.records.values()), f"{topic}: refused, yet there"
        assert found.lost == [], f"{topic}: reports a loss"

    def _leave_open(self, step: Write | Command) -> None:
        if isinstance(step, Write):
            self._open.update(step.payloads)
        elif isinstance(step, DeleteTopic):
            self._unsure.add(step.topic)

    def _note(self, step: Write | Command, reply: Reply) -> None:
        if isinstance(step, Write):
            self._note_write(step, reply)
        elif isinstance(reply, TopicDeleted) and isinstance(step, DeleteTopic):
            self.kept.pop(step.topic, None)
        elif isinstance(step, PutTopic) and not isinstance(reply, Failed):
            self.kept.setdefault(step.topic, {})

    def _note_write(self, write: Write, reply: Reply) -> None:
        if isinstance(reply, Failed):
            assert reply.code == "storage_full", reply
            self._refused.update(write.payloads)
        elif isinstance(reply, Appended) and not reply.deduped:
            kept = self.kept.setdefault(write.topic, {})
            assert reply.first_seq > max(kept, default=0), "a seq was handed out twice"
            kept.update(enumerate(write.payloads, reply.first_seq))
            # Refused at first, and then sent again.
            self._refused.difference_update(write.payloads)


def _command(step: Write | Command) -> Command:
    if not isinstance(step, Write):
        return step
    made: Append = append(step.topic, *step.payloads, idempotency_key=step.key)
    return made


def run_workload(driver: Driver, ledger: Ledger) -> None:
    """The whole day, ending before the clean stop."""
    puts = [PutTopic(name, TopicConfig(durability=name), True) for name in CLASSES]
    ledger.run(driver, *puts)
    ledger.run(driver, *[ledger.write(name, 2) for name in CLASSES])
    # The same key twice in one batch, and once more in the next.
    keyed = ledger.write("fsync", 1, key="once")
    ledger.run(driver, keyed, keyed._replace(payloads=(b"1",)))
    ledger.run(driver, keyed)
    # 4 KiB, 16 KiB and 64 KiB blocks, then files.
    for count in (10, 40, 60, 300):
        ledger.run(driver, ledger.write("disk", count, 100), ledger.write("memory", 1))
    driver.checkpoint()
    ledger.run(driver, ledger.write("disk", 250), ledger.write("ephemeral", 1))
    ledger.run(driver, ledger.write("new", 1, key="first"), ledger.write("fsync", 30, 200))
    ledger.run(driver, PutTopic("memory", TopicConfig(durability="disk"), True))
    driver.checkpoint()
    ledger.run(driver, DeleteTopic("new", False))
    ledger.run(driver, ledger.write("new", 1), DeleteTopic("memory", False))
    ledger.run(driver, ledger.write("fsync", 1), ledger.write("disk", 60))

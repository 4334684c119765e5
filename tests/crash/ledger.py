"""What a parent knows of its victims' topics: begun, answered, and seen so far.

Within one incarnation of a topic, what is there must be exactly the begun writes in order,
up to some point behind the last answered one: killing a process tears nothing out of the
middle. A deletion that was begun but not answered may have happened or not.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.crash.victim import COMING, KEYED, STAYING, Step, Write, plan_batch
from topicsd.reader import DiffQuery, Reader

ANSWERED_RETRIES = 3


class Answer(NamedTuple):
    first_seq: int
    last_seq: int


class Begun(NamedTuple):
    """A command that a victim was about to apply, and its answer if one came."""

    seed: int
    batch: int
    slot: int
    step: Step
    answer: Answer | None


class Seen(NamedTuple):
    """The records of one incarnation: as they were read, and their data in seq order."""

    wire: bytes
    data: list[bytes]


NOTHING = Seen(b"", [])


class Incarnation(NamedTuple):
    """What a topic may hold: what was seen before, then some of these writes."""

    before: Seen
    writes: list[Begun]


class Retry(NamedTuple):
    """A keyed write to send again, and where its records are, if they are."""

    write: Begun
    answer: Answer | None


class Round:
    """One life of a victim."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps: dict[tuple[int, int], Step] = {}
        self.answers: dict[tuple[int, int], Answer] = {}

    def note(self, line: list[str]) -> None:
        """Take one report."""
        kind, batch, *rest = line
        if kind == "b":
            steps = plan_batch(self.seed, int(batch))
            self.steps |= {(int(batch), slot): step for slot, step in enumerate(steps)}
            return
        assert kind in ("a", "d"), f"refused in round {self.seed}: {line}"
        slot, first, last, deduped = map(int, [*rest, "0", "0", "0"][:4])
        assert not deduped, f"a first write was taken for a retry: {line}"
        self.answers[int(batch), slot] = Answer(first, last)

    def begun(self, topic: str) -> list[Begun]:
        """The commands for one topic, in order."""
        return [
            Begun(self.seed, *place, step, self.answers.get(place))
            for place, step in self.steps.items()
            if step.topic == topic
        ]


class Ledger:
    """All topics over all rounds."""

    def __init__(self) -> None:
        self.answered = 0
        self._round = Round(0)
        self._seen: dict[str, Seen] = {}
        self._ephemeral_heads: dict[str, int] = {}
        self._retries: list[Retry] = []
        # Retried writes that were appended only now: they come before the next round's.
        self._late: list[Begun] = []

    def begin(self, seed: int) -> Round:
        self._round = Round(seed)
        return self._round

    def forget_ephemeral_heads(self) -> None:
        """A killed recovery keeps only what the last checkpoint knew of them (DESIGN 2.2)."""
        self._ephemeral_heads.clear()

    def verify(self, reader: Reader) -> None:
        """Compare everything a reader sees with everything that is known."""
        self.answered += len(self._round.answers)
        self._retries = []
        for topic in (*STAYING, *KEYED, *COMING):
            late = [write for write in self._late if write.step.topic == topic]
            begun = late + self._round.begun(topic)
            if topic.startswith("ephemeral"):
                self._verify_ephemeral(reader, topic, begun)
            else:
                self._verify_topic(topic, _read(reader, topic), begun)
        listed = {each.topic for each in reader.list_topics("", "", 100, ())}
        assert listed == {*self._seen, *self._ephemeral_heads}
        self._round, self._late = Round(0), []

    def _verify_ephemeral(self, reader: Reader, topic: str, begun: list[Begun]) -> None:
        """Its records are gone, and its seqs were not given out twice."""
        answers = [each.answer for each in begun if each.answer is not None]
        floor = self._ephemeral_heads.pop(topic, 0)
        for answer in answers:
            assert answer.first_seq > floor, f"{topic}: seq {answer.first_seq} was used before"
            floor = answer.last_seq
        view = reader.find_topic(topic)
        if view is None:
            assert not answers, f"{topic} is lost"
            return
        state = reader.state(view)
        assert state is not None
        assert state.count == 0
        self._ephemeral_heads[topic] = state.head_seq

    def _verify_topic(self, topic: str, wire: bytes | None, begun: list[Begun]) -> None:
        possible = _incarnations(self._seen.pop(topic, NOTHING), begun)
        first = possible[0]
        if wire is None:
            # Gone by a deletion, answered or not, or never created.
            must_exist = bool(first.before.data) or any(each.answer for each in first.writes)
            assert len(possible) > 1 or not must_exist, f"{topic} is lost"
            return
        for incarnation in possible:
            added = _added(wire, incarnation.before)
            kept = None if added is None else _whole_writes(added, incarnation.writes)
            if added is not None and kept is not None:
                _check_answers(topic, incarnation, kept)
                self._plan_retries(incarnation, kept)
                self._seen[topic] = Seen(wire, incarnation.before.data + added)
                return
        raise AssertionError(f"{topic} holds something else than what was written to it")

    def _plan_retries(self, incarnation: Incarnation, kept: list[Answer]) -> None:
        """Every unanswered keyed write, and a few answered ones."""
        base = len(incarnation.before.data)
        places: list[Answer | None] = [Answer(base + first, base + last) for first, last in kept]
        places += [None] * (len(incarnation.writes) - len(kept))
        retries = [
            Retry(write, place)
            for write, place in zip(incarnation.writes, places, strict=True)
            if isinstance(write.step, Write) and write.step.key is not None
        ]
        self._retries += [each for each in retries if each.write.answer is None]
        self._retries += [each for each in retries if each.write.answer][-ANSWERED_RETRIES:]

    def list_retries(self) -> list[tuple[int, int, int]]:
        """Seed, batch and slot of the keyed writes to send again."""
        return [each.write[:3] for each in self._retries]

    def note_retried(self, lines: list[list[str]]) -> None:
        """A retry found its first write, or was the first to arrive."""
        for _, number, _, first, last, deduped in sorted(lines, key=lambda line: int(line[1])):
            write, place = self._retries[int(number)]
            answer = Answer(int(first), int(last))
            assert (place is not None) == bool(int(deduped)), f"a retry of {write}"
            if place is None:
                self._late.append(write._replace(answer=answer))
            else:
                assert place == answer


def _incarnations(seen: Seen, begun: list[Begun]) -> list[Incarnation]:
    """What a topic may be; all answers are about the first, the others follow deletions
    that may not have happened."""
    answered = [place for place, each in enumerate(begun) if each.answer is not None]
    certain = max(answered, default=-1)
    possible = [Incarnation(seen, [])]
    for place, each in enumerate(begun):
        if isinstance(each.step, Write):
            possible[-1].writes.append(each)
        elif place <= certain:
            possible = [Incarnation(NOTHING, [])]
        else:
            possible.append(Incarnation(NOTHING, []))
    return possible


def _read(reader: Reader, topic: str) -> bytes | None:
    """All records of a topic, or None without one; a tombstone would be a loss."""
    view = reader.find_topic(topic)
    if view is None:
        return None
    parts: list[bytes] = []
    from_seq = 0
    while True:
        query = DiffQuery(
            from_seq=from_seq,
            limit=1000,
            nodes=(),
            include_tags=True,
            include_meta=True,
            max_bytes=1 << 20,
        )
        page = reader.diff(view, query)
        assert page is not None
        assert page.tombstone is None, f"{topic}: {page.tombstone}"
        parts.append(bytes(page.records))
        from_seq = page.next_from_seq
        if from_seq == page.head_seq:
            return b",".join(part for part in parts if part)


def _added(wire: bytes, before: Seen) -> list[bytes] | None:
    """Data of the records behind those seen before; None when those are not the same."""
    if not wire.startswith(before.wire):
        return None
    rest = wire[len(before.wire) :].removeprefix(b",")
    records = json.loads(b"[" + rest + b"]")
    data = [b'"' + record["data"].encode() + b'"' for record in records]
    rebuilt = [
        b'{"$seq":%d,"$ts":%d,"data":%b}' % (seq, record["$ts"], each)
        for seq, (record, each) in enumerate(zip(records, data, strict=True), len(before.data) + 1)
    ]
    return data if b",".join(rebuilt) == rest else None


def _whole_writes(added: list[bytes], writes: list[Begun]) -> list[Answer] | None:
    """Places, relative to `added`, of the first writes if exactly these make it up."""
    kept: list[Answer] = []
    position = 0
    for write in writes:
        if position == len(added):
            break
        assert isinstance(write.step, Write)
        contents = write.step.contents
        if added[position : position + len(contents)] != contents:
            return None
        kept.append(Answer(position + 1, position + len(contents)))
        position += len(contents)
    return kept if position == len(added) else None


def _check_answers(topic: str, incarnation: Incarnation, kept: list[Answer]) -> None:
    """Every answered write is there, at the seqs that were answered."""
    base = len(incarnation.before.data)
    for place, write in enumerate(incarnation.writes):
        if write.answer is None:
            continue
        assert place < len(kept), f"{topic}: {write} is lost"
        found = Answer(*(base + seq for seq in kept[place]))
        assert found == write.answer, f"{topic}: {write} is at {found}"

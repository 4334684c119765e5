"""Deletes by tag find what a look at every record would find, whatever index there is.

Segments are small and pieces smaller, so that a topic has sealed segments with an index,
sealed ones whose index is lost or damaged, ended ones that are not sealed, and an active one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.cuts import Write, append_command
from tests.property.rig import Rig
from topicsd.model.commands import Appended, DeleteRecords, RecordsDeleted
from topicsd.model.match import Match
from topicsd.storage import tag_pieces

LETTERS = 'ab"\\/ü日\x01😀'
LONG = "abababab"

_texts = st.one_of(
    st.text(st.sampled_from(LETTERS), max_size=4),
    # Longer than what a piece keeps of a tag: only the records can tell them apart.
    st.text(st.sampled_from(LETTERS), max_size=3).map(LONG.__add__),
)
_append = st.lists(st.one_of(st.none(), _texts), min_size=1, max_size=40)
_match = st.builds(Match, _texts, st.booleans())
_event = st.sampled_from(("checkpoint", "restart", "crash", "in order", "lost", "damaged"))
_steps = st.lists(st.one_of(_append, _append, _match, _event), min_size=5, max_size=30)


@pytest.fixture(scope="module", autouse=True)
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tag_pieces, "PIECE_ROWS", 12)
        yield


class Topic:
    """A topic in an engine, and the tags that are live in it."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.tags: dict[int, str | None] = {}
        self.head = 0

    def append(self, tags: list[str | None]) -> None:
        (reply,) = self.rig.run([[append_command(Write("t", tags, 4))]])
        assert isinstance(reply, Appended)
        assert reply.first_seq == self.head + 1
        self.tags.update(enumerate(tags, reply.first_seq))
        self.head = reply.last_seq

    def delete(self, match: Match) -> None:
        matching = [seq for seq, tag in self.tags.items() if match.accepts(tag)]
        (reply,) = self.rig.run([[DeleteRecords("t", None, match)]])
        assert isinstance(reply, RecordsDeleted)
        for seq in matching:
            del self.tags[seq]
        assert (len(matching), len(self.tags)) == (reply.deleted, reply.count)
        assert next(iter(self.tags), self.head + 1) == reply.earliest_seq

    def happen(self, event: str) -> None:
        rig = self.rig
        if event == "checkpoint":
            rig.begin_checkpoint(None)
            rig.finish_checkpoint()
        elif event == "restart":
            assert rig.stop() == []
            rig.start()
        elif event == "crash":
            rig.crash()
            rig.start()
        elif event == "in order":
            rig.engine.tag_indexes.pieces.wait()
        else:
            self._spoil(event)

    def _spoil(self, event: str) -> None:
        """Lose or damage indexes, and have them opened anew."""
        paths = sorted(Path(self.rig.settings.data_dir).rglob("*.tag"))
        for path in paths[::2]:
            content = path.read_bytes()
            path.unlink()
            if event == "damaged":
                path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        self.rig.engine.tag_indexes._kept.clear()


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(_steps, _match)
def test_a_delete_finds_what_a_look_at_every_record_finds(
    steps: list[list[str | None] | Match | str], last: Match
) -> None:
    """Counts and the first seq that is left tell; the directory is checked at the end."""
    topic = Topic()
    try:
        # Out of the pack files, which have no segments.
        topic.append([LONG if at % 7 == 0 else None for at in range(260)])
        for step in [*steps, last]:
            if isinstance(step, Match):
                topic.delete(step)
            elif isinstance(step, str):
                topic.happen(step)
            else:
                topic.append(step)
        assert topic.rig.stop() == []
    finally:
        topic.rig.remove()

"""Finding rows by tag: through the index of a sealed segment, or the pieces of another.

Whatever proposes rows, the records themselves have the last word: every row found is
compared with the bytes of its record. An index that is missing or damaged is not an error:
the segment's rows are looked at instead, which costs more and finds the same.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from topicsd.model.match import Match
from topicsd.storage import place
from topicsd.storage.fs import Files
from topicsd.storage.shelf import Region, SegmentKey
from topicsd.storage.tag_file import Damaged, Rows, TagIndex, open_index, stored_text
from topicsd.storage.tag_pieces import TagPieces
from topicsd.storage.tags import confirm, scan_rows

_log = logging.getLogger("topicsd.tags")


class TagIndexes:
    """Indexes of all segments: sealed ones have files, of which a bounded number is kept open."""

    def __init__(self, files: Files, roots: Sequence[Path], kept_max: int) -> None:
        self._files = files
        self._roots = roots
        self._kept_max = kept_max
        self._kept: OrderedDict[SegmentKey, TagIndex] = OrderedDict()
        self.pieces = TagPieces()

    def find_rows(self, region: Region, rows: int, match: Match) -> Rows:
        """Rows below `rows` whose record has a matching tag, ascending."""
        index = self.find(region)
        if index is None:
            return self.pieces.find_rows(region, rows, match)
        self.pieces.forget(region.key)
        try:
            found = index.find(stored_text(match.text), is_prefix=match.is_prefix)
        except Damaged as damage:
            _log.error("tag index ignored segment=%s problem=%s", region.path, damage)
            return scan_rows(region, rows, match)
        return confirm(region, found[found < rows], match)

    def find(self, region: Region) -> TagIndex | None:
        """The index of a sealed segment; None when it has none that can be opened."""
        key = region.key
        found = self._kept.get(key)
        if found is None and region.seal is not None:
            found = self._open(key)
            if found is not None:
                self._kept[key] = found
                if len(self._kept) > self._kept_max:
                    self._kept.popitem(last=False)
        return found

    def _open(self, key: SegmentKey) -> TagIndex | None:
        try:
            fd = self._files.open_readonly(
                place.tag_path(self._roots[key.tier], key.log_id, key.base_seq)
            )
        except FileNotFoundError:
            return None
        try:
            return open_index(memoryview(self._files.map(fd, self._files.size(fd))))
        finally:
            self._files.close(fd)

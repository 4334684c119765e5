"""Pages read once for all connections that want the same one at the same moment.

A wakeup makes every follower of a topic read the same records. Within one turn of the event
loop such reads are answered from here, with the bytes an encoder made of them, so that what
is left for each connection is a write. After the turn everything is forgotten: no page is
served that could have changed since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from topicsd.reader import DiffPage, DiffQuery, Reader, TopicView


class SharedPage:
    """A page, and what was made of it: by encoder, then by event id."""

    __slots__ = ("observed", "page", "rendered")

    def __init__(self, page: DiffPage) -> None:
        self.page = page
        # Whether somebody noted how long its records took to get here.
        self.observed = False
        self.rendered: dict[object, bytes] = {}

    def render(self, key: object, make: Callable[[], bytes]) -> bytes:
        """The bytes known under `key`, made when nobody asked before."""
        found = self.rendered.get(key)
        if found is None:
            found = self.rendered[key] = make()
        return found


class Pages:
    """The pages of one turn; one a worker."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._pages: dict[tuple[int, int, DiffQuery], SharedPage | None] = {}

    def read(self, topic: TopicView, query: DiffQuery, from_seq: int) -> SharedPage | None:
        """What `query` finds after `from_seq`; None when the topic is gone."""
        key = (topic.log_id, from_seq, query)
        if key in self._pages:
            return self._pages[key]
        page = self._reader.diff(topic, msgspec.structs.replace(query, from_seq=from_seq))
        shared = None
        if page is not None:
            # The records may be a view of a mapped file: it is used beyond this call.
            kept = msgspec.structs.replace(page, records=bytes(page.records))
            shared = SharedPage(kept)
            if page.count:
                # Once for all who get it: they get it now.
                self._reader.touch(topic)
        if not self._pages:
            asyncio.get_running_loop().call_soon(self._pages.clear)
        self._pages[key] = shared
        return shared

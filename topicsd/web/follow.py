"""The one follow loop: snapshot, scan, render, wait (architecture, law 6).

A waiter registers for the topic's board row first, then looks, then waits, so that a record
committed in between is never missed. A deleted topic, a drain or the loss of the engine
wakes it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from topicsd.model import errors
from topicsd.web.context import Context

# No seq and time end later than this in a record.
TS_END_MAX = 64

if TYPE_CHECKING:
    from topicsd.reader import DiffPage, DiffQuery, TopicView


def scan(context: Context, topic: TopicView, query: DiffQuery) -> DiffPage:
    """One page, or `topic_not_found` when the topic went away meanwhile."""
    page = context.reader.diff(topic, query)
    if page is None:
        raise errors.topic_not_found(topic.name)
    return page


async def follow(
    context: Context, topic: TopicView, query: DiffQuery, wait_ms: int
) -> tuple[DiffPage, int]:
    """The first page that has something to say, or the last one at the deadline.

    Returns the page and the records examined on the way to it.
    """
    page = scan(context, topic, query)
    scanned = page.scanned
    if wait_ms and not _speaks(page):
        page, scanned = await _wait(context, topic, query, wait_ms)
        if page.count:
            observe_lag(context, page)
    context.gate.column.count_read(page.count)
    return page, scanned


async def _wait(
    context: Context, topic: TopicView, query: DiffQuery, wait_ms: int
) -> tuple[DiffPage, int]:
    clock = context.clock
    deadline_us = clock.monotonic_us() + wait_ms * 1000
    scanned = 0
    with context.port.wakeups.subscribe((topic.row,)) as waiter:
        while True:
            context.check_readable()
            page = scan(context, topic, query)
            scanned += page.scanned
            left_us = deadline_us - clock.monotonic_us()
            if _speaks(page) or left_us <= 0 or context.gate.draining:
                return page, scanned
            # Filtered records advance the cursor: they are not examined twice.
            query = msgspec.structs.replace(query, from_seq=page.next_from_seq)
            caught_up = page.next_from_seq >= page.head_seq
            # A long stretch of filtered records is examined piece by piece, others in between.
            await waiter.wait(left_us / 1_000_000 if caught_up else 0)


def observe_lag(context: Context, page: DiffPage) -> None:
    """Count how long the first record of a page took to reach the reader it woke."""
    # A stored record begins with its seq and its time.
    start = bytes(page.records[:TS_END_MAX])
    written_ms = int(start.partition(b'"$ts":')[2].partition(b",")[0])
    context.gate.column.observe_lag(max(context.clock.now_ms() - written_ms, 0))


def _speaks(page: DiffPage) -> bool:
    return page.count > 0 or page.tombstone is not None

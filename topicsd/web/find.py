"""A topic by its name, for the handlers that read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.model import errors
from topicsd.model.commands import CatchUp, FindTopic, TopicFound
from topicsd.model.errors import TopicsError
from topicsd.web.context import Context

if TYPE_CHECKING:
    from topicsd.reader import TopicView


async def get_topic_view(context: Context, name: str) -> TopicView:
    """The topic, or `topic_not_found`; streams of anything but JSON are not topics."""
    topic = await find_view(context, name)
    if topic is None or not topic.has_records:
        raise errors.topic_not_found(name)
    return topic


async def find_view(context: Context, name: str) -> TopicView | None:
    """The log of that name; a miss is checked with the engine once.

    One that routers copy into has what their sources held at the request (spec 2.4).
    """
    context.check_readable()
    topic = context.reader.find_log(name)
    if topic is None and await _exists(context, name):
        topic = context.reader.find_log(name)
    if topic is not None and topic.derived:
        await _catch_up(context, name)
    return topic


async def _catch_up(context: Context, name: str) -> None:
    try:
        await context.port.submit(CatchUp(name))
    except TopicsError:
        # Without an engine, or without the topic: the read tells what there is to tell.
        return


async def _exists(context: Context, name: str) -> bool:
    reply = await context.port.submit(FindTopic(name))
    assert isinstance(reply, TopicFound)
    return reply.found

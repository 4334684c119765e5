"""Many readers: a board row, mapped segments, and no question to the writer."""

from topicsd.reader.diff import DiffPage, DiffQuery
from topicsd.reader.entries import EntryPage, EntryQuery, StreamStatus
from topicsd.reader.reader import Reader
from topicsd.reader.stream import StreamPage, StreamView
from topicsd.reader.topics import TopicState, TopicSummary, TopicView

__all__ = [
    "DiffPage",
    "DiffQuery",
    "EntryPage",
    "EntryQuery",
    "Reader",
    "StreamPage",
    "StreamStatus",
    "StreamView",
    "TopicState",
    "TopicSummary",
    "TopicView",
]

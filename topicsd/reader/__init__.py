"""Many readers: a board row, mapped segments, and no question to the writer."""

from topicsd.reader.diff import DiffPage, DiffQuery
from topicsd.reader.reader import Reader
from topicsd.reader.topics import TopicState, TopicSummary, TopicView

__all__ = ["DiffPage", "DiffQuery", "Reader", "TopicState", "TopicSummary", "TopicView"]

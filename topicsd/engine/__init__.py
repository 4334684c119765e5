"""One writer: every change of every door becomes a commit here."""

from topicsd.engine.engine import Engine, RecoverySummary

__all__ = ["Engine", "RecoverySummary"]

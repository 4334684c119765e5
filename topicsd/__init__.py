"""topicsd: a persistent event engine on one machine."""

__version__ = "0.1.0"

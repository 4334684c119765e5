"""What a full volume means to a command: a refusal, not the end of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from topicsd.model import errors
from topicsd.storage.fs import is_full


@contextmanager
def refuse_when_full() -> Iterator[None]:
    """Turn a lack of space into `storage_full`; other errors pass."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise errors.storage_full("the disk is full") from None
        raise

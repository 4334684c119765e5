"""The first lines of the log: what was started, where, and who may come in."""

from __future__ import annotations

import logging
import os
import socket

from topicsd import __version__
from topicsd.model.settings import Settings
from topicsd.serve.listener import location

_log = logging.getLogger("topicsd.main")


def announce(settings: Settings, listener: socket.socket) -> None:
    """Log the start; a server open to everybody says so loudly."""
    _log.info(
        "topicsd starts",
        extra={
            "version": __version__,
            "bind": location(listener),
            "data_dir": settings.data_dir.absolute(),
            "workers": 1 if settings.single_process else settings.workers,
            "single_process": str(settings.single_process).lower(),
            "keys": len(settings.api_keys),
            "pid": os.getpid(),
        },
    )
    if not settings.api_keys:
        _log.warning(
            "NO AUTHENTICATION: everybody who can reach this address may read, write and "
            "delete; set TOPICS_API_KEYS"
        )

"""Log lines: `ts level name message key=value ...` on stderr, one line an event.

Fields are passed as `extra={...}`; a value with spaces, quotes or line breaks is quoted.
A traceback follows its line. Sanic's own loggers speak only when something is wrong.
"""

from __future__ import annotations

import json
import logging
import sys
import time

_SANIC_LOGGERS = ("root", "error", "access", "server", "websockets")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LineFormatter(logging.Formatter):
    """Renders a record as one line of words and fields."""

    def format(self, record: logging.LogRecord) -> str:
        words = [
            _timestamp(record.created),
            record.levelname.lower(),
            record.name,
            " ".join(record.getMessage().splitlines()),
        ]
        words.extend(
            f"{name}={_quote(value)}"
            for name, value in vars(record).items()
            if name not in _STANDARD
        )
        line = " ".join(words)
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def configure(level: str) -> None:
    """Send every logger of this process and its children to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _SANIC_LOGGERS:
        logger = logging.getLogger(f"sanic.{name}")
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _timestamp(created: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created % 1 * 1000):03d}Z"


def _quote(value: object) -> str:
    text = str(value)
    if text and not any(char.isspace() or char in '"=' for char in text):
        return text
    return json.dumps(text, ensure_ascii=False)

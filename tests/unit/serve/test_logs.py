"""Log lines can be read by people and split by machines."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from topicsd.serve.logs import LineFormatter


def line(message: str, *args: object, exc_info: object = None, **fields: object) -> str:
    record = logging.LogRecord("topicsd.x", logging.INFO, "f", 1, message, args, exc_info)
    record.created = 1_700_000_000.5
    vars(record).update(fields)
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"n": 3, "path": "/a"}, " n=3 path=/a"),
        ({"why": "two words"}, ' why="two words"'),
        ({"why": ""}, ' why=""'),
        ({"why": 'say "hi"\n'}, r' why="say \"hi\"\n"'),
        ({"why": "a=b"}, ' why="a=b"'),
    ],
)
def test_fields_follow_the_message(fields: dict[str, object], expected: str) -> None:
    """Plain values are bare, anything that would break the line is quoted."""
    assert line("said %d", 1, **fields) == (
        "2023-11-14T22:13:20.500Z info topicsd.x said 1" + expected
    )


def test_message_with_line_breaks_stays_one_line() -> None:
    """A line break in a message cannot fake a second line."""
    assert line("one\ntwo").count("\n") == 0


def test_traceback_follows_its_line() -> None:
    """An exception's traceback comes after the structured line."""
    try:
        raise ValueError("why")
    except ValueError:
        text = line("failed", exc_info=sys.exc_info())
    assert re.match(r"\S+ info topicsd.x failed\nTraceback", text)

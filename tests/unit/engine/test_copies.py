"""Copies: stored bytes cut to measure, and keys put into meta."""

from __future__ import annotations

import pytest

from topicsd.engine.copies import _stamp

KEY = b'{"key":"r/1/1/7"}'


@pytest.mark.parametrize(
    ("meta", "stamped"),
    [
        (b"", b'{"_topics_router":%b}'),
        (b"{}", b'{"_topics_router":%b}'),
        (b"{ }", b'{ "_topics_router":%b}'),
        (b'{"a":1}', b'{"a":1,"_topics_router":%b}'),
        (b' {"a" : [1, 2] } ', b'{"a" : [1, 2] ,"_topics_router":%b}'),
        (b'{"a":"\\u0041","b":1e2}', b'{"a":"\\u0041","b":1e2,"_topics_router":%b}'),
        (b'{"a":"_topics_router"}', b'{"a":"_topics_router","_topics_router":%b}'),
        (b'{"\\ud800":1}', b'{"\\ud800":1,"_topics_router":%b}'),
        # One that came along gives way, however it is spelled.
        (b'{"_topics_router":{"key":"x"},"a" : 1}', b'{"a":1,"_topics_router":%b}'),
        (b'{"\\u005ftopics_router":0,"b":1e2}', b'{"b":1e2,"_topics_router":%b}'),
    ],
)
def test_a_key_leaves_the_rest_of_meta_as_it_is(meta: bytes, stamped: bytes) -> None:
    """Other members keep their bytes, and there is one key."""
    assert _stamp(meta, KEY) == stamped % KEY

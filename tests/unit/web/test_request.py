"""Query parameters and headers as handlers see them."""

from __future__ import annotations

import pytest

from topicsd.model.errors import TopicsError
from topicsd.web.request import Request


def make(query: str = "", **headers: str) -> Request:
    return Request("GET", "/", query, headers, 0)


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("1", True), ("false", False), ("0", False)]
)
def test_booleans_are_spelled_two_ways(text: str, expected: bool) -> None:
    """`true`, `1`, `false` and `0` are understood."""
    assert make(f"touch={text}").query_bool("touch", not expected) is expected


@pytest.mark.parametrize("text", ["", "yes", "TRUE", "2", "nul%00"])
def test_other_booleans_are_refused(text: str) -> None:
    """Anything else names the parameter in a refusal."""
    with pytest.raises(TopicsError) as caught:
        make(f"touch={text}").query_bool("touch", True)
    assert caught.value.detail == {"field": "touch"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", 100), ("page_size=0", 100), ("page_size=7", 7), ("page_size=5000", 1000),
     ("page_size=" + "9" * 5000, 1000), ("page_size=3&page_size=4", 4)],
)  # fmt: skip
def test_a_page_size_is_clamped(query: str, expected: int) -> None:
    """0 and absent mean the default, too large means the maximum, the last one wins."""
    assert expected == make(query).query_size("page_size", 100, 1000)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "%D9%A3", "0x10"])
def test_a_page_size_that_is_no_number_is_refused(text: str) -> None:
    """Only ASCII digits count."""
    with pytest.raises(TopicsError):
        make(f"page_size={text}").query_size("page_size", 100, 1000)


def test_a_query_that_is_not_utf8_is_refused() -> None:
    """Percent-escapes must spell UTF-8."""
    with pytest.raises(TopicsError) as caught:
        _ = make("prefix=%ff").query
    assert caught.value.code == "invalid_request"


def test_a_header_is_found_without_outer_blanks() -> None:
    """Values are stripped; an absent header is None."""
    request = make(accept=" x ")
    assert (request.header("accept"), request.header("authorization")) == ("x", None)

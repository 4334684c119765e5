"""The table and the way from a path to its row."""

from __future__ import annotations

import pytest

from topicsd.web.routes import ROUTES, find_path


def test_every_row_is_found_under_its_own_path() -> None:
    """A row with its parameter filled in leads back to itself."""
    for route in ROUTES:
        path = find_path(route.path.replace(":topic", "jobs"))
        assert path is not None
        assert route == path.find_route(route.method)


def test_no_two_rows_share_method_and_path() -> None:
    """The table has no row that another one hides."""
    assert len(ROUTES) == len({(route.method, route.path) for route in ROUTES})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v0/topics/jobs", "jobs"),
        ("/v0/topics/render%3Aa", "render:a"),
        ("/v0/topics/a%2Fb/diff", "a/b"),
        ("/v0/topics/%2F", "/"),
        ("/v0/topics/%ff", "\ufffd"),
        ("/v0/topics/diff", "diff"),
        ("/v0/topics", None),
    ],
)
def test_the_name_is_one_decoded_segment(path: str, name: str | None) -> None:
    """An encoded slash stays inside the name; bad UTF-8 becomes a character no name has."""
    found = find_path(path)
    assert found is not None
    assert name == found.name


@pytest.mark.parametrize(
    "path",
    ["", "/", "/v0", "/v0/topics/", "//v0/topics", "/v0/topics/a/", "/v0/topics/a/b", "/v0/T"],
)
def test_other_paths_are_unknown(path: str) -> None:
    """An empty segment is not a name, and case matters."""
    assert find_path(path) is None


def test_allow_lists_head_and_options() -> None:
    """HEAD comes with GET, OPTIONS with every path."""
    topics = find_path("/v0/topics")
    delete = find_path("/v0/topics/a/delete")
    assert topics is not None and delete is not None
    assert (topics.allowed, delete.allowed) == (["GET", "HEAD", "OPTIONS"], ["OPTIONS", "POST"])

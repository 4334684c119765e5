"""Decisions about subscriptions: globs, positions, backoff, tokens, addresses."""

from __future__ import annotations

import pytest

from topicsd.rules.subscriptions import (
    Phase,
    backoff_ms,
    compile_glob,
    hash_token,
    is_fenced,
    is_pending,
    is_token,
    may_ack,
)
from topicsd.rules.webhooks import may_connect, parse_target

GLOBS = [
    ("a/*", "a/b", True),
    ("a/*", "a/b/c", False),
    ("a/*", "a", False),
    ("a/**", "a/b/c", True),
    ("a/**", "a", True),
    ("a/**", "ab", False),
    ("**", "a/b", True),
    ("**/c", "a/b/c", True),
    ("**/c", "c", True),
    ("a/**/c", "a/c", True),
    ("a/x-*", "a/x-1", True),
    ("a/x-*", "a/y-1", False),
    ("a.b", "axb", False),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), GLOBS)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    """One star stays within a segment, two go over any number of them."""
    assert bool(compile_glob(pattern)(path)) is expected


@pytest.mark.parametrize(
    ("attempt", "expected"), [(1, 1000), (2, 2000), (6, 32_000), (7, 60_000), (500, 60_000)]
)
def test_backoff_doubles_up_to_a_minute(attempt: int, expected: int) -> None:
    """The jitter is a fifth at most, in both directions."""
    assert backoff_ms(attempt, 0.5) == expected
    assert backoff_ms(attempt, 0.0) == expected * 0.8
    assert backoff_ms(attempt, 1.0) == expected * 1.2


@pytest.mark.parametrize(
    ("asked", "acked", "tail", "expected"),
    [
        ((1, 2), (1, 1), (1, 3), True),
        ((1, 3), (1, 3), (1, 3), True),
        ((1, 4), (1, 1), (1, 3), False),
        ((1, 1), (1, 2), (1, 3), False),
        ((0, 0), (0, 0), (1, 3), False),
        ((2, 1), (0, 0), (1, 3), False),
        ((1, 1), (1, 1), None, False),
    ],
)
def test_what_can_be_acknowledged(
    asked: tuple[int, int], acked: tuple[int, int], tail: tuple[int, int] | None, expected: bool
) -> None:
    """Neither back, nor past the tail, nor in another life, nor the start."""
    assert may_ack(asked, acked, tail) is expected


def test_pending_is_what_follows_the_acknowledged() -> None:
    """A stream that was made anew is pending from its first entry."""
    assert is_pending((0, 0), (1, 1))
    assert is_pending((1, 5), (2, 1))
    assert not is_pending((1, 5), (1, 5))
    assert not is_pending((0, 0), (1, 0))
    assert not is_pending((0, 0), None)


def test_tokens_and_fences() -> None:
    """Only the token that was given, and only the wake that is under way."""
    assert is_token("t", hash_token("t"))
    assert not is_token("u", hash_token("t"))
    assert not is_token("", "")
    assert is_fenced(("w", 1), ("w", 1), Phase.IDLE)
    assert is_fenced(("w", 1), ("w", 2), Phase.LIVE)
    assert not is_fenced(("w", 1), ("w", 1), Phase.WAKING)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.com/hook", True),
        ("http://localhost:8080/hook", True),
        ("http://127.0.0.1/hook", True),
        ("http://127.9.9.9/hook", True),
        ("http://example.com/hook", False),
        ("http://127.evil.example/hook", False),
        ("https://10.0.0.1/", False),
        ("https://172.16.0.1/", False),
        ("https://192.168.1.1/", False),
        ("https://169.254.169.254/latest/meta-data", False),
        ("https://0.0.0.0/", False),
        ("https://224.0.0.1/", False),
        ("https://[::1]/", False),
        ("https://[::ffff:10.0.0.1]/", False),
        ("https://[fe80::1]/", False),
        ("https://[fd00::1]/", False),
        ("https://[64:ff9b::a00:1]/", False),
        ("https://user@example.com/", False),
        ("ftp://example.com/", False),
        ("https:///x", False),
        ("https://exa mple.com/", False),
        ("https://example.com:0/", False),
    ],
)
def test_urls_of_webhooks(url: str, allowed: bool) -> None:
    """What leads into the network behind the server is refused."""
    assert (parse_target(url) is not None) is allowed


@pytest.mark.parametrize(
    ("host", "address", "allowed"),
    [
        ("example.com", "93.184.216.34", True),
        ("example.com", "127.0.0.1", False),
        ("example.com", "10.1.2.3", False),
        ("example.com", "169.254.169.254", False),
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("localhost", "10.0.0.1", False),
    ],
)
def test_resolved_addresses(host: str, address: str, allowed: bool) -> None:
    """A name is judged by what it stands for at the moment."""
    assert may_connect(host, address) is allowed

"""Lone surrogate escapes survive; everything else is left alone."""

from __future__ import annotations

import msgspec
import pytest

from topicsd.web.surrogates import mask


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        rb'"\ud83d\ude00"',
        rb'"\\ud800"',
        rb'"\u00e9"',
        b'"ud800"',
    ],
)
def test_bodies_without_lone_surrogates_are_not_masked(body: bytes) -> None:
    """Pairs, escaped backslashes and other escapes are no reason to copy."""
    assert mask(body) is None


@pytest.mark.parametrize(
    "payload",
    [
        rb'"\ud800"',
        rb'"\uDFFF x"',
        rb'"\ud800\ud83d\ude00"',
        rb'"\\\ud800"',
        rb'{"\udc00":"\ud800\ud800"}',
    ],
)
def test_payloads_are_cut_from_the_original(payload: bytes) -> None:
    """The client's bytes come back exactly, at their own place."""
    body = b'{"before":1, "data": %b ,"after":2}' % payload
    masked = mask(body)
    assert masked is not None
    assert len(body) == len(masked.body)
    fields = msgspec.json.decode(masked.body, type=dict[str, msgspec.Raw])
    assert payload == masked.cut(fields["data"])


def test_the_stand_in_is_a_character_the_body_does_not_use() -> None:
    """Raw and escaped noncharacters of the client are not mistaken for ours."""
    masked = mask('{"a":"\ufdd0","b":"\\uFDD1","c":"\\ud800"}'.encode())
    assert masked is not None
    assert masked.stand_in == "\ufdd2"

"""Replies about routers, as types for the document."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from topicsd.web.docs.shapes import Performance

Guarantee = Literal["at_least_once", "exactly_once"]


class RouterPutReply(msgspec.Struct):
    """The configuration in effect, and whether this call made the router."""

    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee
    performance: Performance


class RouterReply(msgspec.Struct):
    """A router and how many copies it has made."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee
    forwarded_total: int
    performance: Performance


class RouterSummary(msgspec.Struct):
    """One router of a listing."""

    router: str
    source: str
    dest: str
    guarantee: Guarantee
    forwarded_total: int


class RouterList(msgspec.Struct):
    """One page of routers in byte order of their names."""

    routers: list[RouterSummary]
    performance: Performance
    next_cursor: str | UnsetType = UNSET


class RouterDeletedReply(msgspec.Struct):
    """False when there was no such router."""

    router: str
    deleted: bool
    performance: Performance

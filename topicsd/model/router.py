"""A router's configuration (API 6): what is forwarded from where to where, and how.

Stored in the catalog as JSON and echoed in full; `create_dest` is part of a request only.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from topicsd.model import errors, names
from topicsd.model.match import Match, parse_match

AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"


class RouterBody(msgspec.Struct):
    """The request of `PUT /v0/routers/:router`."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"


class RouterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request, in the order it is echoed."""

    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: Match | None = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"

    @property
    def stamps(self) -> bool:
        """Whether copies carry the key by which a repeated one is recognised."""
        return self.guarantee == EXACTLY_ONCE

    def echo(self) -> dict[str, Any]:
        """The fields as a reply shows them."""
        shown: dict[str, Any] = {
            field: getattr(self, field) for field in self.__struct_fields__ if field != "filter"
        }
        shown["filter"] = None if self.filter is None else self.filter.to_tuple()
        return shown


def build_config(asked: RouterBody) -> RouterConfig:
    """Check a request, or raise `invalid_request`."""
    for field in ("source", "dest"):
        if not names.is_topic_name(getattr(asked, field)):
            raise errors.invalid_request(f"{field} must name a topic", field=field)
    if asked.source == asked.dest:
        raise errors.invalid_request("source and dest must differ", field="dest")
    return RouterConfig(
        source=asked.source,
        dest=asked.dest,
        preserve_node=asked.preserve_node,
        preserve_tag=asked.preserve_tag,
        filter=None if asked.filter is None else parse_match(asked.filter, "filter"),
        allow_cycle=asked.allow_cycle,
        guarantee=asked.guarantee,
    )

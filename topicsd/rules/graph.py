"""The graph of routers (DESIGN 8.1, 8.5): one source a destination, and no cycle by accident.

Because a destination has one source, the way upstream from any topic is a line, which ends
or comes back to where it was. Every question here is a walk along it.
"""

from __future__ import annotations

from collections.abc import Mapping


def find_upstream(source_of: Mapping[str, str], topic: str) -> list[str]:
    """A topic, its source, that one's source and so on; none of them twice."""
    line = [topic]
    while (above := source_of.get(line[-1])) is not None and above not in line:
        line.append(above)
    return line


def find_cycle(source_of: Mapping[str, str], source: str, dest: str) -> list[str] | None:
    """The cycle that an edge from `source` to `dest` closes, from `source` to `source`."""
    line = find_upstream(source_of, source)
    if dest not in line:
        return None
    return [source, *reversed(line[: line.index(dest) + 1])]


def find_other_source(source_of: Mapping[str, str], source: str, dest: str) -> str | None:
    """The source that `dest` has already, when it is not this one."""
    known = source_of.get(dest)
    return None if known in (None, source) else known

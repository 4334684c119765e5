"""The repository's Python as the law tests read it: parsed once, with file:line places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("topicsd",)
EVERYTHING = ("topicsd", "loadtest", "tests")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One Python file: its path in the repository, its text, its tree."""

    path: str
    text: str
    tree: ast.Module

    def at(self, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
        return f"{self.path}:{node.lineno}"

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Every call with its dotted name; `x().y` and the like read `?.y`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, dotted(node.func)


@cache
def modules(*tops: str) -> list[Module]:
    """Every module below the given top directories; links are not followed."""
    paths = [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]
    assert paths, f"no Python files below {tops}"
    return [_parse(path) for path in paths]


def _parse(path: Path) -> Module:
    text = path.read_text("utf-8")
    return Module(path.relative_to(ROOT).as_posix(), text, ast.parse(text))


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def read(name: str) -> str:
    """Text of a file of the repository."""
    return (ROOT / name).read_text("utf-8")


def obey(violations: list[str]) -> None:
    """Fail with one line a violation."""
    assert not violations, "\n" + "\n".join(violations)

"""The style as law: sizes, names, docstrings, and nothing left for later."""

from __future__ import annotations

import ast
import subprocess
from pathlib import PurePath

from tests.law.source import EVERYTHING, PRODUCT, ROOT, Function, Module, modules, obey

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
POSITIONAL_MAX = 5
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
LEFTOVERS = ("TO" + "DO", "FIX" + "ME", "X" + "XX")
TEXT_SUFFIXES = {".py", ".sql", ".md", ".toml", ".cfg", ".sh", ""}


def test_modules_fit_on_a_few_screens() -> None:
    """No module is longer than 400 lines."""
    obey(
        [
            f"{module.path}:1: {lines} lines, at most {MODULE_LINES_MAX}"
            for module in modules(*EVERYTHING)
            if (lines := module.text.count("\n")) > MODULE_LINES_MAX
        ]
    )


def test_functions_fit_on_a_screen() -> None:
    """No function is longer than 60 lines."""
    obey(
        [
            f"{module.at(node)}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            for module in modules(*EVERYTHING)
            for node in module.functions()
            if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
        ]
    )


def test_functions_take_few_positional_parameters() -> None:
    """No function takes more than five positional parameters; more go by keyword."""
    obey(
        [
            f"{module.at(node)}: {node.name} has {count} positional parameters"
            for module in modules("topicsd", "loadtest")
            for node in module.functions()
            if (count := _positional(node)) > POSITIONAL_MAX
        ]
    )


def _positional(node: Function) -> int:
    names = [argument.arg for argument in node.args.posonlyargs + node.args.args]
    return len([name for name in names if name not in ("self", "cls")])


def test_modules_say_what_they_are() -> None:
    """Every module opens with a docstring."""
    obey(
        [
            f"{module.path}:1: no module docstring"
            for module in modules(*EVERYTHING)
            if module.text.strip() and not ast.get_docstring(module.tree)
        ]
    )


def test_modules_are_named_after_what_they_hold() -> None:
    """No module or package has a name that could hold anything."""
    obey(
        [
            f"{module.path}:1: {word} says nothing about what is inside"
            for module in modules(*EVERYTHING)
            for word in _words(module)
            if word in VAGUE_NAMES
        ]
    )


def _words(module: Module) -> list[str]:
    return [PurePath(part).stem for part in PurePath(module.path).parts]


def test_nothing_is_left_for_later() -> None:
    """No file of the repository carries a note of unfinished work."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / line for line in listing.stdout.splitlines()]
    texts = [path for path in paths if path.suffix in TEXT_SUFFIXES and path.is_file()]
    assert texts
    obey(
        [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
            for path in texts
            for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
            if any(word in line for word in LEFTOVERS)
        ]
    )


def test_the_product_is_typed() -> None:
    """Every function of the product declares what it returns."""
    obey(
        [
            f"{module.at(node)}: {node.name} declares no return type"
            for module in modules(*PRODUCT)
            for node in module.functions()
            if node.returns is None
        ]
    )

"""Things that may happen in one place only: file access, catching everything, waiting."""

from __future__ import annotations

import ast

from tests.law.source import EVERYTHING, PRODUCT, Module, modules, obey

FILE_DOOR = "topicsd/storage/fs.py"
FILE_CALLS = {
    "open",
    "io.open",
    "mmap.mmap",
    "os.open",
    "os.fdopen",
    "os.rename",
    "os.replace",
    "os.fsync",
    "os.fdatasync",
    "os.unlink",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.makedirs",
    "os.truncate",
    "os.ftruncate",
    "os.write",
    "os.pwrite",
    "os.pread",
    "os.link",
    "os.symlink",
    "os.posix_fallocate",
}
FILE_METHODS = ("read_bytes", "read_text", "write_bytes", "write_text")
# Reads outside the data directory; the reason stands beside each.
FILE_EXCEPTIONS = {
    "topicsd/cli/options.py": "reads the --config file",
    "topicsd/model/dial.py": "reads the files that black-box tests turn",
    "topicsd/model/resources.py": "reads files that ship inside the package",
}
# The places that end a request, a batch or a chore (style, "Errors").
CATCH_ALL = {
    "topicsd/web/dispatch.py": "ends a request",
    "topicsd/web/live/feed.py": "ends a stream",
    "topicsd/web/v0/ws.py": "ends a command of a socket",
    "topicsd/bridge/driver.py": "ends a batch or a chore of the engine",
    "topicsd/engine/checkpoint.py": "hands a failure on its thread to the engine's",
    "topicsd/engine/clerk.py": "hands a failure on its thread to the engine's",
}
WAITING = {"tests/harness/waiting.py": "the one loop that waits for a condition"}
SLEEPS = ("time.sleep", "sleep")
EXCUSES = (
    "pytest.skip",
    "pytest.xfail",
    "pytest.mark.skip",
    "pytest.mark.skipif",
    "pytest.mark.xfail",
)


def test_files_are_touched_in_one_module() -> None:
    """Only storage/fs.py opens, writes, syncs, renames or maps files."""
    obey(
        [
            f"{module.at(call)}: {name} belongs in {FILE_DOOR}"
            for module in modules(*PRODUCT)
            if module.path != FILE_DOOR and module.path not in FILE_EXCEPTIONS
            for call, name in module.calls()
            if name in FILE_CALLS or name.rpartition(".")[2] in FILE_METHODS
        ]
    )


def test_exceptions_to_the_file_law_still_exist() -> None:
    """Every exempted module is there and still needs its exemption."""
    by_path = {module.path: module for module in modules(*PRODUCT)}
    obey(
        [
            f"{path}:1: exempt ({reason}) but missing or without file access"
            for path, reason in FILE_EXCEPTIONS.items()
            if path not in by_path
            or not any(name.rpartition(".")[2] in FILE_METHODS for _, name in by_path[path].calls())
        ]
    )


def test_everything_is_caught_in_named_places_only() -> None:
    """Only the end of a request, a batch or a chore swallows an `Exception`."""
    obey(
        [
            f"{module.at(node)}: catches everything; name what you expect"
            for module in modules(*PRODUCT)
            if module.path not in CATCH_ALL
            for node in _catch_alls(module)
        ]
    )


def test_places_that_may_catch_everything_still_do() -> None:
    """Every exempted module is there and still needs its exemption."""
    using = {module.path for module in modules(*PRODUCT) if _catch_alls(module)}
    obey(
        [
            f"{path}:1: exempt ({reason}) but catches nothing"
            for path, reason in CATCH_ALL.items()
            if path not in using
        ]
    )


def _catch_alls(module: Module) -> list[ast.ExceptHandler]:
    handlers = [node for node in ast.walk(module.tree) if isinstance(node, ast.ExceptHandler)]
    return [handler for handler in handlers if _catches_everything(handler)]


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    if isinstance(handler.body[-1], ast.Raise):
        # Cleans up and passes the exception on.
        return False
    kind = handler.type
    caught = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(
        item is None or (isinstance(item, ast.Name) and item.id in ("Exception", "BaseException"))
        for item in caught
    )


def test_tests_wait_for_conditions() -> None:
    """No test sleeps for a while and hopes."""
    obey(
        [
            f"{module.at(call)}: wait for a condition instead of sleeping"
            for module in modules("tests")
            if module.path not in WAITING
            for call, name in module.calls()
            if name in SLEEPS
        ]
    )


def test_tests_are_run() -> None:
    """No test is skipped or expected to fail."""
    obey(
        [
            f"{module.at(node)}: a test that does not run proves nothing"
            for module in modules("tests")
            for node in _attributes(module)
            if ast.unparse(node) in EXCUSES
        ]
    )


def _attributes(module: Module) -> list[ast.Attribute]:
    return [node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)]


def test_nothing_prints_except_commands() -> None:
    """The product logs; only the cli room writes to the terminal."""
    obey(
        [
            f"{module.at(call)}: log it"
            for module in modules(*PRODUCT)
            if not module.path.startswith("topicsd/cli/")
            for call, name in module.calls()
            if name == "print"
        ]
    )


def test_the_law_reads_the_whole_repository() -> None:
    """The law tests see every top directory that holds Python."""
    assert {module.path.split("/")[0] for module in modules(*EVERYTHING)} == set(EVERYTHING)

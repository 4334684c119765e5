"""Where settings come from: defaults < TOML file < environment < flags.

`load` merges the four and parses each value once. It fails closed: a value that does not
parse or is out of bounds, an unknown key, and an unknown `TOPICS_*` variable are refused
with the name, the value (hidden when secret) and what would be right. Nothing here reads
files or the process environment; both are arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from topicsd.model.keys import KeyRing
from topicsd.model.settings import Settings, SettingsError, Spec, specs, variable

PREFIX = "TOPICS_"
_BOOLEANS = {"1": True, "true": True, "0": False, "false": False}
_SHOWN_CHARS = 200


class Loaded(NamedTuple):
    """The effective settings, and for each name the source that decided it."""

    settings: Settings
    sources: dict[str, str]


class _Given(NamedTuple):
    """A value as a source spelled it; `label` is what the person wrote it under."""

    source: str
    label: str
    value: Any


def load(
    environ: Mapping[str, str],
    file: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Merge and parse all sources, or raise SettingsError; a flag of None was not given."""
    given: dict[str, _Given] = {}
    for layer in (_from_file(file or {}), _from_environ(environ), _from_flags(flags or {})):
        _split_host(layer)
        given |= layer
    values = {name: _parse(specs()[name], item) for name, item in given.items()}
    sources = {name: given[name].source if name in given else "default" for name in specs()}
    return Loaded(Settings(**values), sources)


def _from_file(file: Mapping[str, Any]) -> dict[str, _Given]:
    for key in file:
        if key not in specs():
            raise SettingsError(f"unknown setting {key} in the file{_nearest(key, specs())}")
    return {key: _Given("file", key, value) for key, value in file.items()}


def _from_environ(environ: Mapping[str, str]) -> dict[str, _Given]:
    known = {variable(name): name for name in specs()}
    given = {}
    for label, value in environ.items():
        if not label.startswith(PREFIX):
            continue
        if label not in known:
            raise SettingsError(f"unknown variable {label}{_nearest(label, known)}")
        given[known[label]] = _Given("env", label, value)
    return given


def _from_flags(flags: Mapping[str, Any]) -> dict[str, _Given]:
    return {
        name: _Given("flag", f"--{name.replace('_', '-')}", value)
        for name, value in flags.items()
        if value is not None
    }


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _split_host(layer: dict[str, _Given]) -> None:
    """Turn `host:port` into a host and a port of the same source, in place."""
    item = layer.get("host")
    if item is None or not isinstance(item.value, str):
        return
    host, port = _host_and_port(item.value)
    layer["host"] = item._replace(value=host)
    if port is None:
        return
    if not port.isdigit():
        raise SettingsError(f"{item.label}={item.value} is refused: must be host or host:port")
    other = layer.get("port")
    if other is not None and str(other.value) != port:
        raise SettingsError(
            f"{item.label}={item.value} and {other.label}={other.value} name different ports"
        )
    layer["port"] = item._replace(value=port)


def _host_and_port(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") if rest else None
    # More than one colon is an IPv6 address without a port.
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None


def _parse(spec: Spec, item: _Given) -> Any:
    if spec.optional and item.value == "":
        return None
    try:
        value = _PARSERS[spec.kind](item.value)
        _check_bounds(spec, value)
    except ValueError as problem:
        shown = "***" if spec.doc.secret else str(item.value)[:_SHOWN_CHARS]
        raise SettingsError(f"{item.label}={shown} is refused: {problem}") from None
    return value


def _check_bounds(spec: Spec, value: Any) -> None:
    low, high = spec.doc.low, spec.doc.high
    if low is not None and high is not None and not low <= value <= high:
        raise ValueError(f"must be from {low} to {high}")
    if spec.choices and value not in spec.choices:
        raise ValueError(f"must be one of {', '.join(spec.choices)}")


def _parse_int(value: Any) -> int:
    if type(value) is int:
        return value
    # int() would also take " 7 ", "+7", "1_000" and digits of other scripts.
    digits = value.removeprefix("-") if isinstance(value, str) else ""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        raise ValueError("must be a whole number")
    return int(value)


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    raise ValueError("must be 1, true, 0 or false")


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be text that is not empty")
    return value


def _parse_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_parse_text(value))


def _parse_keys(value: Any) -> KeyRing:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        value = ",".join(value)
    return KeyRing.parse(_parse_text(value))


_PARSERS: dict[type, Callable[[Any], Any]] = {
    int: _parse_int,
    bool: _parse_bool,
    str: _parse_text,
    Path: _parse_path,
    KeyRing: _parse_keys,
}

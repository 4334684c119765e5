"""What users can set, call or receive is written down for them."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.law.source import ROOT, obey, read
from topicsd import __version__
from topicsd.model.errors import STATUS
from topicsd.model.settings import Settings, specs
from topicsd.model.sources import load

# A setting in etc/topicsd.toml stands as `#name = value`, ready to be uncommented.
_TOML_LINE = re.compile(r"^#(?=[a-z_]+ = )", re.MULTILINE)
# Their defaults are unset or depend on the machine, so the file shows an example.
_EXAMPLES = {
    "port_file",
    "api_keys",
    "cold_dir",
    "ephemeral_dir",
    "wal_shards",
    "stream_long_poll_ms",
    "public_url",
    "test_clock_file",
    "test_lag_file",
    "test_min_heartbeat_ms",
}


@pytest.fixture(scope="module")
def readme() -> str:
    return read("README.md")


def test_every_setting_is_in_the_readme(readme: str) -> None:
    """README.md names every TOPICS_* variable."""
    obey(
        [
            f"README.md:1: {spec.variable} is not documented ({spec.doc.text})"
            for spec in specs().values()
            if f"`{spec.variable}`" not in readme
        ]
    )


def test_the_readme_names_no_unknown_setting(readme: str) -> None:
    """Every TOPICS_* variable in README.md exists."""
    known = {spec.variable for spec in specs().values()}
    obey(
        [
            f"README.md:{number}: {word} does not exist"
            for number, line in enumerate(readme.splitlines(), start=1)
            for word in re.findall(r"\bTOPICS_[A-Z_]+[A-Z]\b", line)
            if word not in known
        ]
    )


def test_every_setting_is_in_the_example_file() -> None:
    """etc/topicsd.toml, uncommented, holds every setting once and parses to the defaults."""
    shown = tomllib.loads(_TOML_LINE.sub("", read("etc/topicsd.toml")))
    assert list(specs()) == list(shown)
    parsed = load({}, shown).settings
    defaults = Settings()
    obey(
        [
            f"etc/topicsd.toml:1: {name} shows {getattr(parsed, name)}"
            for name in specs()
            if name not in _EXAMPLES and getattr(parsed, name) != getattr(defaults, name)
        ]
    )


def test_the_example_file_changes_nothing_as_it_is() -> None:
    """etc/topicsd.toml can be passed to --config untouched."""
    assert tomllib.loads(read("etc/topicsd.toml")) == {}


def test_every_error_code_is_in_the_readme(readme: str) -> None:
    """README.md names every error code with its status."""
    obey(
        [
            f"README.md:1: error code {code} ({status}) is not documented"
            for code, status in STATUS.items()
            if not re.search(rf"^.*`{code}`.*\b{status}\b|^.*\b{status}\b.*`{code}`", readme, re.M)
        ]
    )


def test_every_route_is_in_the_readme(readme: str) -> None:
    """README.md names method and path of every route."""
    from topicsd.web.routes import ROUTES

    obey(
        [
            f"README.md:1: {route.method} {route.path} is not documented"
            for route in ROUTES
            if f"{route.method} {_readable(route.path)}" not in readme
        ]
    )


def _readable(path: str) -> str:
    """A path as people write it: `<topic:str>` and `{topic}` read `:topic`."""
    return re.sub(r"[<{](\w+)[^>}]*[>}]", r":\1", path)


def test_every_endpoint_links_to_its_tests(readme: str) -> None:
    """Each row of the endpoint table leads to test files that are there."""
    rows = re.findall(r"^\| `(?:GET|PUT|POST|DELETE) /.*$", readme, re.MULTILINE)
    assert rows
    obey(
        [
            f"README.md:1: {row[:60]}: {link}"
            for row in rows
            for link in re.findall(r"\]\(([^)]*)\)", row) or ["no link"]
            if not re.fullmatch(r"tests/contract/v\d/test_\w+\.py", link)
            or not (ROOT / link).is_file()
        ]
    )


def test_the_changelog_knows_this_version() -> None:
    """CHANGELOG.md has a section for the version the code reports."""
    assert __version__ in read("CHANGELOG.md")


def test_places_named_in_contributing_exist() -> None:
    """The table in CONTRIBUTING.md sends nobody to a place that is not there."""
    table = [line for line in read("CONTRIBUTING.md").splitlines() if line.startswith("| ")]
    named = {word for line in table for word in re.findall(r"`([\w./]+/[\w./]*)`", line)}
    assert named
    obey(
        [
            f"CONTRIBUTING.md:1: {place} does not exist"
            for place in sorted(named)
            if not (ROOT / place).exists()
        ]
    )

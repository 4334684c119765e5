"""Reading settings: precedence, parsing, and refusals that name the culprit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topicsd.model.settings import Settings, SettingsError, specs
from topicsd.model.sources import load


def refusal(environ: dict[str, str] | None = None, file: dict[str, Any] | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        load(environ or {}, file)
    return str(refused.value)


def test_nothing_given_is_all_defaults() -> None:
    """An empty environment starts the default server."""
    loaded = load({"PATH": "/bin", "TOPICAL": "x"})
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}
    assert list(loaded.sources) == list(specs())


def test_flags_win_over_environment_over_file_over_defaults() -> None:
    """Each source overrides those before it, one setting at a time."""
    file = {"port": 1, "workers": 1, "max_limit": 1}
    environ = {"TOPICS_PORT": "2", "TOPICS_WORKERS": "2"}
    loaded = load(environ, file, {"port": "3", "host": None})
    settings = loaded.settings
    assert (settings.port, settings.workers, settings.max_limit) == (3, 2, 1)
    assert [loaded.sources[name] for name in ("port", "workers", "max_limit", "host")] == [
        "flag",
        "env",
        "file",
        "default",
    ]


@pytest.mark.parametrize("name", list(specs()))
def test_every_setting_can_be_given_in_the_environment(name: str) -> None:
    """TOPICS_ plus the name in capitals reaches the field."""
    spec = specs()[name]
    samples: dict[Any, str] = {int: str(spec.doc.high), bool: "1", Path: "/some/where", str: "h"}
    text = spec.choices[0] if spec.choices else samples.get(spec.kind, "key:r:a:")
    loaded = load({spec.variable: text})
    assert loaded.sources[name] == "env"
    assert isinstance(getattr(loaded.settings, name), spec.kind)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False)],
)
def test_booleans_are_four_words(text: str, value: bool) -> None:
    """1, true, 0 and false."""
    assert load({"TOPICS_PROBE_AUTH": text}).settings.probe_auth is value


@pytest.mark.parametrize("text", ["", "yes", "on", "2", " 1", "t"])
def test_other_words_are_no_booleans(text: str) -> None:
    """A word that might mean yes is refused, not guessed."""
    assert f"TOPICS_PROBE_AUTH={text} is refused" in refusal({"TOPICS_PROBE_AUTH": text})


@pytest.mark.parametrize(
    "text", ["", "x", "4_000", " 80", "+80", "8e1", "80.0", "٨٠", "--1", "9" * 5000]
)
def test_other_spellings_are_no_numbers(text: str) -> None:
    """Digits only; the message names the variable and the value."""
    message = refusal({"TOPICS_PORT": text})
    assert f"TOPICS_PORT={text[:200]} is refused: must be a whole number" == message


@pytest.mark.parametrize("name", [name for name, spec in specs().items() if spec.kind is int])
def test_numbers_are_accepted_exactly_within_their_bounds(name: str) -> None:
    """Both edges pass, one past either is refused with the range."""
    spec = specs()[name]
    low, high = spec.doc.low, spec.doc.high
    assert low is not None
    assert high is not None
    for value in (low, high):
        assert getattr(load({spec.variable: str(value)}).settings, name) == value
    for value in (low - 1, high + 1):
        assert f"must be from {low} to {high}" in refusal({spec.variable: str(value)})


def test_an_unknown_variable_is_refused_with_the_nearest_one() -> None:
    """A typo is never silent."""
    message = refusal({"TOPICS_PROT": "4000"})
    assert message == "unknown variable TOPICS_PROT; did you mean TOPICS_PORT?"
    assert refusal({"TOPICS_ZZZZZZZZZZ": ""}) == "unknown variable TOPICS_ZZZZZZZZZZ"


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_one() -> None:
    """The same for files; sections do not exist."""
    assert refusal(file={"prot": 1}) == "unknown setting prot in the file; did you mean port?"
    assert "unknown setting server" in refusal(file={"server": {"port": 1}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", True),
        ("port", 80.0),
        ("port", [80]),
        ("probe_auth", 1),
        ("probe_auth", "yes"),
        ("host", 5),
        ("host", ""),
        ("data_dir", 5),
        ("data_dir", ""),
        ("data_dir", "a\0b"),
        ("api_keys", 5),
        ("api_keys", [5]),
        ("api_keys", []),
        ("log_level", "loud"),
        ("log_level", "INFO"),
    ],
)
def test_a_mistyped_value_in_the_file_is_refused(name: str, value: Any) -> None:
    """The message names the key."""
    assert refusal(file={name: value}).startswith(f"{name}=")


def test_the_file_may_list_keys() -> None:
    """A TOML array of entries reads like the comma-separated text."""
    listed = load({}, {"api_keys": ["a:r", "b"]}).settings.api_keys
    assert listed == load({"TOPICS_API_KEYS": "a:r,b"}).settings.api_keys


@pytest.mark.parametrize("text", ["", "hunter2:oops", "hunter2,hunter2", "hunter2:r:|x"])
def test_a_refused_secret_is_not_shown(text: str) -> None:
    """The variable is named, the value is not."""
    message = refusal({"TOPICS_API_KEYS": text})
    assert message.startswith("TOPICS_API_KEYS=*** is refused: ")
    assert "hunter2" not in message
    assert "oops" not in message


def test_an_empty_optional_variable_is_unset() -> None:
    """`TOPICS_COLD_DIR=` is how a shell says that there is none."""
    settings = load({"TOPICS_COLD_DIR": "", "TOPICS_TEST_MIN_HEARTBEAT_MS": ""}).settings
    assert settings.cold_dir is None
    assert settings.test_min_heartbeat_ms is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0.0.0.0:5000", "0.0.0.0", 5000),
        ("example.org:0", "example.org", 0),
        ("[::1]:5000", "::1", 5000),
        ("[::1]", "::1", 4000),
        ("::1", "::1", 4000),
        ("localhost", "localhost", 4000),
    ],
)
def test_a_host_may_carry_a_port(text: str, host: str, port: int) -> None:
    """`host:port` sets both, IPv6 in brackets or bare."""
    settings = load({"TOPICS_HOST": text}).settings
    assert (settings.host, settings.port) == (host, port)


@pytest.mark.parametrize("text", ["", ":80", "h:", "h:x", "h:70000", "[::1]x", "[::1]:", "h:-1"])
def test_a_bad_host_is_refused(text: str) -> None:
    """The message names TOPICS_HOST."""
    assert refusal({"TOPICS_HOST": text}).startswith("TOPICS_HOST=")


def test_the_port_inside_a_host_obeys_precedence() -> None:
    """A flag's port wins over an environment's host:port; one source may not disagree."""
    assert load({"TOPICS_HOST": "h:1"}, {}, {"port": "2"}).settings.port == 2
    assert load({"TOPICS_PORT": "1"}, {}, {"host": "h:2"}).settings.port == 2
    assert load({"TOPICS_HOST": "h:1", "TOPICS_PORT": "1"}).settings.port == 1
    message = refusal({"TOPICS_HOST": "h:1", "TOPICS_PORT": "2"})
    assert message == "TOPICS_HOST=h:1 and TOPICS_PORT=2 name different ports"


def test_a_refused_flag_is_named_as_it_was_typed() -> None:
    """People see --data-dir, not a variable they never set."""
    with pytest.raises(SettingsError, match="--data-dir= is refused"):
        load({}, {}, {"data_dir": ""})

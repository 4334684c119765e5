"""The table of settings: complete, coherent, and careful with exposure."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from topicsd.model import settings as module
from topicsd.model.keys import KeyRing
from topicsd.model.settings import Settings, SettingsError, check_exposure, is_loopback, specs


def test_defaults_are_those_of_the_contract() -> None:
    """API 2 and 11, and the operations notes, state these numbers."""
    settings = Settings()
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 4000, Path("data"))
    assert (settings.max_batch_records, settings.max_record_bytes) == (10_000, 1_048_576)
    assert (settings.max_body_bytes, settings.max_meta_bytes) == (67_108_864, 16_384)
    assert (settings.max_tag_bytes, settings.max_node_bytes) == (256, 128)
    assert (settings.max_limit, settings.max_claim, settings.max_watch_topics) == (1000, 1000, 256)
    assert (settings.max_topics, settings.max_routers) == (100_000, 10_000)
    assert (settings.max_watch_sessions, settings.max_sse_connections) == (10_000, 10_000)
    assert (settings.max_sse_connections_per_key, settings.max_inflight_per_key) == (1000, 1000)
    assert settings.max_total_bytes == 0


def test_every_default_is_within_its_bounds() -> None:
    """The server starts without any configuration."""
    settings = Settings()
    for name, spec in specs().items():
        value = getattr(settings, name)
        if spec.doc.low is not None and spec.doc.high is not None and value is not None:
            assert spec.doc.low <= value <= spec.doc.high, name
        if spec.choices:
            assert value in spec.choices, name


def test_every_number_has_bounds() -> None:
    """Everything has a limit, settings included."""
    unbounded = [
        name
        for name, spec in specs().items()
        if spec.kind is int and (spec.doc.low is None or spec.doc.high is None)
    ]
    assert unbounded == []


def test_every_setting_says_what_it_is_on_one_line() -> None:
    """The table is its own documentation."""
    assert [
        name for name, spec in specs().items() if not spec.doc.text or "\n" in spec.doc.text
    ] == []


def test_wal_shards_follow_the_cores_up_to_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """min(cores, 8), and one when the count is unknown."""
    for cores, shards in ((1, 1), (4, 4), (64, 8), (None, 1)):
        monkeypatch.setattr(module.os, "cpu_count", lambda cores=cores: cores)
        assert Settings().wal_shards == shards


def test_ephemeral_topics_live_in_shared_memory() -> None:
    """Where the machine has it, their directories are under /dev/shm."""
    assert Settings().ephemeral_dir == Path("/dev/shm")


def test_ephemeral_topics_live_in_the_data_directory_without_shared_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine without /dev/shm still serves them."""
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path / "absent")
    assert Settings(data_dir=tmp_path).ephemeral_dir == tmp_path / "ephemeral"


def test_an_explicit_ephemeral_directory_is_kept(tmp_path: Path) -> None:
    """Only an unset one is derived."""
    assert Settings(ephemeral_dir=tmp_path).ephemeral_dir == tmp_path


def test_settings_survive_pickling() -> None:
    """Every process gets the same values."""
    settings = Settings(api_keys=KeyRing.parse("hunter2:r"), cold_dir=Path("/cold"))
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "hunter2" not in repr(settings)
    assert b"hunter2" not in pickle.dumps(settings)


def test_settings_do_not_change() -> None:
    """A frozen value can be shared without care."""
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    """A name that would have to be resolved counts as reachable."""
    assert is_loopback(host) is loopback


def test_a_reachable_bind_without_keys_is_refused() -> None:
    """API 0.2: never an accidental public event store; the message says what to do."""
    with pytest.raises(SettingsError) as refused:
        check_exposure(Settings(host="0.0.0.0"))
    for word in ("0.0.0.0", "TOPICS_API_KEYS", "TOPICS_ALLOW_INSECURE_NO_AUTH=1"):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(host="127.0.0.1"),
        Settings(host="0.0.0.0", api_keys=KeyRing.parse("k")),
        Settings(host="0.0.0.0", allow_insecure_no_auth=True),
    ],
)
def test_a_bind_that_is_local_keyed_or_accepted_is_allowed(settings: Settings) -> None:
    """Keys, loopback or an explicit word: one is enough."""
    check_exposure(settings)

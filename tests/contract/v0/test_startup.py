"""A server that must not start does not (API 0.2): fail closed, one clear line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.server import REPOSITORY, command, environment


def serve(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    settings = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data"), **env}
    return subprocess.run(
        command("serve"),
        cwd=REPOSITORY,
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    output = result.stdout + result.stderr
    assert result.returncode not in (0, None), output
    assert "Traceback" not in output
    for word in words:
        assert word in output


@pytest.mark.parametrize("entry", ["key:reed", "key:r+x", "key:rwx", "key:read write", "key:R+q"])
def test_a_malformed_scope_refuses_to_start(tmp_path: Path, entry: str) -> None:
    """API 0.2: fail-closed, naming the variable and never the secret."""
    result = serve(tmp_path, TOPICS_API_KEYS=f"topsecret-{entry}")
    assert_refused(result, "TOPICS_API_KEYS")
    assert "topsecret" not in result.stdout + result.stderr


def test_a_public_bind_without_keys_refuses_to_start(tmp_path: Path) -> None:
    """API 0.2: a non-loopback bind without keys needs TOPICS_ALLOW_INSECURE_NO_AUTH."""
    result = serve(tmp_path, TOPICS_HOST="0.0.0.0")
    assert_refused(result, "TOPICS_ALLOW_INSECURE_NO_AUTH", "TOPICS_API_KEYS")


@pytest.mark.parametrize(
    "name, value",
    [
        ("TOPICS_PORT", "http"),
        ("TOPICS_PORT", "70000"),
        ("TOPICS_WORKERS", "0"),
        ("TOPICS_MAX_BODY_BYTES", "-1"),
        ("TOPICS_MAX_LIMIT", "many"),
        ("TOPICS_PROBE_AUTH", "perhaps"),
    ],
)
def test_a_bad_setting_is_named(tmp_path: Path, name: str, value: str) -> None:
    """Issue 2: the message names the variable and the value."""
    assert_refused(serve(tmp_path, **{name: value}), name, value)

"""The listening socket is bound as asked, or refused in one line."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest.mock import Mock

import pytest

from topicsd.serve import listener
from topicsd.serve.refusals import StartRefused
from topicsd.storage.fs import Files


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_port_zero_takes_a_free_port(host: str) -> None:
    """The bound address can be connected to."""
    with listener.bind(host, 0) as bound, socket.create_connection(bound.getsockname()[:2]):
        assert bound.getsockname()[1] > 0


def test_location_is_what_a_client_would_write() -> None:
    """`host:port`, with an IPv6 host in brackets."""
    with listener.bind("127.0.0.1", 0) as four:
        assert listener.location(four) == f"127.0.0.1:{four.getsockname()[1]}"
    six = Mock(getsockname=lambda: ("::1", 4000, 0, 0))
    assert listener.location(six) == "[::1]:4000"


def test_taken_port_is_refused_with_its_address() -> None:
    """The refusal names the address and says that it is in use."""
    with listener.bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(StartRefused, match=rf"127\.0\.0\.1:{port}.*in use"):
            listener.bind("127.0.0.1", port)


def test_unknown_host_is_refused() -> None:
    """A name that does not resolve is a refusal, not a traceback."""
    with pytest.raises(StartRefused, match=r"no-such-host\.invalid"):
        listener.bind("no-such-host.invalid", 0)


def test_port_file_is_replaced_whole(tmp_path: Path) -> None:
    """Readers find one line, and nothing else is left in the directory."""
    path = tmp_path / "port"
    path.write_text("stale and much longer than the new content")
    with listener.bind("127.0.0.1", 0) as bound:
        listener.write_port_file(Files(), path, bound)
        assert path.read_text() == f"{listener.location(bound)}\n"
    assert list(tmp_path.iterdir()) == [path]


def test_port_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A missing directory is named in the refusal."""
    with (
        listener.bind("127.0.0.1", 0) as bound,
        pytest.raises(StartRefused, match="TOPICS_PORT_FILE"),
    ):
        listener.write_port_file(Files(), tmp_path / "absent" / "port", bound)

"""What was acknowledged survives `kill -9` (streams spec 1.1; issue of durability)."""

from __future__ import annotations

from collections.abc import Callable

from tests.harness.server import Server
from tests.harness.streams import JSON, TEXT, Streams, failed, is_closed, offset_of


def _crash(mortal: Server) -> None:
    mortal.crash()
    mortal.wait_ready()


def test_appends_survive_a_kill(mortal: Server, mortal_streams: Streams, name: str) -> None:
    """Every acknowledged byte is there, at the same offset."""
    tail = mortal_streams.create(name, b"one ", b"two ")
    _crash(mortal)
    assert mortal_streams.read(name) == b"one two "
    assert offset_of(mortal_streams.head(name)) == tail
    assert mortal_streams.post(name, b"three", content_type=TEXT).status_code == 204
    assert mortal_streams.get(name, offset=tail).content == b"three"


def test_a_close_survives_a_kill(mortal: Server, mortal_streams: Streams, name: str) -> None:
    """Closed is for good, and its closer is remembered."""
    mortal_streams.json(name, b"1")
    closed = {"stream_closed": "true"}
    assert mortal_streams.produce(name, b"2", 0, 0, content_type=JSON, **closed).status_code == 200
    _crash(mortal)
    assert is_closed(mortal_streams.head(name))
    failed(mortal_streams.post(name, b"3", content_type=JSON), 409, "stream_closed")
    again = mortal_streams.produce(name, b"2", 0, 0, content_type=JSON, **closed)
    assert again.status_code == 204 and is_closed(again)
    assert mortal_streams.read(name) == b"[1,2]"


def test_producers_survive_kills(mortal: Server, mortal_streams: Streams, name: str) -> None:
    """State and data commit together: a retry after a crash is a duplicate, or is accepted."""
    mortal_streams.json(name)
    for seq in range(3):
        assert mortal_streams.produce(name, b"%d" % seq, 1, seq, content_type=JSON).is_success
        _crash(mortal)
        again = mortal_streams.produce(name, b"%d" % seq, 1, seq, content_type=JSON)
        assert (again.status_code, again.headers["producer-seq"]) == (204, str(seq))
    failed(mortal_streams.produce(name, b"9", 0, 0, content_type=JSON), 403, "producer_fenced")
    failed(mortal_streams.produce(name, b"9", 1, 9, content_type=JSON), 409, "producer_gap")
    assert mortal_streams.read(name) == b"[0,1,2]"


def test_stream_seq_survives_a_kill(mortal: Server, mortal_streams: Streams, name: str) -> None:
    """The last `Stream-Seq` is part of the append."""
    mortal_streams.create(name)
    assert mortal_streams.post(name, b"a", content_type=TEXT, stream_seq="5").is_success
    _crash(mortal)
    again = mortal_streams.post(name, b"b", content_type=TEXT, stream_seq="5")
    failed(again, 409, "stream_seq_conflict")
    assert mortal_streams.read(name) == b"a"


def test_forks_survive_a_kill(mortal: Server, mortal_streams: Streams, name: str) -> None:
    """A fork keeps what it inherited and its own, also when its source is deleted."""
    mortal_streams.create(name, b"ab", b"cd")
    fork = f"{name}-fork"
    assert mortal_streams.fork(fork, name, b"ef").status_code == 201
    assert mortal_streams.delete(name).status_code == 204
    _crash(mortal)
    assert mortal_streams.read(fork) == b"abcdef"
    failed(mortal_streams.get(name), 410, "stream_gone")
    assert mortal_streams.delete(fork).status_code == 204
    failed(mortal_streams.get(name), 404)


def test_a_deletion_survives_a_kill(mortal: Server, mortal_streams: Streams, name: str) -> None:
    """Gone is gone; the next life of the name has offsets of its own."""
    tail = mortal_streams.create(name, b"old")
    mortal_streams.delete(name)
    _crash(mortal)
    failed(mortal_streams.get(name), 404, "stream_not_found")
    mortal_streams.create(name, b"new")
    failed(mortal_streams.get(name, offset=tail), 410, "offset_gone")
    assert mortal_streams.read(name) == b"new"


def test_everything_survives_a_restart(launch: Callable[..., Server], name: str) -> None:
    """A clean stop and start in between: closed, forks, producers, positions."""
    server = launch()
    streams = Streams(server)
    streams.json(name, b"1")
    streams.fork(f"{name}-fork", name, b"2")
    streams.produce(name, b"3", 0, 0, content_type=JSON)
    streams.post(name, stream_closed="true")
    tail = offset_of(streams.head(name))
    streams.close()
    server.stop()
    server.start()
    server.wait_ready()
    streams = Streams(server)
    assert streams.read(name) == b"[1,3]" and is_closed(streams.get(name))
    assert streams.read(f"{name}-fork") == b"[1,2]"
    assert offset_of(streams.head(name)) == tail
    failed(streams.post(name, b"4", content_type=JSON), 409, "stream_closed")
    streams.close()

"""A host and its workers over a real Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bridge.fakes import FakeEngine, append, run, until
from topicsd.bridge import address, client, codec, server
from topicsd.bridge.client import SocketPort
from topicsd.bridge.doorbell import Doorbell
from topicsd.bridge.server import EngineHost
from topicsd.model.commands import Append, Join
from topicsd.model.errors import TopicsError
from topicsd.storage.fs import Files


class Rig:
    """A host on this loop, and ports to it."""

    def __init__(self, directory: Path, drain_timeout_ms: int = 5000) -> None:
        self.path = directory / "engine.sock"
        self.drain_timeout_ms = drain_timeout_ms
        self.faults: list[str] = []
        self.launch()

    def launch(self) -> None:
        doorbell = Doorbell()
        self.engine = FakeEngine(doorbell.ring)
        fault: Callable[[], None] = lambda: self.faults.append("fault")  # noqa: E731
        self.host = EngineHost(self.engine, doorbell, fault, self.drain_timeout_ms)
        self.serving = asyncio.ensure_future(self.host.run(address.listen(Files(), self.path)))

    async def connect(self) -> SocketPort:
        port = SocketPort(self.path, lambda: 0.5)
        port.start(asyncio.get_running_loop())
        await until(lambda: port.connected)
        return port

    async def stop(self) -> None:
        self.host.drain()
        await self.serving


async def code_of(future: asyncio.Future) -> str:
    with pytest.raises(TopicsError) as caught:
        await future
    return caught.value.code


def test_commands_of_one_iteration_are_one_batch(tmp_path: Path) -> None:
    """Forty submits from one worker arrive as one apply and answer in order."""

    async def main() -> list[int]:
        rig = Rig(tmp_path)
        port = await rig.connect()
        replies = await asyncio.gather(*(port.submit(append("a")) for _ in range(40)))
        assert [reply.first_seq for reply in replies] == list(range(1, 41))
        await port.close()
        await rig.stop()
        return rig.engine.batches

    assert run(main()) == [40]


def test_worker_hears_of_rows_moved_by_another_worker(tmp_path: Path) -> None:
    """A write through one worker wakes the waiter in the other."""

    async def main() -> bool:
        rig = Rig(tmp_path)
        writer, reader = await rig.connect(), await rig.connect()
        with reader.wakeups.subscribe([3]) as waiter:
            await writer.submit(append("abc"))
            return await waiter.wait(5)

    assert run(main()) is True


def test_held_reply_finds_its_worker(tmp_path: Path) -> None:
    """Replies released by a sync go to the worker that asked."""

    async def main() -> list[int]:
        rig = Rig(tmp_path)
        ports = [await rig.connect() for _ in range(3)]
        futures = [port.submit(append("held")) for port in ports]
        await until(lambda: sum(rig.engine.batches) == 3)
        rig.engine.sync()
        return sorted(reply.first_seq for reply in await asyncio.gather(*futures))

    assert run(main()) == [1, 2, 3]


def test_large_command_crosses_whole(tmp_path: Path) -> None:
    """A write far above the socket's buffer arrives byte for byte."""
    payload = os.urandom(1 << 20) * 24

    async def main() -> bool:
        rig = Rig(tmp_path)
        port = await rig.connect()
        seen: list[bytes] = []
        apply = rig.engine.apply

        def spy(batch):
            seen.extend(command.forms for _, command in batch if isinstance(command, Append))
            return apply(batch)

        rig.engine.apply = spy
        await asyncio.gather(*(port.submit(append("a", payload)) for _ in range(3)))
        return seen == [payload] * 3

    assert run(main())


def test_submit_while_disconnected_is_not_ready(tmp_path: Path) -> None:
    """Without an engine the refusal carries the replay progress."""

    async def main() -> TopicsError:
        port = SocketPort(tmp_path / "engine.sock", lambda: 0.5)
        port.start(asyncio.get_running_loop())
        with pytest.raises(TopicsError) as caught:
            await port.submit(append("a"))
        await port.close()
        return caught.value

    error = run(main())
    assert (error.code, error.detail) == ("not_ready", {"replay_progress": 0.5})


def test_lost_engine_fails_what_is_in_flight_and_the_next_one_serves(tmp_path: Path) -> None:
    """Commands in flight fail, waiters wake, and the port reconnects by itself."""

    async def main() -> tuple[str, bool, int]:
        rig = Rig(tmp_path, drain_timeout_ms=0)
        port = await rig.connect()
        with port.wakeups.subscribe([99]) as waiter:
            held = port.submit(append("held"))
            await until(lambda: rig.engine.batches)
            await rig.stop()
            code, woken = await code_of(held), await waiter.wait(5)
        rig.launch()
        await until(lambda: port.connected)
        return code, woken, (await port.submit(append("a"))).first_seq

    assert run(main()) == ("not_ready", True, 1)


def test_drain_waits_for_the_workers_to_leave(tmp_path: Path) -> None:
    """A draining engine serves its workers until the last one hung up, then closes."""

    async def main() -> tuple[bool, int, bool]:
        rig = Rig(tmp_path)
        port = await rig.connect()
        rig.host.drain()
        served = (await port.submit(append("a"))).first_seq
        open_meanwhile = not rig.engine.closed
        await port.close()
        await rig.serving
        return open_meanwhile, served, rig.engine.closed

    assert run(main()) == (True, 1, True)


def test_drain_gives_up_on_workers_that_stay(tmp_path: Path) -> None:
    """After the drain timeout the engine closes although a worker is connected."""

    async def main() -> bool:
        rig = Rig(tmp_path, drain_timeout_ms=20)
        await rig.connect()
        await rig.stop()
        return rig.engine.closed

    assert run(main())


def test_worker_that_sends_nonsense_is_disconnected_alone(tmp_path: Path) -> None:
    """A bad frame costs its sender the connection and nobody else anything."""

    async def main() -> tuple[bytes, int]:
        rig = Rig(tmp_path)
        port = await rig.connect()
        reader, writer = await asyncio.open_unix_connection(str(rig.path))
        writer.write(codec.PREFIX.pack(1) + b"\xc1")
        rest = await reader.read()
        writer.close()
        return rest, (await port.submit(append("a"))).first_seq

    assert run(main()) == (b"", 1)


def test_engine_bug_stops_the_host(tmp_path: Path) -> None:
    """An exception out of apply reaches the fault, which ends the process."""

    async def main() -> list[str]:
        rig = Rig(tmp_path)
        port = await rig.connect()
        port.submit(append("bug"))
        await until(lambda: rig.faults)
        return rig.faults

    assert run(main()) == ["fault"]


def test_worker_that_does_not_read_is_not_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backpressure: the host stops reading a stuck worker, and resumes when it reads."""
    monkeypatch.setattr(server, "UNREAD_BYTES_HIGH", 4096)
    monkeypatch.setattr(server, "MOVED_ROWS_MAX", 10)

    async def main() -> tuple[bool, int, bool]:
        rig = Rig(tmp_path)
        stuck = socket.socket(socket.AF_UNIX)
        stuck.connect(str(rig.path))
        stuck.setblocking(False)
        await until(lambda: rig.host._peers)
        (peer,) = rig.host._peers
        while not peer._paused:
            rig.engine.move(*range(2000))
            rig.host._deliver([], rig.engine.take_moved())
            await asyncio.sleep(0)
        stuck.send(codec.build_frame([(1, append("a"))]))
        rig.host._deliver([], list(range(11)))
        await asyncio.sleep(0.05)
        unread_meanwhile = not rig.engine.batches
        framer, outcomes = codec.Framer(), []
        while not (outcomes and outcomes[-1].replies):
            data = await asyncio.get_running_loop().sock_recv(stuck, 1 << 16)
            outcomes.extend(map(codec.read_outcome, framer.feed(data)))
        stuck.close()
        return unread_meanwhile, sum(rig.engine.batches), any(o.everything for o in outcomes)

    assert run(main()) == (True, 1, True)


def test_port_holds_back_while_the_engine_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsent commands stay in the worker, and beyond the limit they are throttled."""
    monkeypatch.setattr(client, "UNSENT_BYTES_HIGH", 4096)
    monkeypatch.setattr(client, "IN_FLIGHT_MAX", 20)

    async def main() -> tuple[bool, str]:
        deaf = address.listen(Files(), tmp_path / "engine.sock")
        port = SocketPort(tmp_path / "engine.sock", lambda: 0.0)
        port.start(asyncio.get_running_loop())
        await until(lambda: port.connected)
        futures = []
        for _ in range(20):
            futures.append(port.submit(append("a", b"x" * 2**20)))
            await asyncio.sleep(0)
        held_back = len(port._unsent) > 0
        code = await code_of(port.submit(append("a")))
        deaf.close()
        port._link._transport.abort()
        assert {await code_of(future) for future in futures} == {"not_ready"}
        await port.close()
        return held_back, code

    assert run(main()) == (True, "throttled")


def test_a_worker_joins_before_anything_else(tmp_path: Path) -> None:
    """With a number of its own, and another one on each connection."""

    async def main() -> None:
        rig = Rig(tmp_path, drain_timeout_ms=0)
        first, second = await rig.connect(), await rig.connect()
        await first.submit(append("a"))
        await second.submit(append("a"))
        assert sorted(rig.engine.workers) == sorted([first.worker, second.worker])
        assert 0 < first.worker != second.worker < 2**62
        before = first.worker
        await rig.stop()
        rig.launch()
        await until(lambda: first.connected and first.worker in rig.engine.workers)
        assert first.worker != before

    run(main())


def test_a_lost_worker_is_reported_after_all_that_it_sent(tmp_path: Path) -> None:
    """Whether it hung up or broke off; others stay."""

    async def main() -> None:
        rig = Rig(tmp_path)
        ports = [await rig.connect() for _ in range(3)]
        for port in ports:
            await port.submit(append("a"))
        await ports[0].close()
        await until(lambda: len(rig.engine.workers) == 4)
        broken = ports[1].worker
        unanswered = ports[1].submit(append("a"))
        ports[1].flush()
        ports[1]._link._transport.close()
        assert await code_of(unanswered) == "not_ready"
        await until(lambda: -broken in rig.engine.workers)
        assert rig.engine.workers[3] == -ports[0].worker
        assert rig.engine.heads["a"] == 4
        await ports[2].submit(append("a"))
        assert -ports[2].worker not in rig.engine.workers

    run(main())


def test_a_worker_that_sends_nonsense_has_left(tmp_path: Path) -> None:
    """Its connection ends like any other."""

    async def main() -> list[int]:
        rig = Rig(tmp_path)
        _, writer = await asyncio.open_unix_connection(str(rig.path))
        writer.write(bytes(codec.build_frame([(0, Join(7))])) + codec.PREFIX.pack(1) + b"\xc1")
        await until(lambda: len(rig.engine.workers) == 2)
        writer.close()
        return rig.engine.workers

    assert run(main()) == [7, -7]


def test_a_connection_that_never_joined_is_nobody(tmp_path: Path) -> None:
    """There is nothing to release when it ends."""

    async def main() -> list[int]:
        rig = Rig(tmp_path)
        _, writer = await asyncio.open_unix_connection(str(rig.path))
        await until(lambda: rig.host._peers)
        writer.close()
        await until(lambda: not rig.host._peers)
        await (await rig.connect()).submit(append("a"))
        return [worker for worker in rig.engine.workers if worker < 0]

    assert run(main()) == []


def test_the_last_worker_is_reported_before_a_drained_engine_closes(tmp_path: Path) -> None:
    """What it held is released in time to be saved."""

    async def main() -> tuple[list[bool], bool]:
        rig = Rig(tmp_path)
        port = await rig.connect()
        await port.submit(append("a"))
        rig.host.drain()
        await port.close()
        await rig.serving
        return [worker < 0 for worker in rig.engine.workers], rig.engine.closed

    assert run(main()) == ([False, True], True)


def test_a_chore_can_answer_a_worker(tmp_path: Path) -> None:
    """What a tick produces finds the one who asked."""

    async def main() -> int:
        rig = Rig(tmp_path)
        port = await rig.connect()
        future = port.submit(append("held"))
        await until(lambda: rig.engine.batches)
        rig.engine.late, rig.engine._held = rig.engine._held, []
        return (await future).first_seq

    assert run(main()) == 1


def test_socket_is_private_and_replaces_a_stale_one(tmp_path: Path) -> None:
    """The socket file has mode 0600, and a dead engine's socket is no obstacle."""
    path = tmp_path / "run" / "engine.sock"
    address.listen(Files(), path).close()
    address.listen(Files(), path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_long_data_directory_gets_a_short_address(tmp_path: Path) -> None:
    """A path above 107 bytes moves to a private directory that can be listened on."""
    deep = tmp_path / ("d" * 120)
    path = address.socket_path(deep)
    assert len(os.fsencode(path)) <= address.ADDRESS_BYTES_MAX
    assert path == address.socket_path(deep) != address.socket_path(tmp_path / ("e" * 120))
    try:
        address.listen(Files(), path).close()
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.parent.chmod(0o755)
        with pytest.raises(address.UnsafeSocketDirectory):
            address.listen(Files(), path)
    finally:
        Files().remove_directory(path.parent)

"""An audience in a process of its own: opened, made to listen round by round, sent home."""

from __future__ import annotations

import subprocess
import sys
import threading
from statistics import median
from types import TracebackType
from typing import IO, NamedTuple, Self

import msgspec

from loadtest.bench.listener import Plan, Result, Round
from loadtest.bench.server import BenchError, Child

# An audience that has not said a word for so long after its round is stuck.
GRACE_S = 180.0


class Audience:
    """The process of `loadtest.bench.listener`; leaving the `with` block hangs up."""

    def __init__(self, server: Child, plan: Plan) -> None:
        self.server = server
        self.plan = plan

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadtest.bench.listener"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            self._say(self.plan)
            self._hear(GRACE_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def listen(self, order: Round) -> Heard:
        """One round, and the processor time that it cost the server."""
        before_s = self.server.cpu_s()
        self._say(order)
        answer = self._hear(order.seconds + GRACE_S)
        result = msgspec.json.decode(answer, type=Result)
        return Heard(result, self.server.cpu_s() - before_s)

    def _say(self, message: Plan | Round) -> None:
        pipe = _pipe(self._process.stdin)
        try:
            pipe.write(msgspec.json.encode(message) + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise BenchError(f"the audience left: {self._complaint()}") from None

    def _hear(self, timeout_s: float) -> bytes:
        # A pipe cannot be read with a deadline; ending the process ends the read.
        alarm = threading.Timer(timeout_s, self._process.kill)
        alarm.start()
        try:
            line = _pipe(self._process.stdout).readline()
        finally:
            alarm.cancel()
        if not line:
            raise BenchError(f"the audience left: {self._complaint()}")
        return line

    def _complaint(self) -> str:
        text = _pipe(self._process.stderr).read().decode(errors="replace").strip()
        log = self.server.log_tail()
        return f"{text or 'no reason given'}\n{log}"

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            _pipe(pipe).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise BenchError("the audience has no pipe")
    return pipe


class Heard(NamedTuple):
    """A round as the audience heard it, and what the server spent on it."""

    result: Result
    server_cpu_s: float


class Listening:
    """All rounds of one side of a comparison; the median round counts."""

    def __init__(self) -> None:
        self.rounds: list[Heard] = []

    @property
    def rate(self) -> float:
        """Deliveries a second."""
        return median(heard.result.rate for heard in self.rounds)

    @property
    def cpu_us(self) -> float:
        """Processor time of the server for one delivery."""
        return median(heard.server_cpu_s / heard.result.deliveries * 1e6 for heard in self.rounds)

    @property
    def client_load(self) -> float:
        """How much of one core the audience itself took."""
        return median(heard.result.cpu_s / heard.result.elapsed_s for heard in self.rounds)

    @property
    def p50_ms(self) -> float:
        return median(heard.result.p50_us for heard in self.rounds) / 1000

    @property
    def p99_ms(self) -> float:
        return median(heard.result.p99_us for heard in self.rounds) / 1000


def take_turns(rounds: int, order: Round, *audiences: Audience) -> tuple[Listening, ...]:
    """Let the audiences listen in turn, so that a slow minute of the machine hits all."""
    sides = tuple(Listening() for _ in audiences)
    for _ in range(rounds):
        for side, audience in zip(sides, audiences, strict=True):
            side.rounds.append(audience.listen(order))
    return sides

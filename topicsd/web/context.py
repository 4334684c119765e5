"""What a handler may use: settings, clock, the way to the engine, the reader, the gate.

Whether the engine can serve is decided here and nowhere else. Writes need the connection, and
learn of its loss from `submit`. Reads outlive a lost connection for as long as the board does
not say that a new engine replays; before the first connection the board may be a leftover of
an earlier server and is not believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topicsd.model import errors
from topicsd.model.clock import Clock
from topicsd.model.errors import TopicsError
from topicsd.model.settings import Settings
from topicsd.web.gate import Gate
from topicsd.web.live.entries import Shared
from topicsd.web.live.pages import Pages
from topicsd.web.live.session import Sessions
from topicsd.web.live.synced import SyncedHeads
from topicsd.web.live.tunnel import Tunnel
from topicsd.web.throttle import Throttle

if TYPE_CHECKING:
    from topicsd.bridge.port import Port
    from topicsd.reader import Reader
    from topicsd.web.request import Request

_NOT_YET = frozenset({"starting", "replaying"})


class Context:
    """One a worker process; shared by all its requests."""

    def __init__(
        self, settings: Settings, clock: Clock, gate: Gate, port: Port, reader: Reader
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.gate = gate
        self.port = port
        self.reader = reader
        self.started_us = clock.monotonic_us()
        self.throttle = Throttle(
            gate, settings.throttle_lag_ms, settings.throttle_wait_ms, settings.test_lag_file
        )
        # What connections that stay open share.
        self.pages = Pages(reader)
        self.entries = Shared()
        self.synced = SyncedHeads(port, reader)
        self.sessions = Sessions(port)
        self.streams: set[Tunnel] = set()
        self._was_connected = False

    def elapsed_us(self, request: Request) -> int:
        return self.clock.monotonic_us() - request.started_us

    @property
    def engine_state(self) -> str:
        try:
            return self.reader.board.state
        except TopicsError:
            # There is no board yet.
            return "starting"

    @property
    def replay_progress(self) -> float:
        try:
            return self.reader.board.replay_progress
        except TopicsError:
            return 0.0

    def check_readable(self) -> None:
        """Raise `not_ready` while the engine has not finished its replay."""
        if self.port.connected:
            # The engine accepts connections only when it is ready.
            self._was_connected = True
        elif not self._was_connected or self.engine_state in _NOT_YET:
            raise errors.not_ready(self.replay_progress)

    def check_writable(self) -> None:
        """Raise `not_ready` while there is no engine to write through."""
        if not self.port.connected:
            raise errors.not_ready(self.replay_progress)

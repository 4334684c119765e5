"""A client with a key: its API, and connections that are all closed when it leaves."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Self

from tests.harness.api import Api
from tests.harness.server import Server


class Client:
    """Opens connections to one server; leaving the block closes what is still open."""

    def __init__(self, server: Server, token: str = "") -> None:
        self.server = server
        self.token = token
        self.api = Api(server, token)
        self.stack = ExitStack()
        self.stack.callback(self.api.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @property
    def credentials(self) -> dict[str, str]:
        """The header of the key, if there is one."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

"""Commands whose answers come when they come: each gets a ticket, and is asked for later."""

from __future__ import annotations

from tests.faults.driver import Driver
from topicsd.model.commands import Command, Reply


class Desk:
    """Sends commands to an engine and collects what it answers."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._answers: dict[int, Reply] = {}
        self._tickets = 0

    def send(self, *commands: Command) -> list[int]:
        """Apply commands as one batch, without waiting for anything."""
        first = self._tickets
        self._tickets += len(commands)
        self._note(self.driver.engine.apply(list(enumerate(commands, first))))
        return list(range(first, self._tickets))

    def post(self, *commands: Command) -> list[int]:
        """Apply commands and let the catalog catch up; whatever still waits, waits for more."""
        tickets = self.send(*commands)
        self.settle()
        return tickets

    def ask(self, command: Command) -> Reply:
        """Post one command that is answered by itself."""
        (ticket,) = self.post(command)
        return self.take(ticket)

    def tick(self) -> None:
        """Let the engine do its chores."""
        self._note(self.driver.engine.tick())
        self.settle()

    def settle(self) -> None:
        clerk = self.driver.engine.clerk
        clerk.wait(clerk._submitted)
        self._note(self.driver.engine.release())

    def take(self, ticket: int) -> Reply:
        """The answer to a command, which must be there."""
        return self._answers.pop(ticket)

    def waits(self, ticket: int) -> bool:
        return ticket not in self._answers

    def _note(self, replies: list[tuple[int, Reply]]) -> None:
        for ticket, reply in replies:
            assert ticket not in self._answers, f"ticket {ticket} is answered twice: {reply}"
            self._answers[ticket] = reply

"""Writes the catalog on its own thread, so that nothing on the append path waits for it.

Changes are numbered as they are handed in and committed in that order, as many as are
waiting in one transaction. A reply that must not come before its change is in the catalog
(a created topic, a new configuration) is held until `done` has reached the change's number.
A failed commit is final: the engine stops, and recovers from the catalog as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from topicsd.storage.catalog import CatalogWriter, Change, DropLog, SaveSegment


class Clerk:
    """A queue of catalog changes and the thread that commits them."""

    def __init__(self, catalog: CatalogWriter, notify: Callable[[], None]) -> None:
        self._catalog = catalog
        self._notify = notify
        self._wake = threading.Condition()
        self._waiting: list[Change] = []
        self._submitted = 0
        self._dropped: set[int] = set()
        self._dropped_before: set[int] = set()
        self._closing = False
        self.done = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="clerk")
        self._thread.start()

    def submit(self, changes: Sequence[Change]) -> int:
        """Queue changes and return their number."""
        with self._wake:
            self._waiting += filter(self._applies, changes)
            self._submitted += 1
            self._wake.notify_all()
            return self._submitted

    def begin_checkpoint(self) -> None:
        """Forget logs dropped before the previous checkpoint began: it saved the last of them."""
        with self._wake:
            self._dropped_before, self._dropped = self._dropped, set()

    def _applies(self, change: Change) -> bool:
        """Whether a change still makes sense: a checkpoint seals while logs are dropped."""
        if isinstance(change, DropLog):
            self._dropped.add(change.id)
        if not isinstance(change, SaveSegment):
            return True
        log_id = change.segment.log_id
        return log_id not in self._dropped and log_id not in self._dropped_before

    def wait(self, number: int) -> None:
        """Block until `number` is committed; raise what made it fail."""
        with self._wake:
            self._wake.wait_for(lambda: self.done >= number or self.failure is not None)
        self.check()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Commit what is waiting and stop."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._submitted > self.done or self._closing)
                if self._submitted == self.done:
                    return
                changes, self._waiting = self._waiting, []
                number = self._submitted
            try:
                if changes:
                    self._catalog.commit(changes)
            except BaseException as failure:
                self._finish(self.done, failure)
                return
            self._finish(number, None)

    def _finish(self, number: int, failure: BaseException | None) -> None:
        with self._wake:
            self.done, self.failure = number, failure
            self._wake.notify_all()
        self._notify()

"""A headless Chromium, driven over its DevTools protocol: no driver, no download.

It runs with a profile of its own in a directory of the test and ends with the `with` block.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from tests.harness.waiting import until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
START_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 20.0
_FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    # Tests may run as root and in containers, where its own sandbox cannot.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--no-proxy-server",
)


def find_program() -> str | None:
    """Where the browser is installed, None when it is not."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """The browser's processes."""

    def __init__(self, program: str, directory: Path) -> None:
        self._profile = directory / "profile"
        self._log = directory / "chromium.log"
        self._command = [program, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @contextmanager
    def open_page(self, url: str) -> Iterator[Page]:
        """A new tab that has loaded `url`."""
        port, path = until(self._endpoint, START_TIMEOUT_S, why="Chromium to listen")
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as connection:
            page = Page(connection, url)
            # A new tab is complete, too, before it has gone anywhere.
            loaded = f"location.href === {json.dumps(url)} && document.readyState === 'complete'"
            until(lambda: page.evaluate(loaded), START_TIMEOUT_S, why=f"{url} to load")
            yield page

    def _endpoint(self) -> tuple[str, str] | None:
        """The port and path of its DevTools, which it writes to its profile."""
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-4000:]
        told = self._profile / "DevToolsActivePort"
        lines = told.read_text().split() if told.exists() else []
        return (lines[0], lines[1]) if len(lines) == 2 else None


class Page:
    """One tab: scripts go in, values come out."""

    def __init__(self, connection: ClientConnection, url: str) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._session = ""
        target = self._call("Target.createTarget", url=url)["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def evaluate(self, script: str) -> Any:
        """Run a script in the page; its value must be JSON."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._connection.send(json.dumps(message))
        while True:
            # Between a question and its answer the browser tells of other things.
            heard = json.loads(self._connection.recv(ANSWER_TIMEOUT_S))
            if heard.get("id") == number:
                assert "error" not in heard, heard["error"]
                return heard["result"]

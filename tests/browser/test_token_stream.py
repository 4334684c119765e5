"""The README's page shows a stream of tokens, and goes on by itself when it is cut off."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser.chromium import Chromium, Page, find_program
from tests.harness.server import TWO_WORKERS, Server, start_server
from tests.harness.waiting import until

README = Path(__file__).parents[2] / "README.md"
PROGRAM = find_program()
RESUME_TIMEOUT_S = 30.0
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = start_server(tmp_path / "server", TWO_WORKERS)
    yield started
    started.finish()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    assert PROGRAM is not None, "no browser is installed: apt-get install chromium"
    with Chromium(PROGRAM, tmp_path) as started:
        yield started


def shows(page: Page, text: str) -> None:
    """Wait until the page says exactly this."""
    until(
        lambda: page.evaluate("document.getElementById('out')?.textContent") == text or None,
        RESUME_TIMEOUT_S,
        why=f"the page to show {text!r}",
    )


def test_the_page_of_the_readme_resumes(server: Server, browser: Chromium) -> None:
    """Tokens appear as they are written; after a cut none is missing and none comes twice."""
    (html,) = re.findall(r"^```html\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    chat, page_url = f"{server.url}/chat/42", f"{server.url}/page"
    httpx.put(chat, headers=JSON, content=b'[{"token":"Hel"}]').raise_for_status()
    # A page is a stream of HTML with one entry.
    kind = {"Content-Type": "text/html"}
    httpx.put(page_url, headers=kind, content=html.encode()).raise_for_status()
    with browser.open_page(page_url) as page:
        shows(page, "Hel")
        httpx.post(chat, headers=JSON, content=b'{"token":"lo"}').raise_for_status()
        shows(page, "Hello")

        for pid in server.workers_serving(browser.pid):
            os.kill(pid, signal.SIGKILL)
        server.wait_ready()
        httpx.post(chat, headers=JSON, content=b'{"token":", wor"}').raise_for_status()
        shows(page, "Hello, wor")
        end = {**JSON, "Stream-Closed": "true"}
        httpx.post(chat, headers=end, content=b'[{"token":"ld"},{"token":"!"}]').raise_for_status()
        shows(page, "Hello, world!")

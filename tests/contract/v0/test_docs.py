"""`/docs`: open to everybody, and self-contained."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser

from tests.harness.api import Api
from tests.harness.raw import RawConnection, build_request, exchange
from tests.harness.server import Server
from topicsd.web.routes import ROUTES

AsKey = Callable[[str], Api]


class Links(HTMLParser):
    """Every attribute of a page that can make a browser fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.targets: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "action", "style") or name.startswith("on"):
                self.targets.add(value or "")
            elif name == "id":
                self.ids.add(value or "")


def test_the_document_names_every_route(api: Api) -> None:
    """The served document has the operations of the table."""
    answer = api.request("GET", "/docs/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    document = answer.json()
    assert document["openapi"].startswith("3.1.")
    served = {
        f"{method.upper()} {path}" for path, row in document["paths"].items() for method in row
    }
    assert served == {
        f"{route.method} " + re.sub(r":(\w+)", r"{\1}", route.path) for route in ROUTES
    }


def test_the_page_shows_every_operation(api: Api) -> None:
    """Each method and path stands on the page, and every link leads somewhere on it."""
    answer = api.request("GET", "/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for route in ROUTES:
        path = re.sub(r":(\w+)", r"{\1}", route.path)
        assert f"{route.method} <code>{path}</code>" in answer.text
    links = Links()
    links.feed(answer.text)
    inside = {target[1:] for target in links.targets if target.startswith("#")}
    assert inside <= links.ids
    assert {target for target in links.targets if not target.startswith("#")} == {
        "/docs/openapi.json"
    }


def test_the_page_can_load_and_run_nothing(api: Api) -> None:
    """A policy without scripts, frames or sources; the one style is allowed by its digest."""
    answer = api.request("GET", "/docs")
    policy = answer.headers["content-security-policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert directives == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    links = Links()
    links.feed(answer.text)
    assert not links.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_docs_need_no_key(as_key: AsKey, launch: Callable[..., Server]) -> None:
    """They hold no secrets: no key, a wrong one, and keys on probes make no difference."""
    strict = launch("k", TOPICS_API_KEYS="k", TOPICS_PROBE_AUTH="1")
    for path in ("/docs", "/docs/openapi.json"):
        assert as_key("").request("GET", path).status_code == 200
        wrong = {"Authorization": "Bearer wrong"}
        assert as_key("").request("GET", path, headers=wrong).status_code == 200
        assert exchange(strict.address, build_request("GET", path)).status == 200
    assert exchange(strict.address, build_request("GET", "/healthz")).status == 401


def test_the_docs_answer_head_and_gzip(raw: RawConnection) -> None:
    """API 0.3: as any other GET."""
    plain = raw.request("GET", "/docs")
    packed = raw.request("GET", "/docs", None, {"Accept-Encoding": "gzip"})
    head = raw.request("HEAD", "/docs")
    assert plain.content == gzip.decompress(packed.content)
    assert packed.headers["content-type"] == plain.headers["content-type"]
    assert (head.status, head.headers["content-length"]) == (200, str(len(plain.content)))

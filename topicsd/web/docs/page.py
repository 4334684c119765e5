"""The document as a page for people: plain HTML, one inline style, no script, no outside request.

The policy allows exactly that style, by its digest, and nothing else. All text that comes
from the document is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

CONTENT_TYPE = "text/html; charset=utf-8"

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:14px/1.45 ui-monospace,monospace}
pre{overflow:auto;padding:.75rem;border:1px solid #8886;border-radius:6px}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #8884}
section{border-top:1px solid #8886;padding-top:.5rem;margin-top:1.5rem}
summary{cursor:pointer;font-weight:600}
nav a{display:block}
.method{display:inline-block;min-width:4.5rem;font-weight:700}
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

_CODE = re.compile(r"`([^`]*)`")


def render(document: dict[str, Any]) -> str:
    """The whole page."""
    info = document["info"]
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1><p>{_text(info['description'])}</p>",
            '<p><a href="/docs/openapi.json">OpenAPI document</a></p><nav><h2>Operations</h2>',
            *(_link(*operation) for operation in operations),
            "</nav>",
            *(_section(*operation) for operation in operations),
            "<h2>Types</h2>",
            *(_type(name, schema) for name, schema in schemas.items()),
            "</body></html>\n",
        ]
    )


def _text(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _link(method: str, path: str, operation: dict[str, Any]) -> str:
    return (
        f'<a href="#{escape(operation["operationId"])}"><span class="method">{method}</span>'
        f"<code>{escape(path)}</code> {_text(operation['summary'])}</a>"
    )


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<section id="{escape(operation["operationId"])}">',
        f"<h3>{method} <code>{escape(path)}</code></h3>",
        f"<p><b>{_text(operation['summary'])}.</b> {_text(operation['description'])}</p>",
    ]
    if operation["parameters"]:
        rows = [_parameter_row(parameter) for parameter in operation["parameters"]]
        parts.append(_table(("parameter", "in", "type", "meaning"), rows))
    if "requestBody" in operation:
        parts.append(_contents("Request", operation["requestBody"]["content"]))
    rows = []
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            parts.append(_contents(f"Reply {status}", response["content"]))
        else:
            rows.append((escape(status), _text(response["description"])))
    parts.append(f"<details><summary>Errors</summary>{_table(('status', 'meaning'), rows)}")
    return "".join([*parts, "</details></section>"])


def _parameter_row(parameter: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"<code>{escape(parameter['name'])}</code>",
        escape(parameter["in"]),
        _kind(parameter["schema"]),
        f"{_text(parameter['description'])} Example: <code>{_json(parameter['example'])}</code>",
    )


def _contents(title: str, content: dict[str, Any]) -> str:
    parts = []
    for media, body in content.items():
        parts.append(f"<details open><summary>{title}: {escape(media)} {_kind(body['schema'])}")
        example = body.get("example")
        shown = escape(example) if isinstance(example, str) else _json(example, indent=2)
        parts.append(f"</summary><pre>{shown}</pre></details>")
    return "".join(parts)


def _type(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (
            f"<code>{escape(field)}</code>{' (required)' if field in schema['required'] else ''}",
            _kind(member),
            _text(member["description"]),
        )
        for field, member in schema["properties"].items()
    ]
    return (
        f'<section id="type-{escape(name)}"><h3>{escape(name)}</h3>'
        f"<p>{_text(schema['description'])}</p>"
        f"{_table(('field', 'type', 'meaning'), rows)}</section>"
    )


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words, with a link when it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#type-{name}">{name}</a>'
    if "enum" in schema:
        words = " | ".join(f"<code>{_json(value)}</code>" for value in schema["enum"])
    elif "anyOf" in schema:
        words = " | ".join(_kind(part) for part in schema["anyOf"])
    elif schema.get("type") == "array" and "items" in schema:
        words = f"array of {_kind(schema['items'])}"
    else:
        kind = schema.get("type", "any JSON")
        words = escape(kind if isinstance(kind, str) else " | ".join(kind))
    if "default" in schema:
        words += f" = <code>{_json(schema['default'])}</code>"
    return words


def _json(value: Any, indent: int | None = None) -> str:
    return escape(json.dumps(value, indent=indent, ensure_ascii=False))


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"

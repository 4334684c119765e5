"""The document that `/docs` serves is valid, and leaves nothing out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.law.source import obey
from topicsd.model.errors import STATUS
from topicsd.web.openapi import build
from topicsd.web.route import Route
from topicsd.web.routes import ROUTES

Operations = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build(ROUTES)


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> Operations:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def key_of(route: Route) -> str:
    return f"{route.method} " + re.sub(r":(\w+)", r"{\1}", route.path)


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    """OpenAPI 3.1, as its own validator sees it."""
    obey([str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()])


def test_every_route_is_in_the_document(operations: Operations) -> None:
    """The table and the document have the same operations."""
    assert {key_of(route) for route in ROUTES} == set(operations)


def test_a_new_route_appears_by_itself() -> None:
    """A row that says nothing more of itself is documented all the same."""
    bare = Route("GET", "/v0/things/:thing", "read", ROUTES[0].handler, "look at a thing")
    document = build([*ROUTES, bare])
    obey([str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()])
    operation = document["paths"]["/v0/things/{thing}"]["get"]
    assert operation["summary"] == bare.summary
    assert {"200", "401", "403", "503"} <= set(operation["responses"])


def test_every_operation_says_what_it_does_and_answers(operations: Operations) -> None:
    """Summary, description, reply schema and example, and errors; a body where one is read."""
    obey([f"{key}: {problem}" for key, op in operations.items() for problem in _gaps(key, op)])


def _gaps(key: str, operation: dict[str, Any]) -> Iterator[str]:
    if not operation["summary"] or len(operation["description"]) < 30:
        yield "no summary or description (give its row an Operation)"
    responses = operation["responses"]
    contents = [responses["200" if "200" in responses else "101"]["content"]]
    if key.startswith(("POST", "PUT")):
        contents.append(operation.get("requestBody", {}).get("content", {}))
    for content in contents:
        if not content or not all("example" in media for media in content.values()):
            yield "a body without schema or example"
    if not {"400", "500"} <= set(operation["responses"]):
        yield "no errors"
    for parameter in operation["parameters"]:
        if not parameter["description"] or "example" not in parameter:
            yield f"parameter {parameter['name']} is not described"


def test_every_field_is_described(document: dict[str, Any]) -> None:
    """Each property of each type says what it means."""
    obey(
        [
            f"topicsd/web/docs/fields.py:1: {name}.{field} has no text"
            for name, schema in document["components"]["schemas"].items()
            for field, member in schema["properties"].items()
            if not member["description"]
        ]
    )


def test_examples_match_their_schemas(document: dict[str, Any], operations: Operations) -> None:
    """What is shown would be accepted, and could be answered."""
    violations = []
    for key, operation in operations.items():
        for schema, example in _examples(operation):
            whole = {**schema, "components": document["components"]}
            for error in Draft202012Validator(whole).iter_errors(example):
                violations.append(f"{key}: {error.message}")
    obey(violations)


def _examples(operation: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    for parameter in operation["parameters"]:
        yield parameter["schema"], parameter["example"]
    bodies = [operation["requestBody"]] if "requestBody" in operation else []
    for body in [*bodies, *operation["responses"].values()]:
        for media in body["content"].values():
            for example in media.get("examples", {}).values():
                yield media["schema"], example["value"]
            if "example" in media:
                yield media["schema"], media["example"]


def test_errors_are_known_codes_under_their_status(operations: Operations) -> None:
    """Every error of an operation is a code of the product, grouped by its status."""
    obey(
        [
            f"{key}: {code} under {status}"
            for key, operation in operations.items()
            for status, response in operation["responses"].items()
            if status[0] in "45"
            for code in response["content"]["application/json"]["examples"]
            if STATUS.get(code) != int(status)
        ]
    )

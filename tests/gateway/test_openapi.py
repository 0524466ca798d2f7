"""The OpenAPI description of the inspection API matches its behaviour for any request."""

from __future__ import annotations

import inspect
import json
from dataclasses import is_dataclass
from math import isfinite, nan
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Struct
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.gateway.inspecting import MAIN, example, named, world

from recto.engine.views.codec import json_schemas, to_builtins, to_json
from recto.engine.views.models import ErrorResponse
from recto.gateway.inspection.operations import OPERATIONS, PREFIX, RULES
from recto.gateway.inspection.routes import description
from recto.gateway.middleware.auth import TABLE, AccessPolicy

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with world(tmp_path_factory.mktemp("described")) as found:
        found.talk("anna", MAIN, 3, words=2)
        yield found


@pytest.fixture(scope="module")
def document(made):
    return made.get("/openapi.json")


def test_every_route_is_described_and_everything_described_is_a_route(made, document):
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    routed = {(method, route.path) for route in made.routes for method in route.methods - {"HEAD"}}
    assert described == routed == {(rule.method, rule.path) for rule in RULES}


def test_every_route_needs_a_right_that_the_guard_knows(made):
    assert AccessPolicy(TABLE, RULES).missing(made.routes) == []
    for operation in OPERATIONS:
        assert AccessPolicy(TABLE, RULES).needs(operation.method, PREFIX + operation.path) == {operation.right}


def test_only_reading_operations_need_the_read_right():
    more_than_reading = {
        named(operation) for operation in OPERATIONS if operation.method == "GET" and operation.right != "read"
    }
    assert more_than_reading == {"GET /keys", "GET /settings"}
    assert {
        named(operation) for operation in OPERATIONS if operation.method != "GET" and operation.right == "read"
    } == {"POST /session/recall"}


def test_the_description_is_well_formed_and_all_its_references_resolve(document):
    assert document["openapi"].startswith("3.1")
    names = set(document["components"]["schemas"])
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)

    def references(value):
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for member in value.values():
                yield from references(member)
        elif isinstance(value, list):
            for member in value:
                yield from references(member)

    for reference in references(document):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in (names if kind == "schemas" else document["components"]["responses"])
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)
    assert all(operation["summary"] for methods in document["paths"].values() for operation in methods.values())


def test_every_route_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert f"`{rule.method} {rule.path}`" in page
    for operation in OPERATIONS:
        section = page.split(f"### {operation.method} {PREFIX}{operation.path}\n", 1)[1].split("\n### ", 1)[0]
        for name in {*operation.query, *(operation.body or {})}:
            assert f"| `{name}` |" in section, f"{named(operation)}: {name}"


def test_no_two_types_share_a_name_in_the_description():
    seen: dict[str, type] = {}

    def visit(kind) -> None:
        if inspect.isclass(kind) and (is_dataclass(kind) or issubclass(kind, Struct)):
            assert seen.setdefault(kind.__name__, kind) is kind
            for hint in get_type_hints(kind).values():
                visit(hint)
        for part in get_args(kind):
            visit(part)

    for operation in OPERATIONS:
        visit(operation.result)
    assert seen.keys() | {"ErrorResponse", "ErrorDetail"} == description(OPERATIONS)["components"]["schemas"].keys()


def test_a_value_and_its_schema_have_the_same_fields():
    schema = json_schemas([ErrorResponse], "#/{name}")["ErrorResponse"]
    assert list(schema["properties"]) == schema["required"] == list(ErrorResponse.__struct_fields__)


@given(st.floats(), st.text(), st.integers())
@settings(max_examples=50)
def test_any_number_and_any_text_can_be_serialized(number, text, whole):
    value = {"a": (number, {text: whole})}
    expected = [number if isfinite(number) else None, {text: whole}]
    assert json.loads(to_json(value)) == to_builtins(value) == {"a": expected}


@pytest.mark.parametrize("number", [1.5, nan])
def test_a_lone_surrogate_is_serialized_as_an_escape(number):
    value = {"text": "\ud83d", "number": number}
    assert json.loads(to_json(value)) == {"text": "\ud83d", "number": number if isfinite(number) else None}


@pytest.mark.parametrize("path", sorted({rule.path for rule in RULES}))
def test_requests_without_a_key_and_wrong_methods_are_refused(made, path):
    known = {rule.method for rule in RULES if rule.path == path}
    for method in METHODS:
        unknown = made.client.request(method, path)
        assert unknown.status_code == 401
        assert unknown.headers["www-authenticate"] == "Bearer"
        if method not in known:
            refused = made.client.request(method, path, headers=made.headers("anna"))
            assert refused.status_code == 405
            assert refused.json()["error"]["message"]


def test_a_head_request_is_answered_without_a_body(made):
    answer = made.client.head(f"{PREFIX}/session", params={"session": MAIN}, headers=made.headers("anna"))
    assert answer.status_code == 200


@pytest.fixture(scope="module")
def schema(made, document):
    found = schemathesis.openapi.from_dict(document | {"security": []})  # the key is sent below
    found.app = made.app
    return found


WAYS = [
    pytest.param(operation, mode, id=f"{named(operation)}-{mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or operation.query
    or operation.body  # without parameters no request can be invalid
]


@pytest.mark.parametrize(("operation", "mode"), WAYS)
def test_responses_to_generated_requests_match_the_description(made, schema, operation, mode, scale):
    """schemathesis generates valid and invalid requests from the description; valid ones use existing ids."""
    described = schema[PREFIX + operation.path][operation.method]
    there = example(operation)[0] if mode is GenerationMode.POSITIVE else {}
    headers = {"authorization": f"Bearer {made.secrets['anna']}"}

    @given(case=described.as_strategy(generation_mode=mode))
    @settings(
        max_examples=scale(6, release=100),
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case) -> None:
        case.query = {**case.query, **there}
        case.call_and_validate(base_url="http://127.0.0.1", headers=headers, checks=CHECKS)

    ask()

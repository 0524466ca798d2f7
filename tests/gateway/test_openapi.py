"""The description of the inspection API and the API itself say the same, whatever is sent."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields, is_dataclass
from math import isfinite, nan
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
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
def told(made):
    return made.get("/openapi.json")


def test_every_route_is_described_and_everything_described_is_a_route(made, told):
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    routed = {(method, route.path) for route in made.routes for method in route.methods - {"HEAD"}}
    assert described == routed == {(rule.method, rule.path) for rule in RULES}


def test_every_route_needs_a_right_that_the_guard_knows(made):
    assert AccessPolicy(TABLE, RULES).missing(made.routes) == []
    for one in OPERATIONS:
        assert AccessPolicy(TABLE, RULES).needs(one.method, PREFIX + one.path) == {one.right}


def test_what_changes_something_is_not_done_by_who_may_only_look():
    more_than_reading = {named(one) for one in OPERATIONS if one.method == "GET" and one.right != "read"}
    assert more_than_reading == {"GET /keys", "GET /settings"}
    assert {named(one) for one in OPERATIONS if one.method != "GET" and one.right == "read"} == {"POST /session/recall"}


def test_the_description_is_well_formed_and_leads_nowhere_else(told):
    assert told["openapi"].startswith("3.1")
    names = set(told["components"]["schemas"])
    for schema in told["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)

    def references(value):
        if isinstance(value, dict):
            yield from ([value["$ref"]] if "$ref" in value else [])
            for held in value.values():
                yield from references(held)
        elif isinstance(value, list):
            for held in value:
                yield from references(held)

    for reference in references(told):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in (names if kind == "schemas" else told["components"]["responses"])
    ids = [one["operationId"] for methods in told["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)
    assert all(one["summary"] for methods in told["paths"].values() for one in methods.values())


def test_every_route_stands_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert f"`{rule.method} {rule.path}`" in page
    for one in OPERATIONS:
        section = page.split(f"### {one.method} {PREFIX}{one.path}\n", 1)[1].split("\n### ", 1)[0]
        for name in {*one.query, *(one.body or {})}:
            assert f"| `{name}` |" in section, f"{named(one)}: {name}"


def test_no_two_values_share_a_name_in_the_description():
    seen: dict[str, type] = {}

    def visit(kind) -> None:
        if is_dataclass(kind) and inspect.isclass(kind):
            assert seen.setdefault(kind.__name__, kind) is kind
            for hint in get_type_hints(kind).values():
                visit(hint)
        for part in get_args(kind):
            visit(part)

    for one in OPERATIONS:
        visit(one.result)
    assert seen.keys() | {"ErrorResponse", "ErrorDetail"} == description(OPERATIONS)["components"]["schemas"].keys()


def test_a_value_and_its_description_are_made_of_the_same_fields():
    schema = json_schemas([ErrorResponse], "#/{name}")["ErrorResponse"]
    assert list(schema["properties"]) == schema["required"] == [one.name for one in fields(ErrorResponse)]


@given(st.floats(), st.text(), st.integers())
@settings(max_examples=50)
def test_any_number_and_any_text_can_be_told(number, text, whole):
    value = {"a": (number, {text: whole})}
    expected = [number if isfinite(number) else None, {text: whole}]
    assert json.loads(to_json(value)) == to_builtins(value) == {"a": expected}


@pytest.mark.parametrize("number", [1.5, nan])
def test_half_of_a_surrogate_pair_goes_out_as_an_escape(number):
    value = {"text": "\ud83d", "number": number}
    assert json.loads(to_json(value)) == {"text": "\ud83d", "number": number if isfinite(number) else None}


@pytest.mark.parametrize("path", sorted({rule.path for rule in RULES}))
def test_without_a_key_nothing_is_told_and_wrong_methods_are_refused(made, path):
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
def schema(made, told):
    found = schemathesis.openapi.from_dict(told | {"security": []})  # the key is brought below
    found.app = made.app
    return found


WAYS = [
    pytest.param(one, mode, id=f"{named(one)}-{mode.value}")
    for one in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or one.query or one.body  # where nothing is taken, nothing can be wrong
]


@pytest.mark.parametrize(("one", "mode"), WAYS)
def test_whatever_is_sent_is_answered_as_described(made, schema, one, mode, scale):
    """schemathesis makes requests by the description, right ones and wrong ones; the right ones of what is there."""
    operation = schema[PREFIX + one.path][one.method]
    there = example(one)[0] if mode is GenerationMode.POSITIVE else {}
    headers = {"authorization": f"Bearer {made.secrets['anna']}"}

    @given(case=operation.as_strategy(generation_mode=mode))
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

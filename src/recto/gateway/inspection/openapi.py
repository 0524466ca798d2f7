"""The description of the inspection API, made of the same table as its routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recto.engine.views.codec import json_schemas
from recto.engine.views.models import ErrorResponse
from recto.gateway.inspection.operations import DESCRIPTION, PREFIX, STALENESS, Operation
from recto.gateway.inspection.params import Kinds
from recto.version import __version__

_REFERENCE = "#/components/schemas/{name}"
_REFUSALS = {
    "400": "The request cannot be read, or names something that is not taken here.",
    "401": "There is no key, or it is not one that is known.",
    "403": "The key lacks the right that is needed.",
    "404": "There is no such thing, or not for this key.",
    "409": "It cannot be done as things stand; the message says why.",
    "413": "The body is too large.",
    "415": "The body is not said to be JSON.",
    "422": "What is asked for is not possible; the message says why.",
    "429": "Too many requests; come back later.",
    "503": "The store or the gateway cannot do this now; nothing was lost.",
}


def description(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole of it, as OpenAPI 3.1."""
    operations = tuple(operations)
    schemas = json_schemas((ErrorResponse, *(one.gives for one in operations)), _REFERENCE)
    paths: dict[str, Any] = {DESCRIPTION: {"get": _self_description()}}
    for one in operations:
        paths.setdefault(PREFIX + one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Recto: inspection and administration",
            "version": __version__,
            "description": "What the model sees of a session, what it does not, and why. Times are microseconds since "
            "1970. Everything is of the key's tenant; what belongs to others is as if it were not there.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                status: {"description": says, "content": {"application/json": {"schema": _reference(ErrorResponse)}}}
                for status, says in _REFUSALS.items()
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _reference(model: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=model.__name__)}


def _operation(one: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": one.name,
        "summary": (one.does.__doc__ or "").strip(),
        "description": f"Needs the right '{one.right}'.",
        "parameters": [_parameter(name, one.query) for name in one.query],
        "responses": _responses(_reference(one.gives)),
    }
    if one.body is not None:
        needed = any(kind.required for kind in one.body.values())
        told["requestBody"] = {"required": needed, "content": {"application/json": {"schema": _body(one.body)}}}
    return told


def _parameter(name: str, kinds: Kinds) -> dict[str, Any]:
    kind = kinds[name]
    return {
        "name": name,
        "in": "query",
        "required": kind.required,
        "description": kind.about,
        "schema": kind.schema(),
    }


def _body(kinds: Kinds) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {**kind.schema(), "description": kind.about} for name, kind in kinds.items()},
        "required": [name for name, kind in kinds.items() if kind.required],
        "additionalProperties": False,
    }


def _responses(schema: Mapping[str, Any]) -> dict[str, Any]:
    says = "By how many seconds the answer may be old, at most, where it was read from a replica."
    answered = {
        "description": "The answer.",
        "headers": {STALENESS: {"description": says, "schema": {"type": "number", "minimum": 0}}},
        "content": {"application/json": {"schema": schema}},
    }
    return {"200": answered} | {status: {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS}


def _self_description() -> dict[str, Any]:
    return {
        "operationId": "getDescription",
        "summary": "This description.",
        "description": "Needs the right 'read'.",
        "parameters": [],
        "responses": _responses({"type": "object"}),
    }

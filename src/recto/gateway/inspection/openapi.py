"""The OpenAPI description of the inspection API, generated from the table of operations and the result models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recto.engine.views.codec import json_schemas
from recto.engine.views.models import ErrorResponse
from recto.gateway.inspection.operations import DESCRIPTION, PREFIX, STALENESS, Operation
from recto.gateway.inspection.params import Param, Params
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
    """The complete description, as OpenAPI 3.1."""
    operations = tuple(operations)
    schemas = json_schemas((ErrorResponse, *(operation.result for operation in operations)), _REFERENCE)
    paths: dict[str, Any] = {DESCRIPTION: {"get": _self_description()}}
    for operation in operations:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation)
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
                status: {"description": reason, "content": {"application/json": {"schema": _reference(ErrorResponse)}}}
                for status, reason in _REFUSALS.items()
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _reference(model: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=model.__name__)}


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": (operation.handler.__doc__ or "").strip(),
        "description": f"Needs the right '{operation.right}'.",
        "parameters": [_parameter(name, param) for name, param in operation.query.items()],
        "responses": _responses(_reference(operation.result)),
    }
    if operation.body is not None:
        required = any(param.required for param in operation.body.values())
        content = {"application/json": {"schema": _body(operation.body)}}
        described["requestBody"] = {"required": required, "content": content}
    return described


def _parameter(name: str, param: Param) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": param.required,
        "description": param.description,
        "schema": param.schema(),
    }


def _body(params: Params) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {**param.schema(), "description": param.description} for name, param in params.items()},
        "required": [name for name, param in params.items() if param.required],
        "additionalProperties": False,
    }


def _responses(schema: Mapping[str, Any]) -> dict[str, Any]:
    staleness = "By how many seconds the answer may be old, at most, where it was read from a replica."
    success = {
        "description": "The answer.",
        "headers": {STALENESS: {"description": staleness, "schema": {"type": "number", "minimum": 0}}},
        "content": {"application/json": {"schema": schema}},
    }
    return {"200": success} | {status: {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS}


def _self_description() -> dict[str, Any]:
    return {
        "operationId": "getDescription",
        "summary": "This description.",
        "description": "Needs the right 'read'.",
        "parameters": [],
        "responses": _responses({"type": "object"}),
    }

"""The inspection and admin API over HTTP: finds the operation, checks the key's right, and responds with JSON.

No input of a client ends in a server error: a request that cannot be served gets a message that says what to do
instead. `operations` lists the operations; `recto.engine.views` defines the results.

An operation reads from the store, or from a replica that is not too far behind. Only history may come from the replica:
the current prompt, rights and every change always use the store.

The OpenAPI description is generated from the same table of operations and the result models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from recto.engine.async_session import on_a_thread
from recto.engine.views.codec import json_schemas, to_json
from recto.engine.views.models import ErrorDetail, ErrorResponse
from recto.errors import (
    AppendConflict,
    ApprovalRefused,
    CheckpointRefused,
    InputError,
    KeyReused,
    RectoError,
    RequestRefused,
    SettingsError,
    StoreError,
    TooLarge,
    WindowOverflow,
)
from recto.gateway.api_keys import Key
from recto.gateway.inspection.operations import DESCRIPTION, OPERATIONS, PREFIX, STALENESS, Operation
from recto.gateway.inspection.params import MAX_BODY_BYTES, Param, Params, ParsedCall, parse_body, parse_query
from recto.gateway.inspection.queries import Inspection
from recto.transcript.protocols import Replica
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


class SourceResult(Struct, frozen=True, kw_only=True):
    """A result and how old it may be."""

    result: object
    age: float | None = None
    """Seconds that it may be behind, at most; None where it was read from the store."""


class Sources:
    """The store, and the replica that is read instead where an operation allows it."""

    def __init__(self, store: Inspection, replica: Replica | None = None) -> None:
        self._store = store
        self._replica = replica
        self._replicated = None if replica is None else store.over(replica.store)

    def run(self, operation: Operation, call: ParsedCall) -> SourceResult:
        """Run an operation. Where the replica fails or does not have the data yet, the store is read."""
        if self._replica is None or self._replicated is None or not operation.reads_history(call):
            return SourceResult(result=operation.handler(self._store, call))
        age = self._replica.age(self._store.session_key(call))
        if age is not None:
            try:
                return SourceResult(result=operation.handler(self._replicated, call), age=age)
            except StoreError as error:
                self._replica.failed(error)
            except RectoError:
                pass
        return SourceResult(result=operation.handler(self._store, call))

    def close(self) -> None:
        """Close the sessions that are open on the replica."""
        if self._replicated is not None:
            self._replicated.sessions.close()


def routes(sources: Sources) -> list[Route]:
    """One route for each path."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in (*OPERATIONS, _DESCRIBE):
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(PREFIX + path, _Endpoint(sources, by_method), methods=list(by_method))
        for path, by_method in paths.items()
    ]


def _describe(inspection: Inspection, call: ParsedCall) -> object:
    return description(OPERATIONS)


_DESCRIBE = Operation(method="GET", path=DESCRIPTION.removeprefix(PREFIX), right="read", handler=_describe, result=dict)


class _Endpoint:
    """The operations of one path, by method."""

    def __init__(self, sources: Sources, operations: Mapping[str, Operation]) -> None:
        self._sources = sources
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        except RectoError as error:
            response = refusal(error)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        key = request.scope.get("recto.key")
        if not isinstance(key, Key):
            message = "this needs a key: Authorization: Bearer rk-…; 'recto keys add' makes one"
            raise RequestRefused(401, "unauthorized", message)
        if operation.right not in key.rights:
            raise RequestRefused(403, "forbidden", f"this key may not do that; it needs the right '{operation.right}'")
        query = parse_query(request.scope["query_string"], operation.query)
        body = {} if operation.body is None else parse_body(await _read_body(request), operation.body)
        found = await on_a_thread(self._sources.run, operation, ParsedCall(key=key, query=query, body=body))
        headers = {} if found.age is None else {STALENESS: f"{found.age:.3f}"}
        return _json(200, found.result, headers)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RequestRefused(413, "too_large", f"the body has more than {MAX_BODY_BYTES:,} bytes")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and content_type != "application/json":
        raise RequestRefused(415, "unsupported_media_type", "the body is JSON: send 'content-type: application/json'")
    return bytes(body)


def refusal(error: RectoError) -> Response:
    """The response to a typed error."""
    status, code, message = _classify(error)
    result = ErrorResponse(error=ErrorDetail(code=code, message=message))
    return _json(status, result, {"www-authenticate": "Bearer"} if status == 401 else None)


def _classify(error: RectoError) -> tuple[int, str, str]:
    match error:
        case RequestRefused():
            return error.status, error.code, error.message
        case TooLarge():
            return 413, "too_large", str(error)
        case ApprovalRefused() | CheckpointRefused() | SettingsError():
            return 409, "refused", str(error)
        case AppendConflict() | KeyReused():
            return 409, "conflict", "another writer was first. Nothing was changed; read again and repeat the request."
        case WindowOverflow():
            return 409, "overflow", str(error)
        case InputError():
            return 422, "not_possible", str(error)
        case StoreError():  # its message names files of this machine
            return 503, "store_unavailable", "the store cannot do this now; what it holds is safe. Try again later."
        case _:
            return 503, "unavailable", "a part of Recto failed. Nothing was lost; try again later."


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(value), status_code=status, media_type="application/json", headers=dict(headers or {}))

"""The inspection and admin API over HTTP: finds the operation, checks the key's right, and answers in JSON.

Nothing a client sends ends in an error of the server: what cannot be done is answered with what to do instead. What
can be asked stands in `table`; what the answers hold is the engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from recto.engine.async_session import on_a_thread
from recto.engine.views.codec import to_json
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
from recto.gateway.inspection.openapi import description
from recto.gateway.inspection.operations import DESCRIPTION, OPERATIONS, PREFIX, STALENESS, Operation
from recto.gateway.inspection.params import MOST_BYTES, ParsedCall, body_of, query_of
from recto.gateway.inspection.queries import Inspection
from recto.gateway.inspection.sources import Sources


def routes(sources: Sources) -> list[Route]:
    """One route for each path."""
    paths: dict[str, dict[str, Operation]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = one
    made = [Route(PREFIX + path, _Endpoint(sources, asked), methods=list(asked)) for path, asked in paths.items()]
    described = Operation(method="GET", path="/openapi.json", right="read", does=_described, gives=dict)
    return [*made, Route(DESCRIPTION, _Endpoint(sources, {"GET": described}), methods=["GET"])]


def _described(on: Inspection, call: ParsedCall) -> object:
    return description(OPERATIONS)


class _Endpoint:
    """Everything that one path answers, by method. Nothing a client sends ends in an error of the server."""

    def __init__(self, sources: Sources, operations: Mapping[str, Operation]) -> None:
        self._sources = sources
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        except RectoError as error:
            answer = refusal(error)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        one = self._operations["GET" if request.method == "HEAD" else request.method]
        key = request.scope.get("recto.key")
        if not isinstance(key, Key):
            says = "this needs a key: Authorization: Bearer rk-…; 'recto keys add' makes one"
            raise RequestRefused(401, "unauthorized", says)
        if one.right not in key.rights:
            raise RequestRefused(403, "forbidden", f"this key may not do that; it needs the right '{one.right}'")
        query = query_of(request.scope["query_string"], one.query)
        body = {} if one.body is None else body_of(await _body(request), one.body)
        answer = await on_a_thread(self._sources.answer, one, ParsedCall(key=key, query=query, body=body))
        told = {} if answer.age is None else {STALENESS: f"{answer.age:.3f}"}
        return _json(200, answer.found, told)


async def _body(request: Request) -> bytes:
    taken = bytearray()
    async for part in request.stream():
        taken += part
        if len(taken) > MOST_BYTES:
            raise RequestRefused(413, "too_large", f"the body has more than {MOST_BYTES:,} bytes")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if taken and kind != "application/json":
        raise RequestRefused(415, "unsupported_media_type", "the body is JSON: send 'content-type: application/json'")
    return bytes(taken)


def refusal(error: RectoError) -> Response:
    """What a typed error is answered with."""
    status, code, says = _told(error)
    told = ErrorResponse(error=ErrorDetail(code=code, message=says))
    return _json(status, told, {"www-authenticate": "Bearer"} if status == 401 else None)


def _told(error: RectoError) -> tuple[int, str, str]:
    match error:
        case RequestRefused():
            return error.status, error.code, error.message
        case TooLarge():
            return 413, "too_large", str(error)
        case ApprovalRefused() | CheckpointRefused() | SettingsError():
            return 409, "refused", str(error)
        case AppendConflict() | KeyReused():
            return 409, "conflict", "somebody else wrote meanwhile. Nothing was changed; look again and ask again."
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

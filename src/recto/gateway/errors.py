"""Why a request is not answered, in the shape that its protocol's clients expect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from recto.errors import (
    CannotCross,
    InputError,
    NotHeld,
    RectoError,
    RequestRefused,
    SettingsError,
    StoreError,
    TooLarge,
    UpstreamsWrong,
    WindowOverflow,
)
from recto.formats import Format, format_at
from recto.formats.errors import (
    CANNOT_CROSS,
    INTERNAL,
    MALFORMED,
    NOT_FOUND,
    OVERLOADED,
    TOO_LARGE,
)
from recto.gateway.responses import WholeResponse

_CODES: Final[tuple[tuple[type[RectoError], str], ...]] = (
    (CannotCross, CANNOT_CROSS),
    (NotHeld, NOT_FOUND),
    (UpstreamsWrong, NOT_FOUND),
    (TooLarge, TOO_LARGE),
    (InputError, MALFORMED),
    (SettingsError, MALFORMED),
    (StoreError, OVERLOADED),
    (WindowOverflow, OVERLOADED),  # of what could leave once it is indexed: it is worth asking again
)


def refused(error: RectoError, format: Format, id: str, headers: Mapping[str, str] | None = None) -> WholeResponse:
    """What a typed error becomes. An overflow is told as one only where asking again would not help."""
    if isinstance(error, WindowOverflow) and not error.kept_by:
        status, body = format.errors.overflow(error.tokens, error.room, detail=str(error), request_id=id)
        return WholeResponse(status, body, answer_headers(headers or {}, id))
    code = next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)
    return said_no(format, code, str(error), id, headers)


def said_no(
    format: Format, code: str, message: str, id: str, headers: Mapping[str, str] | None = None
) -> WholeResponse:
    """A refusal by its code."""
    status = format.errors.status_for(code)
    body = format.errors.error_body(status, code, message, request_id=id)
    return WholeResponse(status, body, answer_headers(headers or {}, id))


def answer_headers(ours: Mapping[str, str], id: str) -> list[tuple[str, str]]:
    """The headers of an answer that is our own."""
    return [("content-type", "application/json"), ("x-request-id", id), ("request-id", id), *spelled(ours)]


def spelled(ours: Mapping[str, str]) -> list[tuple[str, str]]:
    """Our headers as the wire takes them: what is not ASCII is percent-encoded."""
    return [(name, value if value.isascii() else quote(value, safe=":/~@.,-_ ")) for name, value in ours.items()]


MCP_PATH = "/mcp"
"""Where the Model Context Protocol is spoken."""
_INVALID_REQUEST = -32600
"""The number that JSON-RPC has for a request that is not taken."""


def denied(path: str, refused: RequestRefused) -> Response:
    """The answer to a request that is not taken."""
    errors = format_at(path).errors
    status = errors.status_for(OVERLOADED) if refused.code == OVERLOADED else refused.status
    headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if path.startswith("/api/"):
        body = json.dumps({"error": {"code": refused.code, "message": refused.message}}).encode()
    elif path == MCP_PATH:
        error = {"code": _INVALID_REQUEST, "message": refused.message}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    else:
        body = errors.error_body(status, refused.code, refused.message)
    return Response(body, status, headers=headers, media_type="application/json")

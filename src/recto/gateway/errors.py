"""Error responses in the shape that the clients of each wire format expect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from recto.errors import (
    AttemptRunning,
    CannotCross,
    IdempotencyKeyReused,
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
    BUDGET_SPENT,
    CANNOT_CROSS,
    IDEMPOTENCY_REUSED,
    IN_PROGRESS,
    INTERNAL,
    MALFORMED,
    NOT_FOUND,
    OVERFLOW,
    OVERLOADED,
    TOO_LARGE,
    WINDOW_TOO_SMALL,
)
from recto.gateway.responses import BufferedResponse

_CODES: Final[tuple[tuple[type[RectoError], str], ...]] = (
    (CannotCross, CANNOT_CROSS),
    (NotHeld, NOT_FOUND),
    (IdempotencyKeyReused, IDEMPOTENCY_REUSED),
    (AttemptRunning, IN_PROGRESS),
    (UpstreamsWrong, NOT_FOUND),
    (TooLarge, TOO_LARGE),
    (InputError, MALFORMED),
    (SettingsError, MALFORMED),
    (StoreError, OVERLOADED),
    (WindowOverflow, OVERLOADED),  # what blocks it can be evicted once it is indexed: a retry may succeed
)


class JsonResponse(Response):
    """JSON in ASCII: text of clients and upstreams may hold half characters, which UTF-8 cannot encode."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the body."""
        return json.dumps(content, separators=(",", ":")).encode()


def error_response(
    error: RectoError, format: Format, id: str, headers: Mapping[str, str] | None = None
) -> BufferedResponse:
    """Return the response for a typed error.

    An overflow is reported as such only where a retry would not help and a shorter history would.
    """
    if isinstance(error, WindowOverflow) and error_code(error) == OVERFLOW:
        status, body = format.errors.overflow(error.tokens, error.room, detail=str(error), request_id=id)
        return BufferedResponse(status, body, response_headers(headers or {}, id))
    return coded_response(format, error_code(error), str(error), id, headers)


def error_code(error: RectoError) -> str:
    """Return the code of a typed error."""
    if isinstance(error, WindowOverflow) and error.needs_larger_window:
        return WINDOW_TOO_SMALL
    if isinstance(error, WindowOverflow) and not error.kept_by:
        return OVERFLOW
    if isinstance(error, RequestRefused):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)


def coded_response(
    format: Format, code: str, message: str, id: str, headers: Mapping[str, str] | None = None
) -> BufferedResponse:
    """Return the response for an error code."""
    status = format.errors.status_for(code)
    body = format.errors.error_body(status, code, message, request_id=id)
    return BufferedResponse(status, body, response_headers(headers or {}, id))


def response_headers(headers: Mapping[str, str], id: str) -> list[tuple[str, str]]:
    """Return the headers of a response made by the gateway itself."""
    return [("content-type", "application/json"), ("x-request-id", id), ("request-id", id), *encode_headers(headers)]


def encode_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Encode header values for the wire: values that are not ASCII are percent-encoded."""
    return [(name, value if value.isascii() else _percent_encoded(value)) for name, value in headers.items()]


def _percent_encoded(value: str) -> str:
    return quote(value, safe=":/~@.,-_ ", errors="replace")


MCP_PATH = "/mcp"
"""The endpoint of the Model Context Protocol."""
_INVALID_REQUEST = -32600
"""JSON-RPC's code for an invalid request."""


def denied(path: str, refusal: RequestRefused) -> Response:
    """Return the response to a request that was refused before it was handled."""
    errors = format_at(path).errors
    status = errors.status_for(OVERLOADED) if refusal.code == OVERLOADED else refusal.status
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if refusal.code == BUDGET_SPENT:
        headers["x-should-retry"] = "false"  # the SDKs of OpenAI and Anthropic would retry at once
    if path.startswith("/api/"):
        body = json.dumps({"error": {"code": refusal.code, "message": refusal.message}}).encode()
    elif path == MCP_PATH:
        error = {"code": _INVALID_REQUEST, "message": refusal.message}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    else:
        body = errors.error_body(status, refusal.code, refusal.message)
    return Response(body, status, headers=headers, media_type="application/json")

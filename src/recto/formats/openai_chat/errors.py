"""Errors as clients of Chat Completions expect them."""

from __future__ import annotations

from collections.abc import Mapping

from recto.formats.errors import openai_error_body, openai_overflow, usual_status
from recto.formats.json_spans import Json
from recto.formats.sse import sse


def status_for(code: str) -> int:
    """Returns the HTTP status of an error code."""
    return usual_status(code)


def error_body(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: Mapping[str, Json] | None = None,
    request_id: str = "",
) -> bytes:
    """Builds the body of an error response."""
    return openai_error_body(status, code, message, param=param, details=details)


def overflow(tokens: int, limit: int, *, detail: str = "", request_id: str = "") -> tuple[int, bytes]:
    """Returns the status and body for a prompt that is too long."""
    return openai_overflow(tokens, limit, param="messages", detail=detail)


def stream_error(code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None) -> bytes:
    """Builds the last event of a stream that fails."""
    return sse(None, openai_error_body(usual_status(code), code, message))


def unsupported_request(fields: Mapping[str, Json], request_id: str) -> tuple[int, bytes] | None:
    """Nothing: the gateway supports every feature of Chat."""
    return None
